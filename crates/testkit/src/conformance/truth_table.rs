//! The truth table of filters, as `docs/QUERIES.md` documents it: every cell is checked in every kind and layout, for a
//! scalar attribute and for one with an index.
//!
//! The table of the document is read, so document and library cannot differ.

use bolide::{Collection, Filter, Query};
use serde_json::{Value, json};

use crate::failure::StepFailure;
use crate::history::Change;
use crate::rule::Rule;

use super::cases::{COLLECTION, Case, CaseStep};

const DOCUMENT: &str = include_str!("../../../../docs/QUERIES.md");
/// The header of the table, up to its conditions.
const HEADER: &str = "| content of `a` |";
/// The name of the attribute in the document.
const ATTRIBUTE: &str = "a";
/// The attributes of the case, which the suite has indexes on.
const PATHS: [&str; 2] = ["v", "tags[*]"];

/// The conditions and the rows of the table.
#[derive(Debug)]
pub(super) struct TruthTable {
    /// Conditions on [`ATTRIBUTE`].
    conditions: Vec<String>,
    /// The content, and for each condition whether it holds.
    rows: Vec<(Option<Value>, Vec<bool>)>,
}

impl TruthTable {
    /// The table of the document.
    ///
    /// # Errors
    /// Fails if the document has no such table, or one that cannot be read.
    pub(super) fn read() -> Result<Self, String> {
        let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with(HEADER));
        let header = lines.next().ok_or("the document has no truth table")?;
        let conditions = cells(header).skip(1).map(|cell| cell.trim_matches('`').to_owned()).collect();
        let mut table = Self { conditions, rows: Vec::new() };
        for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
            let content = cells(line).next().unwrap_or_default();
            let signs: Vec<&str> = cells(line).skip(1).collect();
            if signs.len() != table.conditions.len() || signs.iter().any(|sign| !["+", "-"].contains(sign)) {
                return Err(format!("a row of the truth table is malformed: {line}"));
            }
            let truths: Vec<bool> = signs.iter().map(|sign| *sign == "+").collect();
            for content in contents_of(content) {
                table.rows.push((content.map_err(|error| format!("{line}: {error}"))?, truths.clone()));
            }
        }
        if table.rows.len() < 8 || table.conditions.len() < 8 {
            return Err(format!("the truth table is incomplete: {table:?}"));
        }
        Ok(table)
    }

    /// A case that puts a record for each row, some of them twice.
    pub(super) fn case(&self) -> Case {
        let put = |(number, (content, _)): (usize, &(Option<Value>, Vec<bool>))| {
            let mut record = json!({"w": 1, "number": number});
            if let Some(content) = content {
                record["v"] = content.clone();
                // `[*]` selects the elements of an array only.
                record["tags"] = if content.is_array() { content.clone() } else { json!([content]) };
            }
            let (key, record) = (key_of(number), record.to_string().into_bytes());
            Change::Put { collection: COLLECTION, key, record }
        };
        let rows = self.rows.iter().enumerate();
        // First every record has the content of the next row.
        let others = self.rows.iter().cycle().skip(1).take(self.rows.len()).enumerate();
        let steps = vec![
            CaseStep::Write(others.map(put).collect()),
            CaseStep::Write(rows.clone().step_by(2).map(put).collect()),
            CaseStep::Write(rows.skip(1).step_by(2).map(put).collect()),
        ];
        Case { name: "the truth table of filters", steps }
    }

    /// Checks every cell against `collection`, which has the records of the case. Returns the number of queries.
    pub(super) fn check(&self, collection: &Collection) -> Result<u64, StepFailure> {
        let mut count = 0;
        for (column, condition) in self.conditions.iter().enumerate() {
            let of_path = |path: &&str| {
                let condition = on(condition, path);
                [
                    condition.clone(),
                    format!("w = 1 and {condition}"),
                    format!("{condition} or {path} = \"nowhere\""),
                    format!("not not ({condition})"),
                    format!("not (w = 2 or not ({condition}))"),
                ]
            };
            for text in PATHS.iter().flat_map(of_path) {
                let filter = Filter::parse(&text)?;
                let answers = collection.find(&Query::new().filter(filter).keys_only())?;
                let mut found: Vec<Vec<u8>> = answers.into_iter().map(|answer| answer.key).collect();
                found.sort_unstable();
                for (number, (content, truths)) in self.rows.iter().enumerate() {
                    let is_found = found.binary_search(&key_of(number)).is_ok();
                    if is_found != truths[column] {
                        let rule = if is_found { Rule::Exact } else { Rule::Complete };
                        let content = content.as_ref().map_or("nothing".to_owned(), ToString::to_string);
                        let what =
                            format!("{rule} `{text}` of {content} is {is_found}, against the truth table");
                        return Err(StepFailure::Wrong(what));
                    }
                }
                count += 1;
            }
        }
        Ok(count)
    }
}

fn key_of(number: usize) -> Vec<u8> {
    format!("row{number:02}").into_bytes()
}

/// The cells of a line of a table.
fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.trim().trim_matches('|').split('|').map(str::trim)
}

/// The condition on the attribute at `path`.
fn on(condition: &str, path: &str) -> String {
    let words = condition.split(' ').map(|word| if word == ATTRIBUTE { path } else { word });
    words.collect::<Vec<&str>>().join(" ")
}

/// The contents that a cell lists; `None` for nothing.
fn contents_of(cell: &str) -> Vec<Result<Option<Value>, serde_json::Error>> {
    let code = cell.split('`').skip(1).step_by(2);
    let values = code.map(|text| serde_json::from_str(text).map(Some));
    cell.starts_with("nothing").then_some(Ok(None)).into_iter().chain(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_document_is_read() {
        let table = TruthTable::read().unwrap();
        assert_eq!(table.conditions[0], "a = 1");
        assert!(table.conditions.contains(&"a is absent".to_owned()), "{table:?}");
        assert_eq!(on("not a >= 1", "tags[*]"), "not tags[*] >= 1");
        assert_eq!(table.rows[0], (None, vec![false, true, false, true, false, true, false, true]));
        let one = (Some(json!(1)), vec![true, false, true, false, false, true, true, false]);
        assert!(table.rows.contains(&one), "{table:?}");
        assert_eq!(contents_of("nothing, `{}`, `[]`").len(), 3);
    }
}
