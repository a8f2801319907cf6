//! Changes of single fields of a JSON object. Everything else stays as it is, byte by byte: numbers of any precision, the order
//! of the fields, nested values. White space between the fields is not preserved.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object in their order, each with its value as text.
struct ObjectFields<'a>(Vec<(String, &'a str)>);

struct AllFields;

impl<'de> Visitor<'de> for AllFields {
    type Value = ObjectFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            fields.push((name, value.get()));
        }
        Ok(ObjectFields(fields))
    }
}

impl<'a> ObjectFields<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let fields = deserializer.deserialize_map(AllFields);
        let fields = fields.and_then(|fields| deserializer.end().map(|()| fields));
        fields.map_err(|_| "it is not an object".to_owned())
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(known, _)| known == name)
    }

    fn write(&self) -> String {
        let field = |(name, value): &(String, &str)| format!("{}:{value}", quoted(name));
        let fields: Vec<String> = self.0.iter().map(field).collect();
        format!("{{{}}}", fields.join(","))
    }
}

/// `name` as a JSON string.
fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

/// Sets the field at `names` of the object `text` to `value`, a JSON text, and creates the objects around it where they are
/// absent or null. Returns `None` if it has this value.
///
/// # Errors
/// What is wrong if `text`, or a value on the way, is not an object.
pub(crate) fn set(text: &str, names: &[String], value: &str) -> Result<Option<String>, String> {
    let Some((first, rest)) = names.split_first() else { return Ok(None) };
    let mut fields = ObjectFields::parse(text)?;
    let at = fields.position(first);
    let before = at.and_then(|at| fields.0.get(at)).map(|(_, before)| *before);
    let after = match (rest, before) {
        ([], Some(before)) if before == value => return Ok(None),
        ([], _) => value.to_owned(),
        (_, None | Some("null")) => nested(rest, value),
        (_, Some(inner)) if inner.starts_with('{') => match set(inner, rest, value)? {
            Some(inner) => inner,
            None => return Ok(None),
        },
        (_, Some(_)) => return Err(format!("its field {} is not an object", quoted(first))),
    };
    match at.and_then(|at| fields.0.get_mut(at)) {
        Some((_, target)) => *target = &after,
        None => fields.0.push((first.clone(), &after)),
    }
    Ok(Some(fields.write()))
}

/// Removes the field at `names` of the object `text`. Returns `None` if there is none.
///
/// # Errors
/// What is wrong if `text` is not an object.
pub(crate) fn unset(text: &str, names: &[String]) -> Result<Option<String>, String> {
    let Some((first, rest)) = names.split_first() else { return Ok(None) };
    let mut fields = ObjectFields::parse(text)?;
    let Some(at) = fields.position(first) else { return Ok(None) };
    if rest.is_empty() {
        fields.0.remove(at);
        return Ok(Some(fields.write()));
    }
    let Some((_, inner)) = fields.0.get_mut(at).filter(|(_, inner)| inner.starts_with('{')) else {
        return Ok(None);
    };
    let Some(after) = unset(inner, rest)? else { return Ok(None) };
    *inner = &after;
    Ok(Some(fields.write()))
}

/// The objects along `names` around `value`.
fn nested(names: &[String], value: &str) -> String {
    names.iter().rev().fold(value.to_owned(), |inner, name| format!("{{{}:{inner}}}", quoted(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str) -> Vec<String> {
        path.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let text = r#"{"sn":123456789012345678901,"z":1e2, "amount":0.1234567890123456789,"a":{"y":1.0,"x":[ 1 ]},"é":null}"#;
        let set = |path: &str, value: &str| set(text, &names(path), value).unwrap().unwrap();
        assert_eq!(
            set("b", "true"),
            r#"{"sn":123456789012345678901,"z":1e2,"amount":0.1234567890123456789,"a":{"y":1.0,"x":[ 1 ]},"é":null,"b":true}"#
        );
        assert_eq!(
            set("a.y", "2"),
            r#"{"sn":123456789012345678901,"z":1e2,"amount":0.1234567890123456789,"a":{"y":2,"x":[ 1 ]},"é":null}"#
        );
        assert_eq!(
            set("é.f.g", "\"v\""),
            r#"{"sn":123456789012345678901,"z":1e2,"amount":0.1234567890123456789,"a":{"y":1.0,"x":[ 1 ]},"é":{"f":{"g":"v"}}}"#
        );
        assert_eq!(
            unset(text, &names("a.y")).unwrap().unwrap(),
            r#"{"sn":123456789012345678901,"z":1e2,"amount":0.1234567890123456789,"a":{"x":[ 1 ]},"é":null}"#
        );
    }

    #[test]
    fn nothing_changes_without_need_and_no_value_is_destroyed() {
        let text = r#"{"tags":["a"],"n":1,"s":"x"}"#;
        assert_eq!(set(text, &names("n"), "1").unwrap(), None);
        assert_eq!(unset(text, &names("m")).unwrap(), None);
        assert_eq!(unset(text, &names("tags.x")).unwrap(), None);
        for path in ["tags.x", "s.x", "n.x.y"] {
            assert!(set(text, &names(path), "1").unwrap_err().contains("is not an object"), "{path}");
        }
        assert!(set("[1]", &names("n"), "1").is_err() && unset("1", &names("n")).is_err());
    }

    #[test]
    fn deep_values_stay_as_they_are() {
        let deep = format!("{}1{}", "[".repeat(127), "]".repeat(127));
        let changed = set(&format!(r#"{{"deep":{deep}}}"#), &names("n"), "1").unwrap().unwrap();
        assert_eq!(changed, format!(r#"{{"deep":{deep},"n":1}}"#));
    }
}
