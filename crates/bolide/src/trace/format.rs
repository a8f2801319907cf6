//! The text form of a trace; see [`super`].

use std::fmt;
use std::str::FromStr;

use bolide_base::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

use super::{CollectionTrace, Trace, TracedAnswers, TracedCondition, TracedOrder, TracedQuery};

/// The version of the format.
const VERSION: u64 = 1;
/// The name of the version in the first line.
const VERSION_FIELD: &str = "bolide_trace";
/// The counters of a collection, by name.
const COUNTERS: [&str; 6] = ["puts", "deletes", "range_deletes", "gets", "scans", "other_queries"];
/// The maximum length of a text that is read.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// One line of JSON for each collection and each form of query, after the version.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", json!({ VERSION_FIELD: VERSION }))?;
        for collection in &self.collections {
            let counts = collection.counts();
            let mut line = Map::new();
            line.insert("collection".to_owned(), collection.name.as_str().into());
            line.extend(COUNTERS.iter().zip(counts).map(|(name, count)| ((*name).to_owned(), count.into())));
            writeln!(f, "{}", Value::Object(line))?;
            for query in &collection.queries {
                let line = json!({
                    "collection": collection.name,
                    "attributes": query.attributes,
                    "condition": query.condition.name(),
                    "order": query.order.name(),
                    "answers": query.answers.name(),
                    "limit": query.limit,
                    "count": query.count,
                });
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}

impl CollectionTrace {
    fn counts(&self) -> [u64; 6] {
        [self.puts, self.deletes, self.range_deletes, self.gets, self.scans, self.other_queries]
    }
}

impl FromStr for Trace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.len() > MAX_TEXT_BYTES {
            let subject = "the length in bytes of a trace";
            return Err(Error::limit_exceeded(subject, text.len() as u64, MAX_TEXT_BYTES as u64));
        }
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let Some((at, first)) = lines.next() else {
            return Err(Error::invalid_input("trace: it is empty; `Db::trace` makes one"));
        };
        check_version(first).map_err(|error| of_line(error, at))?;
        let mut trace = Self::default();
        for (at, line) in lines {
            trace.read_line(line).map_err(|error| of_line(error, at))?;
        }
        Ok(trace)
    }
}

fn of_line(error: Error, at: usize) -> Error {
    error.context(format_args!("trace, line {}", at + 1))
}

fn check_version(line: &str) -> Result<()> {
    let object = TraceLine::parse(line)?;
    let version = object.count(VERSION_FIELD).map_err(|error| {
        error.context(format_args!("the first line must be {{\"{VERSION_FIELD}\":{VERSION}}}"))
    })?;
    if version != VERSION {
        let what = format!("the trace has version {version}; this program reads version {VERSION}");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok(())
}

impl Trace {
    fn read_line(&mut self, line: &str) -> Result<()> {
        let object = TraceLine::parse(line)?;
        let name = object.text("collection")?;
        if object.has("attributes") {
            let query = object.query()?;
            let collection = self.collections.last_mut().filter(|last| last.name == name);
            let collection = collection.ok_or_else(|| {
                Error::invalid_input(format!("a query follows the line of its collection {name:?}"))
            })?;
            collection.queries.push(query);
            return Ok(());
        }
        if self.collection(name).is_some() {
            return Err(Error::invalid_input(format!("the collection {name:?} occurs twice")));
        }
        let mut counts = [0; 6];
        for (count, field) in counts.iter_mut().zip(COUNTERS) {
            *count = object.count(field)?;
        }
        let [puts, deletes, range_deletes, gets, scans, other_queries] = counts;
        let (name, queries) = (name.to_owned(), Vec::new());
        self.collections.push(CollectionTrace {
            name,
            puts,
            deletes,
            range_deletes,
            gets,
            scans,
            queries,
            other_queries,
        });
        Ok(())
    }
}

/// The fields of a line.
struct TraceLine(Map<String, Value>);

impl TraceLine {
    fn parse(line: &str) -> Result<Self> {
        match serde_json::from_str(line) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(Error::invalid_input("it is not a JSON object")),
            Err(error) => Err(Error::invalid_input(format!("it is not JSON: {error}"))),
        }
    }

    fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn field(&self, field: &str) -> Result<&Value> {
        self.0.get(field).ok_or_else(|| Error::invalid_input(format!("the field `{field}` is missing")))
    }

    fn count(&self, field: &str) -> Result<u64> {
        let count = self.field(field)?.as_u64();
        count
            .ok_or_else(|| Error::invalid_input(format!("the field `{field}` is not a number of operations")))
    }

    fn text(&self, field: &str) -> Result<&str> {
        let text = self.field(field)?.as_str();
        text.ok_or_else(|| Error::invalid_input(format!("the field `{field}` is not a string")))
    }

    /// The class that a field names.
    fn class<T>(&self, field: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let name = self.text(field)?;
        parse(name).ok_or_else(|| {
            Error::invalid_input(format!("the field `{field}` has the unknown value {name:?}"))
        })
    }

    fn query(&self) -> Result<TracedQuery> {
        let of_strings = || Error::invalid_input("the field `attributes` is not an array of strings");
        let attributes = self.field("attributes")?.as_array().ok_or_else(of_strings)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(of_strings);
        Ok(TracedQuery {
            attributes: attributes.iter().map(text).collect::<Result<_>>()?,
            condition: self.class("condition", TracedCondition::parse)?,
            order: self.class("order", TracedOrder::parse)?,
            answers: self.class("answers", TracedAnswers::parse)?,
            limit: if self.field("limit")?.is_null() { None } else { Some(self.count("limit")?) },
            count: self.count("count")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = r#"{"bolide_trace":1}
{"collection":"posts","puts":3,"deletes":1,"range_deletes":0,"gets":2,"scans":0,"other_queries":0}
{"collection":"posts","attributes":["user"],"condition":"equal","order":"newest","answers":"keys","limit":10,"count":7}
{"collection":"posts","attributes":[],"condition":"other","order":"value","answers":"records","limit":null,"count":1}
{"collection":"users","puts":0,"deletes":0,"range_deletes":0,"gets":9,"scans":0,"other_queries":2}
"#;

    #[test]
    fn the_text_is_read_as_it_was_written() {
        let trace: Trace = SOUND.parse().unwrap();
        assert_eq!(trace.collections.len(), 2);
        let posts = trace.collection("posts").unwrap();
        assert_eq!((posts.writes(), posts.reads(), posts.queries.len()), (4, 10, 2));
        assert_eq!(posts.queries[0].answers, TracedAnswers::Keys);
        assert_eq!(trace.to_string().parse::<Trace>().unwrap(), trace);
    }

    #[test]
    fn a_malformed_text_is_an_error_that_names_the_line() {
        let lines: Vec<&str> = SOUND.lines().collect();
        for (at, wrong, words) in [
            (0, r#"{"version":1}"#, "`bolide_trace` is missing"),
            (0, r#"{"bolide_trace":2}"#, "version 2"),
            (1, r#"{"collection":"posts","puts":-3}"#, "`puts` is not a number"),
            (1, r#"{"collection":7}"#, "`collection` is not a string"),
            (1, "[]", "not a JSON object"),
            (
                2,
                r#"{"collection":"posts","attributes":["user"],"condition":"equal","order":"newest""#,
                "not JSON",
            ),
            (2, r#"{"collection":"users","attributes":[]}"#, "`condition` is missing"),
            (3, &lines[3].replace(r#""value""#, r#""random""#), "\"random\""),
            (3, &lines[3].replace("posts", "users"), "follows the line of its collection"),
            (3, &lines[3].replace(":[]", ":[1]"), "array of strings"),
            (4, lines[1], "occurs twice"),
        ] {
            let mut lines = lines.clone();
            lines[at] = wrong;
            let error = lines.join("\n").parse::<Trace>().unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("trace, line {}", at + 1)), "{text}");
            assert!(text.contains(words), "{text} lacks {words}");
        }
        assert!(" \n".parse::<Trace>().unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn no_truncated_text_panics() {
        for end in 0..SOUND.len() {
            let _ = SOUND[..end].parse::<Trace>();
        }
    }
}
