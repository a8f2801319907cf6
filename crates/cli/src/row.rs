//! A row of an import: its key, and in a change stream whether it deletes.

use std::fmt;

use bolide::key::PrimaryKey;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The operations of a change stream that put the record.
const PUTS: [&str; 4] = ["put", "insert", "update", "upsert"];
/// Those that delete the key.
const DELETES: [&str; 2] = ["del", "delete"];
/// The maximum length of an unknown operation in messages, in characters.
const MAX_PRINTED: usize = 40;

/// A path of field names, the argument of `--key` and `--op-field`: `user.id`. A backslash makes the next character
/// literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath {
    text: String,
    names: Vec<String>,
}

impl FieldPath {
    /// Reads the text of a path.
    ///
    /// # Errors
    /// An empty name, or `[*]`: a record has one key.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut names = vec![String::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let name = match character {
                '.' => {
                    names.push(String::new());
                    continue;
                }
                '[' => return Err("the path must lead to one value: no `[*]` here".to_owned()),
                '\\' => characters.next().ok_or("nothing follows the last backslash")?,
                other => other,
            };
            names.last_mut().ok_or("the path is empty")?.push(name);
        }
        if names.iter().any(String::is_empty) {
            return Err("a field name is empty".to_owned());
        }
        Ok(Self { text: text.to_owned(), names })
    }

    /// The names of the fields, from the outer to the inner object.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The change that a row describes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// Put the record under this key.
    Put(PrimaryKey),
    /// Delete this key.
    Delete(PrimaryKey),
}

/// The fields of a row that an import reads.
#[derive(Debug, Clone)]
pub(crate) struct RowShape {
    key: FieldPath,
    op: Option<FieldPath>,
}

impl RowShape {
    /// Rows with their key in `key`; with `op` they are a change stream.
    pub(crate) fn new(key: FieldPath, op: Option<FieldPath>) -> Self {
        Self { key, op }
    }

    /// Reads one row in one pass over its text.
    ///
    /// # Errors
    /// The reason why it is a bad row: not UTF-8, broken JSON, not an object, no key, a key of a wrong type, an unknown
    /// operation.
    pub(crate) fn read(&self, text: &[u8]) -> Result<RowChange, String> {
        let text = std::str::from_utf8(text)
            .map_err(|error| format!("it is not UTF-8 at byte {}", error.valid_up_to() + 1))?;
        let [key_name, op_name] =
            [Some(&self.key), self.op.as_ref()].map(|path| path.map(|path| &path.names[0]));
        let names = [key_name, op_name].map(|name| name.map(String::as_str));
        let [key, op] = fields_of(text, names).map_err(|error| describe(&error))?;
        let key = key
            .and_then(|raw| descend(raw, &self.key.names[1..]))
            .ok_or_else(|| format!("it has no key field `{}`", self.key))?;
        let key = parse_key(key).map_err(|reason| format!("its key field `{}`: {reason}", self.key))?;
        let op = self.op.as_ref().zip(op);
        let op = op.and_then(|(path, raw)| Some((path, descend(raw, &path.names[1..])?)));
        let deletes = match op {
            // A row without an operation puts its record.
            None => false,
            Some((path, op)) => deletes(op).map_err(|reason| format!("its field `{path}`: {reason}"))?,
        };
        Ok(if deletes { RowChange::Delete(key) } else { RowChange::Put(key) })
    }
}

/// Whether a row with the operation `raw` deletes its key.
fn deletes(raw: &RawValue) -> Result<bool, String> {
    let is_one_of = |known: &[&str], name: &str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    match serde_json::from_str::<String>(raw.get()) {
        Ok(name) if is_one_of(&PUTS, &name) => Ok(false),
        Ok(name) if is_one_of(&DELETES, &name) => Ok(true),
        _ => {
            let mut printed: String = raw.get().chars().take(MAX_PRINTED).collect();
            if printed.len() < raw.get().len() {
                printed.push('…');
            }
            let (puts, deletes) = (PUTS.join(", "), DELETES.join(", "));
            Err(format!(
                "there is no operation {printed}; {puts} put the record, {deletes} delete the key, in any case"
            ))
        }
    }
}

fn parse_key(raw: &RawValue) -> Result<PrimaryKey, String> {
    let value: serde_json::Value = serde_json::from_str(raw.get()).map_err(|error| describe(&error))?;
    PrimaryKey::from_json(&value).map_err(|error| error.message().to_owned())
}

/// The value at the path `names`.
fn descend<'a>(raw: &'a RawValue, names: &[String]) -> Option<&'a RawValue> {
    let mut current = raw;
    for name in names {
        let [value, _] = fields_of(current.get(), [Some(name), None]).ok()?;
        current = value?;
    }
    Some(current)
}

/// The values of two fields of an object. An error if one of them occurs twice.
fn fields_of<'a>(text: &'a str, names: [Option<&str>; 2]) -> serde_json::Result<[Option<&'a RawValue>; 2]> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = deserializer.deserialize_any(FieldPair { names })?;
    deserializer.end()?;
    Ok(found)
}

struct FieldPair<'n> {
    names: [Option<&'n str>; 2],
}

impl<'de> Visitor<'de> for FieldPair<'_> {
    type Value = [Option<&'de RawValue>; 2];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; 2];
        // A name with escapes cannot be borrowed: `Cow` would copy each, so only those are copied.
        while let Some(Name(name)) = map.next_key()? {
            let hits = self.names.map(|wanted| wanted == Some(&*name));
            if hits.contains(&true) {
                let raw: &RawValue = map.next_value()?;
                for (slot, _) in found.iter_mut().zip(hits).filter(|(_, hit)| *hit) {
                    if slot.replace(raw).is_some() {
                        return Err(A::Error::custom(format_args!("it has the name {name:?} twice")));
                    }
                }
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
        Err(A::Error::custom("it is an array, not an object"))
    }
}

/// A field name, borrowed if it has no escapes.
struct Name<'a>(std::borrow::Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Name(text.into()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Name(text.to_owned().into()))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The reason without serde's line number, which is always that of a single line.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    match error.classify() {
        serde_json::error::Category::Data => match text {
            _ if text.starts_with("invalid type") => format!("it is no JSON object: {text}"),
            _ => text.to_owned(),
        },
        _ => format!("broken JSON at column {}: {text}", error.column()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(key: &str, op: Option<&str>) -> RowShape {
        RowShape::new(FieldPath::parse(key).unwrap(), op.map(|op| FieldPath::parse(op).unwrap()))
    }

    #[test]
    fn keys_are_read_by_path() {
        let read = |key: &str, text: &str| shape(key, None).read(text.as_bytes());
        let put = |key: PrimaryKey| Ok(RowChange::Put(key));
        assert_eq!(read("id", r#" {"a":[1,{}],"id":7} "#), put(PrimaryKey::Int(7)));
        assert!(read("id", r#"{"id":1,"id":"x"}"#).unwrap_err().contains("\"id\" twice"));
        assert_eq!(read("user.id", r#"{"user":{"id":"x"}}"#), put(PrimaryKey::from("x")));
        assert_eq!(read(r"user\.id", r#"{"user.id":18446744073709551615}"#), put(PrimaryKey::Uint(u64::MAX)));
        assert_eq!(read("é", r#"{"\u00e9":1}"#), put(PrimaryKey::Int(1)));
    }

    #[test]
    fn change_streams_delete() {
        let read = |text: &str| shape("id", Some("meta.op")).read(text.as_bytes());
        let id = PrimaryKey::Int(1);
        for op in ["del", "delete", "Delete", "DELETE", "Del"] {
            let text = format!(r#"{{"meta":{{"op":"{op}"}},"id":1}}"#);
            assert_eq!(read(&text), Ok(RowChange::Delete(id.clone())));
        }
        for op in ["put", "PUT", "Insert", "update", "UPSERT"] {
            let text = format!(r#"{{"meta":{{"op":"{op}"}},"id":1}}"#);
            assert_eq!(read(&text), Ok(RowChange::Put(id.clone())));
        }
        for text in [r#"{"id":1,"meta":{}}"#, r#"{"id":1,"meta":7}"#, r#"{"id":1}"#] {
            assert_eq!(read(text), Ok(RowChange::Put(id.clone())), "{text}");
        }
        for op in ["\"remove\"", "\"\"", "\"delete \"", "7", "null", "true", "[\"del\"]", "\"\\ud800\""] {
            let reason = read(&format!(r#"{{"meta":{{"op":{op}}},"id":1}}"#)).unwrap_err();
            assert!(
                reason.contains(&format!("its field `meta.op`: there is no operation {op};")),
                "{reason}"
            );
            assert!(
                reason.contains("put, insert, update, upsert put the record, del, delete delete"),
                "{reason}"
            );
        }
        // One field may be both.
        assert_eq!(
            shape("a", Some("a")).read(br#"{"a":"del"}"#),
            Ok(RowChange::Delete(PrimaryKey::from("del")))
        );
    }

    #[test]
    fn bad_rows_have_a_reason() {
        let deep = "[".repeat(1_000_000);
        let deep = format!(r#"{{"a":{deep}"#);
        for (text, reason) in [
            ("{\"id\":1", "broken JSON at column"),
            ("{\"id\":1} x", "broken JSON at column 10"),
            ("[1]", "it is an array, not an object"),
            ("7", "it is no JSON object"),
            ("null", "it is no JSON object"),
            ("{}", "no key field `id`"),
            ("{\"id\":null}", "its key field `id`"),
            ("{\"id\":1.5}", "integer"),
            ("{\"id\":[1]}", "array"),
            ("{\"id\":NaN}", "broken JSON"),
            (&deep, "broken JSON"),
        ] {
            let error = shape("id", None).read(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let error = shape("id", None).read(b"{\"id\":\"\xff\"}").unwrap_err();
        assert!(error.contains("not UTF-8 at byte 8"), "{error}");
        assert!(shape("id.x", None).read(b"{\"id\":3}").unwrap_err().contains("no key field"));
    }

    #[test]
    fn malformed_paths_are_refused() {
        for text in ["", ".", "a.", "a[*]", "a\\"] {
            assert!(FieldPath::parse(text).is_err(), "{text}");
        }
    }
}
