//! A size of memory on the command line: a number of bytes, or of `KiB`, `MiB` or `GiB`.

/// The bytes of a size.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text[digits.len()..].trim() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        unit => return Err(format!("the unit {unit:?} is not KiB, MiB or GiB")),
    };
    let number: usize = digits.parse().map_err(|_| "a size is a number and a unit, as 256MiB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "the size is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn sizes_have_a_number_and_a_unit() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("256MiB"), Ok(256 << 20));
        assert_eq!(parse("3 GiB"), Ok(3 << 30));
        assert_eq!(parse("16KiB"), Ok(16 << 10));
        for wrong in ["", "MiB", "1MB", "-1", "1.5GiB", "99999999999999999999", "9999999999999999GiB"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
