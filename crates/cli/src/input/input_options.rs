//! Options of an input: its format, the separator of its cells, and the types of its columns.

use clap::ValueEnum;

use crate::failure::Failure;

/// The format of an input, if its name does not determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum InputFormat {
    /// One JSON object a line
    Ndjson,
    /// A header line, then one row a line, with commas between cells
    Csv,
    /// As csv, with tabs between cells
    Tsv,
    /// One JSON array of objects
    Json,
}

/// The type of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum CellType {
    /// A number, true or false where a cell has their form, else a text.
    #[default]
    Auto,
    String,
    Number,
    Boolean,
    /// Any JSON value.
    Json,
}

impl CellType {
    const NAMES: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("string", Self::String),
        ("number", Self::Number),
        ("boolean", Self::Boolean),
        ("json", Self::Json),
    ];
}

/// Options of an input.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputOptions {
    /// `None`: by the name.
    pub(crate) format: Option<InputFormat>,
    /// The byte between cells; `None`: by the format.
    pub(crate) separator: Option<u8>,
    /// The types of columns, by name.
    pub(crate) types: Vec<(String, CellType)>,
}

const UNFIT_SEPARATOR: &str = "a letter, a digit, `-` or NUL cannot separate cells; for a tab write tab";

/// Reads the value of `--separator`: one ASCII character, or `tab`.
///
/// # Errors
/// What is wrong.
pub(crate) fn parse_separator(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        (_, [b'"' | b'\n' | b'\r']) => Err("quotes and line ends cannot separate cells".to_owned()),
        (_, [b'-' | 0]) => Err(UNFIT_SEPARATOR.to_owned()),
        (_, [byte]) if byte.is_ascii_alphanumeric() => Err(UNFIT_SEPARATOR.to_owned()),
        (_, [byte]) if byte.is_ascii() => Ok(*byte),
        _ => Err("write one ASCII character, such as ';', or tab".to_owned()),
    }
}

/// Reads the value of `--type`: `FIELD=TYPE`.
///
/// # Errors
/// What is wrong.
pub(crate) fn parse_type(text: &str) -> Result<(String, CellType), String> {
    let (field, name) = text.rsplit_once('=').ok_or("write FIELD=TYPE")?;
    let known = CellType::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.trim()));
    let names: Vec<&str> = CellType::NAMES.iter().map(|(name, _)| *name).collect();
    let (_, cell_type) =
        known.ok_or_else(|| format!("`{name}` is not a type: write {}", names.join(", ")))?;
    match field {
        "" => Err("the name of the field is missing before `=`".to_owned()),
        _ => Ok((field.to_owned(), *cell_type)),
    }
}

impl InputOptions {
    /// Rejects options that contradict each other, and options of cells for an input without cells.
    ///
    /// # Errors
    /// Wrong usage.
    pub(super) fn check_for(&self, name: &str, has_cells: bool) -> Result<(), Failure> {
        if self.format == Some(InputFormat::Tsv) && self.separator.is_some_and(|byte| byte != b'\t') {
            let what = "--format tsv separates cells by tabs: for another --separator use --format csv";
            return Err(Failure::usage(what));
        }
        for (position, (field, _)) in self.types.iter().enumerate() {
            if self.types[..position].iter().any(|(earlier, _)| earlier == field) {
                let what = format!("--type has the column `{}` twice: remove one", field.escape_debug());
                return Err(Failure::usage(what));
            }
        }
        let option = match self.separator {
            Some(_) => "--separator",
            None if !self.types.is_empty() => "--type",
            None => return Ok(()),
        };
        if has_cells {
            return Ok(());
        }
        let what =
            format!("{option} applies to CSV and TSV, but {name} is JSON: add --format csv if it is not");
        Err(Failure::usage(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_options_are_wrong_usage() {
        let types = |types: &[(&str, CellType)]| {
            types.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect::<Vec<_>>()
        };
        let tsv = |separator| InputOptions { format: Some(InputFormat::Tsv), separator, types: Vec::new() };
        assert!(tsv(Some(b'\t')).check_for("f", true).is_ok() && tsv(None).check_for("f", true).is_ok());
        assert!(tsv(Some(b';')).check_for("f", true).unwrap_err().to_string().contains("use --format csv"));
        let twice = types(&[("zip", CellType::String), ("a", CellType::Json), ("zip", CellType::Number)]);
        let twice = InputOptions { types: twice, ..InputOptions::default() };
        assert!(twice.check_for("f", true).unwrap_err().to_string().contains("`zip` twice"));
        let different = types(&[("zip", CellType::String), ("a", CellType::String)]);
        assert!(InputOptions { types: different, ..InputOptions::default() }.check_for("f", true).is_ok());
    }

    #[test]
    fn separators_and_types_are_read() {
        for (text, wanted) in [(";", b';'), ("|", b'|'), ("tab", b'\t'), ("\\t", b'\t'), ("\t", b'\t')] {
            assert_eq!(parse_separator(text), Ok(wanted));
        }
        for text in ["", ";;", "\"", "\n", "é", "t", "0", "-", "\0"] {
            assert!(parse_separator(text).is_err(), "{text:?}");
        }
        assert!(parse_separator("t").unwrap_err().contains("for a tab write tab"));
        assert_eq!(parse_type("zip=string"), Ok(("zip".to_owned(), CellType::String)));
        assert_eq!(parse_type("a=b=Number"), Ok(("a=b".to_owned(), CellType::Number)));
        for text in ["zip", "=string", "zip=text"] {
            assert!(parse_type(text).is_err(), "{text}");
        }
    }
}
