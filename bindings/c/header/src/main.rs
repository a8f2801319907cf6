//! Writes `include/bolide.h` from the sources of the library: `cargo run -p bolide-c-header`. The tests compare it with them.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The sources with exported items, in the order of the header.
const SOURCES: &[&str] = &[
    "version",
    "code",
    "error",
    "output",
    "input",
    "range",
    "value",
    "key",
    "options",
    "session",
    "db",
    "collection",
    "batch",
    "snapshot",
    "transaction",
    "cursor",
    "query",
    "answers",
    "aggregate",
    "index",
    "arrow_schema",
    "arrow_out",
    "arrow_in",
];

/// The folder of the library.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn header_path() -> PathBuf {
    root().join("include/bolide.h")
}

fn main() -> io::Result<()> {
    fs::write(header_path(), generated())
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("the configuration");
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = SOURCES
        .iter()
        .fold(builder, |builder, source| builder.with_src(root().join("src").join(format!("{source}.rs"))));
    let mut header = Vec::new();
    builder.generate().expect("the sources").write(&mut header);
    let header = String::from_utf8(header).expect("UTF-8");
    // One form of empty lines.
    let lines: Vec<&str> = header.lines().map(str::trim_end).collect();
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        if !(line.is_empty() && at > 0 && lines[at - 1].is_empty()) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_header_is_that_of_the_sources() {
        let generated = generated();
        let committed = fs::read_to_string(header_path()).unwrap_or_default();
        let difference = committed.lines().zip(generated.lines()).position(|(old, new)| old != new);
        assert!(
            committed == generated,
            "include/bolide.h is stale, first at line {}: cargo run -p bolide-c-header",
            difference.map_or(0, |line| line + 1)
        );
    }

    /// Names of functions that begin after `before` in `text`.
    fn names_after(text: &str, before: &str) -> BTreeSet<String> {
        text.split(before)
            .skip(1)
            .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
            .collect()
    }

    #[test]
    fn every_exported_function_is_in_the_header_with_its_meaning() {
        let mut exported = BTreeSet::new();
        for entry in fs::read_dir(root().join("src")).expect("the sources") {
            let text = fs::read_to_string(entry.expect("a source").path()).expect("a source");
            exported.extend(names_after(&text, "extern \"C\" fn bolide_"));
        }
        let header = generated();
        assert!(exported.len() > 90, "{} functions", exported.len());
        let lines: Vec<&str> = header.lines().collect();
        for name in exported {
            let call = format!("bolide_{name}(");
            let line = lines.iter().position(|line| line.contains(&call) && !line.starts_with(" *"));
            let line = line.unwrap_or_else(|| panic!("bolide_{name} is not in the header"));
            assert_eq!(lines[line - 1].trim(), "*/", "bolide_{name} has no documentation");
        }
    }
}
