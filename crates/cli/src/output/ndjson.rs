//! One JSON object a line: `{"key":…,"sequence":…,"record":{…}}`. The record is copied as it is.

use std::io::{self, Write};

use super::{Fields, OutputLine};

/// Writes one line.
pub(super) fn write_line(out: &mut impl Write, line: &OutputLine<'_>) -> io::Result<()> {
    write!(out, "{{\"key\":{}", line.key)?;
    if let Some(sequence) = line.sequence {
        write!(out, ",\"sequence\":{sequence}")?;
    }
    if let Some(record) = line.record {
        out.write_all(b",\"record\":")?;
        // A record may contain line breaks between its fields; JSON has none elsewhere.
        if record.contains(['\n', '\r']) {
            for part in record.split(['\n', '\r']) {
                out.write_all(part.as_bytes())?;
            }
        } else {
            out.write_all(record.as_bytes())?;
        }
    }
    out.write_all(b"}\n")
}

/// Writes one object with its fields in order.
pub(super) fn write_object(out: &mut impl Write, fields: &Fields) -> io::Result<()> {
    for (position, (name, value)) in fields.iter().enumerate() {
        let before = if position == 0 { '{' } else { ',' };
        write!(out, "{before}{}:{value}", serde_json::Value::from(name.as_str()))?;
    }
    out.write_all(if fields.is_empty() { b"{}\n" } else { b"}\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_line() {
        let mut out = Vec::new();
        let line = OutputLine { key: 7.into(), sequence: Some(9), record: Some("{\n  \"a\": 1\r\n}") };
        write_line(&mut out, &line).unwrap();
        write_line(&mut out, &OutputLine { key: "x".into(), ..OutputLine::default() }).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"key\":7,\"sequence\":9,\"record\":{  \"a\": 1}}\n{\"key\":\"x\"}\n");
    }
}
