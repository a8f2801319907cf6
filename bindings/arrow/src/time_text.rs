//! Dates and times as ISO 8601 text, in the proleptic Gregorian calendar.

use std::fmt::Write;

/// Days from 1970-01-01 of a date. `None` if there is no such date.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=days_of_month).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// Year, month and day of a number of days from 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + era * 400 + i64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day)
}

/// A reader of digits.
struct Digits<'t>(&'t [u8]);

impl Digits<'_> {
    /// The next `count` digits.
    fn number(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits
            .iter()
            .try_fold(0, |number, byte| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0')))
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == byte).then(|| self.0 = rest)
    }

    fn date(&mut self) -> Option<i64> {
        let year = self.number(4)?;
        self.take(b'-')?;
        let month = self.number(2)?;
        self.take(b'-')?;
        days_of(year, month, self.number(2)?)
    }

    /// Microseconds of a day; digits beyond microseconds are cut.
    fn time(&mut self) -> Option<i64> {
        let hour = self.number(2)?;
        self.take(b':')?;
        let minute = self.number(2)?;
        let second = if self.take(b':').is_some() { self.number(2)? } else { 0 };
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let mut micros = 0;
        if self.take(b'.').is_some() {
            let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&count) {
                return None;
            }
            micros = self.number(count)?;
            for _ in count..6 {
                micros *= 10;
            }
            for _ in 6..count {
                micros /= 10;
            }
        }
        Some((hour * 3_600 + minute * 60 + second) * 1_000_000 + micros)
    }

    /// The offset from UTC in minutes; none is UTC.
    fn offset(&mut self) -> Option<i64> {
        let sign = match self.0.first() {
            None => return Some(0),
            Some(b'Z' | b'z') => {
                self.0 = &self.0[1..];
                return Some(0);
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            Some(_) => return None,
        };
        self.0 = &self.0[1..];
        let hours = self.number(2)?;
        let _ = self.take(b':');
        let minutes = self.number(2)?;
        (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
    }
}

/// Days from 1970-01-01 of a text of the form `2026-11-30`.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    let mut digits = Digits(text);
    let days = digits.date()?;
    if digits.0.is_empty() { i32::try_from(days).ok() } else { None }
}

/// Microseconds from 1970-01-01 UTC of a text of the form `2026-11-30T12:00:00.5+01:00`, or of a date alone.
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<i64> {
    let mut digits = Digits(text);
    let days = digits.date()?;
    let (mut micros, mut offset) = (0, 0);
    if digits.take(b'T').or_else(|| digits.take(b't')).or_else(|| digits.take(b' ')).is_some() {
        micros = digits.time()?;
        offset = digits.offset()?;
    }
    digits.0.is_empty().then_some(days * 86_400_000_000 + micros - offset * 60_000_000)
}

/// Appends the date; `None` for a year that has not four digits.
pub(crate) fn write_date(days: i64, out: &mut String) -> Option<()> {
    if !(-719_528..=2_932_896).contains(&days) {
        return None;
    }
    let (year, month, day) = date_of(days);
    write!(out, "{year:04}-{month:02}-{day:02}").ok()
}

/// Appends the time of a day, with three, six or nine digits of the fraction if it is not zero.
pub(crate) fn write_time(nanos: i64, out: &mut String) -> Option<()> {
    if !(0..86_400_000_000_000).contains(&nanos) {
        return None;
    }
    let seconds = nanos / 1_000_000_000;
    write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60).ok()?;
    let fraction = nanos % 1_000_000_000;
    match (fraction % 1_000_000, fraction % 1_000, fraction) {
        (_, _, 0) => Some(()),
        (0, _, _) => write!(out, ".{:03}", fraction / 1_000_000).ok(),
        (_, 0, _) => write!(out, ".{:06}", fraction / 1_000).ok(),
        _ => write!(out, ".{fraction:09}").ok(),
    }
}

/// Appends date and time of a count of units of `per_second`.
pub(crate) fn write_timestamp(count: i64, per_second: i64, out: &mut String) -> Option<()> {
    let seconds = count.div_euclid(per_second);
    let nanos = count.rem_euclid(per_second) * (1_000_000_000 / per_second);
    write_date(seconds.div_euclid(86_400), out)?;
    out.push('T');
    write_time(seconds.rem_euclid(86_400) * 1_000_000_000 + nanos, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_date_of_four_digits_round_trips() {
        let mut previous = None;
        for days in -719_528..=2_932_896_i64 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_of(year, month, day), Some(days));
            assert!(previous < Some((year, month, day)));
            previous = Some((year, month, day));
        }
        assert_eq!(parse_date(b"1970-01-01"), Some(0));
        assert_eq!(parse_date(b"2000-02-29"), Some(11_016));
        assert_eq!(parse_date(b"9999-12-31"), Some(2_932_896));
        assert_eq!(parse_date(b"0000-01-01"), Some(-719_528));
    }

    #[test]
    fn invalid_dates_and_times_are_refused() {
        for text in
            ["", "1970", "1970-1-1", "1970-13-01", "1900-02-29", "1970-01-00", "1970-01-01 ", "+970-01-01"]
        {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
        for text in [
            "1970-01-01T",
            "1970-01-01T24:00",
            "1970-01-01T00:60",
            "1970-01-01T00:00:60",
            "1970-01-01T00:00:00.",
            "1970-01-01T00:00:00.1234567890",
            "1970-01-01T00:00Q",
            "1970-01-01T00:00+1",
            "1970-01-01T00:00+24:00",
        ] {
            assert_eq!(parse_timestamp(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn timestamps_round_trip() {
        for (text, micros) in [
            ("1970-01-01T00:00:00", 0),
            ("1969-12-31T23:59:59.999999", -1),
            ("2026-11-30T12:34:56.500", 1_796_042_096_500_000),
        ] {
            assert_eq!(parse_timestamp(text.as_bytes()), Some(micros), "{text}");
            let mut written = String::new();
            assert!(write_timestamp(micros, 1_000_000, &mut written).is_some());
            assert_eq!(written, text);
        }
        assert_eq!(parse_timestamp(b"1970-01-01 01:00+01:00"), Some(0));
        assert_eq!(parse_timestamp(b"1970-01-01T00:00:00-0030"), Some(1_800_000_000));
        assert_eq!(parse_timestamp(b"1970-01-02"), Some(86_400_000_000));
        assert_eq!(parse_timestamp(b"1970-01-01T00:00:00.123456789Z"), Some(123_456));
        assert_eq!(write_timestamp(i64::MAX, 1, &mut String::new()), None);
    }
}
