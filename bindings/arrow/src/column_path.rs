//! The location of a column's value in a record.

use std::fmt;
use std::str::FromStr;

use crate::{ConversionError, Result};

/// Maximum length of the text of a path, in bytes.
const MAX_PATH_BYTES: usize = 1_024;
/// Maximum number of fields of a path: that of the levels of a record.
const MAX_FIELDS: usize = 128;
/// Characters with a meaning in the paths of the engine.
const SYNTAX: &[char] = &['.', '[', ']', '\\', ':', '=', '+', '|', ',', '(', ')'];

/// Names of fields from the top of a record, as `user.id`. A backslash makes the next character a part of the name.
///
/// The text is the same as that of an attribute path of the engine, without `[*]`: the elements of an array are the type
/// of a column, not a path.
///
/// ```
/// use bolide_arrow::ColumnPath;
/// let path: ColumnPath = r"user.first\.name".parse()?;
/// assert_eq!(path.fields(), ["user", "first.name"]);
/// assert_eq!(path.to_string(), r"user.first\.name");
/// assert!("user..id".parse::<ColumnPath>().is_err());
/// # Ok::<(), bolide_arrow::ConversionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnPath {
    fields: Vec<String>,
}

impl ColumnPath {
    /// The path through these fields, whose names may have any characters.
    ///
    /// # Errors
    /// For no field, an empty name, or a path over the limits.
    pub fn of<N: Into<String>>(fields: impl IntoIterator<Item = N>) -> Result<Self> {
        let path = Self { fields: fields.into_iter().map(Into::into).collect() };
        if path.fields.is_empty() || path.fields.iter().any(String::is_empty) {
            return Err(ConversionError::new(format!("the path `{path}` has an empty field name")));
        }
        let bytes: usize = path.fields.iter().map(|field| field.len() + 1).sum();
        if bytes > MAX_PATH_BYTES || path.fields.len() > MAX_FIELDS {
            return Err(ConversionError::new(format!(
                "a path has at most {MAX_PATH_BYTES} bytes and {MAX_FIELDS} fields; this one has {bytes} and {}",
                path.fields.len()
            )));
        }
        Ok(path)
    }

    /// The names of the fields, from the top.
    pub fn fields(&self) -> &[String] {
        &self.fields
    }
}

impl FromStr for ColumnPath {
    type Err = ConversionError;

    fn from_str(text: &str) -> Result<Self> {
        let mut fields = vec![String::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let literal = match character {
                '.' => {
                    fields.push(String::new());
                    continue;
                }
                '\\' => characters.next().ok_or_else(|| {
                    ConversionError::new(format!("the path `{text}` ends with a backslash"))
                })?,
                '[' | ']' | '(' | ')' => {
                    return Err(ConversionError::new(format!(
                        "the path `{text}` has `{character}`: a column names a field, as `user.id`; write \
                         `list<TYPE>` as the type of an array, and a backslash before `{character}` in a name"
                    )));
                }
                other => other,
            };
            if let Some(field) = fields.last_mut() {
                field.push(literal);
            }
        }
        Self::of(fields)
    }
}

impl fmt::Display for ColumnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, field) in self.fields.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            for character in field.chars() {
                if SYNTAX.contains(&character) {
                    f.write_str("\\")?;
                }
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_as_they_are_parsed() {
        for text in ["a", "a.b.c", r"a\.b", r"a\\.b", "ä.😀", r"x\[y\]", r"a\,b\(c\)"] {
            let path: ColumnPath = text.parse().unwrap();
            assert_eq!(path.to_string(), text);
            assert_eq!(ColumnPath::of(path.fields()).unwrap(), path);
        }
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in ["", ".", "a.", ".a", "a..b", "a\\", "tags[*]", "rect(a)"] {
            assert!(text.parse::<ColumnPath>().is_err(), "{text}");
        }
        assert!("a".repeat(MAX_PATH_BYTES).parse::<ColumnPath>().is_err());
        assert!(vec!["a"; MAX_FIELDS + 1].join(".").parse::<ColumnPath>().is_err());
    }
}
