//! Formatted figures: grouped digits, bytes, times.

use std::time::Duration;

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest binary unit that keeps the figure at one or more.
pub(crate) fn bytes(value: u64) -> String {
    let mut figure = value as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if figure < 1024.0 {
            break;
        }
        figure /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{value} B") } else { format!("{figure:.1} {unit}") }
}

/// A time in the unit that keeps three or four digits: `412 µs`, `38.1 ms`, `2.45 s`.
pub(crate) fn time(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    match micros {
        _ if micros < 1e3 => format!("{micros:.0} µs"),
        _ if micros < 1e6 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// `count` events in `duration` as events a second; 0 for no time at all.
pub(crate) fn per_second(count: u64, duration: Duration) -> u64 {
    let seconds = duration.as_secs_f64();
    if seconds > 0.0 { (count as f64 / seconds) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_have_units() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1023, 1536, 5 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!(
            [412, 38_100, 2_450_000].map(|micros| time(Duration::from_micros(micros))),
            ["412 µs", "38.1 ms", "2.45 s"]
        );
        assert_eq!(per_second(10, Duration::ZERO), 0);
        assert_eq!(per_second(10, Duration::from_millis(500)), 20);
    }
}
