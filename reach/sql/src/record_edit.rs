//! Changes of single fields of a record. Everything else stays as it is, byte by byte: numbers of any precision, the order of
//! the fields, nested values.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Result, SqlError};

/// The fields of an object in their order, each with its value as text.
struct ObjectFields<'a>(Vec<(String, &'a str)>);

struct AllFields;

impl<'de> Visitor<'de> for AllFields {
    type Value = ObjectFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            fields.push((name, value.get()));
        }
        Ok(ObjectFields(fields))
    }
}

impl<'a> ObjectFields<'a> {
    fn parse(text: &'a str) -> Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let fields = deserializer.deserialize_map(AllFields)?;
        deserializer.end()?;
        Ok(fields)
    }

    fn write(&self) -> String {
        let mut out = Vec::with_capacity(64);
        out.push(b'{');
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            bolide_arrow::write_json_string(name, &mut out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
        // Of texts alone.
        String::from_utf8(out).unwrap_or_default()
    }
}

/// Sets the field at `names` of the object `text` to `value`, a JSON text, and creates the objects around it where they are
/// absent or null. `None` removes the field.
///
/// # Errors
/// If `text`, or a value on the way, is not an object.
pub(crate) fn set_field(text: &str, names: &[String], value: Option<&str>) -> Result<String> {
    let Some((first, rest)) = names.split_first() else { return Ok(text.to_owned()) };
    let mut fields = ObjectFields::parse(text)?;
    let at = fields.0.iter().position(|(known, _)| known == first);
    let before = at.and_then(|at| fields.0.get(at)).map(|(_, before)| *before);
    let after = match (rest, before, value) {
        ([], _, Some(value)) => value.to_owned(),
        ([], Some(_), None) => {
            fields.0.retain(|(known, _)| known != first);
            return Ok(fields.write());
        }
        (_, None | Some("null"), None) => return Ok(text.to_owned()),
        (_, None | Some("null"), Some(value)) => nested(rest, value),
        (_, Some(inner), _) if inner.starts_with('{') => set_field(inner, rest, value)?,
        // No value of the path to remove.
        (_, Some(_), None) => return Ok(text.to_owned()),
        (_, Some(_), Some(_)) => {
            return Err(SqlError::data(format!(
                "the field {first:?} of the record is no object, so nothing inside of it can be set"
            )));
        }
    };
    match at.and_then(|at| fields.0.get_mut(at)) {
        Some((_, target)) => *target = &after,
        None => fields.0.push((first.clone(), &after)),
    }
    Ok(fields.write())
}

/// The objects along `names` around `value`.
fn nested(names: &[String], value: &str) -> String {
    names.iter().rev().fold(value.to_owned(), |inner, name| {
        let mut out = vec![b'{'];
        bolide_arrow::write_json_string(name, &mut out);
        out.push(b':');
        out.extend_from_slice(inner.as_bytes());
        out.push(b'}');
        String::from_utf8(out).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str, path: &str, value: Option<&str>) -> Result<String> {
        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
        set_field(text, &names, value)
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let text = r#"{"sn":123456789012345678901,"z":1e2,"a":{"y":1.0,"x":[ 1 ]},"é":null}"#;
        assert_eq!(
            set(text, "a.y", Some("2")).unwrap(),
            r#"{"sn":123456789012345678901,"z":1e2,"a":{"y":2,"x":[ 1 ]},"é":null}"#
        );
        assert_eq!(
            set(text, "é.f.g", Some("\"v\"")).unwrap(),
            r#"{"sn":123456789012345678901,"z":1e2,"a":{"y":1.0,"x":[ 1 ]},"é":{"f":{"g":"v"}}}"#
        );
        assert_eq!(
            set(text, "a.y", None).unwrap(),
            r#"{"sn":123456789012345678901,"z":1e2,"a":{"x":[ 1 ]},"é":null}"#
        );
        assert_eq!(set(text, "b", None).unwrap(), text);
        assert_eq!(set("{}", "b.c", Some("1")).unwrap(), r#"{"b":{"c":1}}"#);
    }

    #[test]
    fn no_value_is_destroyed() {
        let text = r#"{"tags":["a"],"n":1}"#;
        for path in ["tags.x", "n.x"] {
            assert!(set(text, path, Some("1")).is_err(), "{path}");
            assert_eq!(set(text, path, None).unwrap(), text);
        }
        assert!(set("[1]", "n", Some("1")).is_err());
    }
}
