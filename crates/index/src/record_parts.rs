//! Parts of a record as JSON text: the objects, arrays and scalars at some paths, byte by byte as they are stored.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::path::{AttributePath, PathShape, PathStep};

/// The JSON object with the parts of `record` at `paths`, each under the text of its path. A path through `[*]` gives the
/// array of all parts; `point(x,y)` gives the array of both. Absent parts are omitted, and so is a path through `[*]` whose
/// arrays are empty. A record that is no JSON object has none.
///
/// Costs one parse of the record, and one of each nested object or array on a path; allocates the names of their fields.
///
/// ```
/// use bolide_index::record_parts;
/// let record = br#"{"user":{"id":7, "tags":["b","a"]},"n":1.50,"items":[{"p":1},{"q":2},{"p":3}]}"#;
/// let paths = ["user".parse()?, "n".parse()?, "items[*].p".parse()?, "none".parse()?];
/// let parts = br#"{"user":{"id":7, "tags":["b","a"]},"n":1.50,"items[*].p":[1,3]}"#;
/// assert_eq!(record_parts(record, &paths), parts);
/// assert_eq!(record_parts(b"no JSON", &paths), b"{}");
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn record_parts(record: &[u8], paths: &[AttributePath]) -> Vec<u8> {
    let mut out = Vec::new();
    write_parts(record, paths, &mut out);
    out
}

/// The part of `record` at each of the paths as JSON text, as [`record_parts`] returns it, at the same cost; `None` where it
/// is absent.
///
/// ```
/// use bolide_index::each_record_part;
/// let record = br#"{"user":{"id":7, "tags":[]}}"#;
/// let parts = each_record_part(record, &["user.tags[*]".parse()?, "user.tags".parse()?]);
/// assert_eq!(parts, [None, Some("[]".to_owned())]);
/// # Ok::<(), bolide_base::Error>(())
/// ```
pub fn each_record_part(record: &[u8], paths: &[AttributePath]) -> Vec<Option<String>> {
    let fields = RecordFields::of(record);
    paths.iter().map(|path| part_of(&fields, path)).collect()
}

/// As [`record_parts`], into `out`.
pub(crate) fn write_parts(record: &[u8], paths: &[AttributePath], out: &mut Vec<u8>) {
    out.clear();
    out.push(b'{');
    let fields = RecordFields::of(record);
    for path in paths {
        let Some(part) = part_of(&fields, path) else { continue };
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(serde_json::Value::from(path.to_string()).to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(part.as_bytes());
    }
    out.push(b'}');
}

/// The part of an object at `path`.
fn part_of(fields: &RecordFields<'_>, path: &AttributePath) -> Option<String> {
    let parts_at = |steps: &[PathStep]| {
        let mut parts = Vec::new();
        fields.collect(steps, &mut parts);
        parts
    };
    let parts = parts_at(path.steps());
    let first = *parts.first()?;
    match path.shape() {
        PathShape::Point(second) => Some(format!("[{first},{}]", parts_at(second).first()?)),
        _ if path.is_repeated() => Some(format!("[{}]", parts.join(","))),
        _ => Some(first.to_owned()),
    }
}

/// The fields of an object in their order, each with its value as text.
#[derive(Default)]
struct RecordFields<'r>(Vec<(String, &'r str)>);

impl<'r> RecordFields<'r> {
    /// The fields of a record; none if it is no JSON object.
    fn of(record: &'r [u8]) -> Self {
        std::str::from_utf8(record).ok().and_then(Self::parse).unwrap_or_default()
    }

    fn parse(text: &'r str) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let fields = deserializer.deserialize_map(RecordFieldVisitor).ok()?;
        deserializer.end().ok().map(|()| fields)
    }

    /// Adds the parts at `steps`.
    fn collect(&self, steps: &[PathStep], parts: &mut Vec<&'r str>) {
        let Some((PathStep::Field(name), rest)) = steps.split_first() else { return };
        if let Some((_, value)) = self.0.iter().find(|(known, _)| **known == **name) {
            collect_value(value, rest, parts);
        }
    }
}

/// Adds the parts of the value `text` at `steps`. The steps of a path bound the recursion.
fn collect_value<'r>(text: &'r str, steps: &[PathStep], parts: &mut Vec<&'r str>) {
    match steps.split_first() {
        None => parts.push(text),
        Some((PathStep::Field(_), _)) if text.starts_with('{') => {
            if let Some(fields) = RecordFields::parse(text) {
                fields.collect(steps, parts);
            }
        }
        Some((PathStep::Elements, rest)) if text.starts_with('[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            elements.into_iter().for_each(|element| collect_value(element.get(), rest, parts));
        }
        Some(_) => {}
    }
}

struct RecordFieldVisitor;

impl<'de> Visitor<'de> for RecordFieldVisitor {
    type Value = RecordFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            fields.push((name, value.get()));
        }
        Ok(RecordFields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(record: &str, paths: &[&str]) -> String {
        let paths: Vec<AttributePath> = paths.iter().map(|path| path.parse().unwrap()).collect();
        String::from_utf8(record_parts(record.as_bytes(), &paths)).unwrap()
    }

    #[test]
    fn parts_are_the_stored_text() {
        let record = r#"{"a":{"b":[1, {"c":12345678901234567890123}],"d":null},"x.y":true,"lon":1.0,"lat":2,"é\n":"\u00e9"}"#;
        for (path, wanted) in [
            ("a", r#"{"a":{"b":[1, {"c":12345678901234567890123}],"d":null}}"#),
            ("a.b", r#"{"a.b":[1, {"c":12345678901234567890123}]}"#),
            ("a.b[*]", r#"{"a.b[*]":[1,{"c":12345678901234567890123}]}"#),
            ("a.b[*].c", r#"{"a.b[*].c":[12345678901234567890123]}"#),
            ("a.d", r#"{"a.d":null}"#),
            (r"x\.y", r#"{"x\\.y":true}"#),
            ("é\n", r#"{"é\n":"\u00e9"}"#),
            ("point(lon,lat)", r#"{"point(lon,lat)":[1.0,2]}"#),
            ("rect(a.b)", r#"{"rect(a.b)":[1, {"c":12345678901234567890123}]}"#),
            ("point(lon,none)", "{}"),
            ("a.b.c", "{}"),
            ("a[*]", "{}"),
            ("lon.x", "{}"),
        ] {
            assert_eq!(parts(record, &[path]), wanted, "{path}");
        }
        assert_eq!(parts(record, &["lat", "none", "lon"]), r#"{"lat":2,"lon":1.0}"#);
    }

    #[test]
    fn a_record_that_is_no_object_has_no_parts() {
        for record in ["", "[1]", "1", "{", r#"{"a":1}x"#, r#"{"a":}"#] {
            assert_eq!(parts(record, &["a"]), "{}", "{record}");
        }
        assert_eq!(record_parts(b"\xff", &[AttributePath::field("a")]), b"{}");
    }

    #[test]
    fn deep_parts_are_found() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(128), "}".repeat(128));
        let path = vec!["a"; 128].join(".");
        assert!(parts(&deep, &[&path]).ends_with(":1}"));
    }
}
