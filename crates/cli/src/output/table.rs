//! Tables for terminals: as many columns as fit, long cells truncated.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::csv_form::{columns_of, line_cells};
use super::{Cells, Fields, OutputLine, cell_of, object_cells};

/// The number of lines in one table; long answers are split.
const CHUNK_LINES: usize = 500;
/// The maximum width of a cell, in columns of the terminal.
const MAX_CELL: usize = 60;
/// The minimum width of a truncated column, in columns of the terminal.
const MIN_TRUNCATED_CELL: usize = 16;
/// One rule under the header, and no other lines.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// Blank characters of a column besides its cells.
const COLUMN_PADDING: usize = 2;

/// Collects lines and writes them as tables of at most [`CHUNK_LINES`].
pub(super) struct TableForm {
    waiting: Vec<Cells>,
    width: usize,
    wrote: bool,
    omitted_fields: Vec<String>,
}

impl TableForm {
    /// A table of at most `width` columns of the terminal.
    pub(super) fn new(width: usize) -> Self {
        Self { waiting: Vec::new(), width, wrote: false, omitted_fields: Vec::new() }
    }

    /// Adds one line.
    pub(super) fn push(&mut self, out: &mut impl Write, line: &OutputLine<'_>) -> io::Result<()> {
        self.waiting.push(line_cells(line));
        if self.waiting.len() >= CHUNK_LINES { self.write_waiting(out) } else { Ok(()) }
    }

    /// Writes pending lines; returns a note if columns did not fit.
    pub(super) fn finish(&mut self, out: &mut impl Write) -> io::Result<Option<String>> {
        if !self.waiting.is_empty() {
            self.write_waiting(out)?;
        } else if !self.wrote {
            writeln!(out, "(nothing)")?;
        }
        let hidden = &self.omitted_fields;
        Ok((!hidden.is_empty()).then(|| format!("no room for {}", hidden.join(", "))))
    }

    fn write_waiting(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        let columns = columns_of(&rows);
        let fitted = fitting(&columns, &rows, self.width);
        for column in &columns {
            if !fitted.iter().any(|(name, _)| *name == column) && !self.omitted_fields.contains(column) {
                self.omitted_fields.push(column.clone());
            }
        }
        let cells = |row: &Cells| fitted.iter().map(|(column, width)| cell_at(row, column, *width)).collect();
        let names: Vec<&String> = fitted.iter().map(|(column, _)| *column).collect();
        let table = table_of(&names, rows.iter().map(cells));
        self.wrote = true;
        writeln!(out, "{table}")
    }
}

/// The columns that fit `width`, each with the width of its cells: always the first two, then in order every one that
/// still fits. The first that does not fit is truncated to the remaining width, if that is at least
/// [`MIN_TRUNCATED_CELL`].
fn fitting<'c>(columns: &'c [String], rows: &[Cells], width: usize) -> Vec<(&'c String, usize)> {
    let mut room = width;
    let mut fitting = Vec::new();
    for column in columns {
        let cells = rows.iter().flatten().filter(|(name, _)| name == column);
        let longest = cells.map(|(_, cell)| width_of(cell).min(MAX_CELL)).max().unwrap_or(0);
        let name = width_of(column);
        let left = room.saturating_sub(COLUMN_PADDING);
        let cell_width = if longest.max(name) <= left || fitting.len() < 2 {
            longest.max(name)
        } else if left >= MIN_TRUNCATED_CELL.max(name) {
            left
        } else {
            continue;
        };
        room = room.saturating_sub(cell_width + COLUMN_PADDING);
        fitting.push((column, cell_width));
    }
    fitting
}

/// A control character is printed as a space.
fn plain(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// Columns of the terminal: wide characters take two, combining ones none.
fn width_of(text: &str) -> usize {
    let controls = text.chars().filter(|character| character.is_control());
    let as_spaces: usize = controls.map(|control| 1 - control.to_string().width().min(1)).sum();
    text.width() + as_spaces
}

/// One line of at most `width` columns.
fn shorten(cell: &str, width: usize) -> String {
    if width_of(cell) <= width {
        return cell.chars().map(plain).collect();
    }
    let mut short = String::new();
    let mut left = width.saturating_sub(1);
    for character in cell.chars().map(plain) {
        let Some(rest) = left.checked_sub(character.width().unwrap_or(0)) else { break };
        left = rest;
        short.push(character);
    }
    short.push('…');
    short
}

fn table_of(columns: &[&String], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| column.as_str()));
    let mut numeric = vec![true; columns.len()];
    for row in rows {
        for (numeric, cell) in numeric.iter_mut().zip(&row) {
            *numeric &= cell.is_empty() || cell.parse::<f64>().is_ok();
        }
        table.add_row(row);
    }
    for (position, numeric) in numeric.into_iter().enumerate() {
        if let Some(column) = table.column_mut(position) {
            // The padding of the next column separates them already.
            column.set_padding((0, COLUMN_PADDING as u16 - 1));
            if numeric {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

/// Objects as the rows of one table, or the fields of one object below each other.
/// Lines are at most `width` columns wide. Returns the columns that did not fit.
pub(super) fn write_objects(
    out: &mut impl Write,
    objects: &[Fields],
    width: usize,
) -> io::Result<Vec<String>> {
    match objects {
        [] => return writeln!(out, "(nothing)").map(|()| Vec::new()),
        [fields] => return write_fields(out, fields, width).map(|()| Vec::new()),
        _ => {}
    }
    let rows: Vec<Cells> = objects.iter().map(object_cells).collect();
    let columns = columns_of(&rows);
    let fitted = fitting(&columns, &rows, width);
    let names: Vec<&String> = fitted.iter().map(|(column, _)| *column).collect();
    let cells = |row: &Cells| fitted.iter().map(|(column, width)| cell_at(row, column, *width)).collect();
    writeln!(out, "{}", table_of(&names, rows.iter().map(cells)))?;
    Ok(columns.iter().filter(|column| !names.contains(column)).cloned().collect())
}

/// The fields of one object below each other. A value that is wider than the terminal continues on the next line, below its
/// beginning.
fn write_fields(out: &mut impl Write, fields: &Fields, width: usize) -> io::Result<()> {
    let longest = fields.iter().map(|(name, _)| width_of(name)).max().unwrap_or(0);
    let room = width.saturating_sub(longest + COLUMN_PADDING).max(MIN_TRUNCATED_CELL);
    for (name, value) in fields {
        let mut label = format!("{name}{}", " ".repeat(longest - width_of(name)));
        for line in broken(&cell_of(value), room) {
            writeln!(out, "{label}  {line}")?;
            label = " ".repeat(longest);
        }
    }
    Ok(())
}

/// `text` in lines of at most `width` columns, at least one.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut left = width;
    for character in text.chars().map(plain) {
        let columns = character.width().unwrap_or(0);
        if columns > left {
            lines.push(String::new());
            left = width;
        }
        left = left.saturating_sub(columns);
        if let Some(line) = lines.last_mut() {
            line.push(character);
        }
    }
    lines
}

/// The cell of a column, truncated to `width`; empty if the row has none.
fn cell_at(row: &Cells, column: &str, width: usize) -> String {
    row.iter().find(|(name, _)| name == column).map_or_else(String::new, |(_, cell)| shorten(cell, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(width: usize, records: &[&str]) -> (String, Option<String>) {
        let (mut form, mut out) = (TableForm::new(width), Vec::new());
        for (number, record) in records.iter().enumerate() {
            let line = OutputLine { key: number.into(), sequence: Some(1), record: Some(record) };
            form.push(&mut out, &line).unwrap();
        }
        let note = form.finish(&mut out).unwrap();
        (String::from_utf8(out).unwrap(), note)
    }

    #[test]
    fn lines_stay_within_the_terminal() {
        let long = format!(r#"{{"a":"{}","b":"short","c":12}}"#, "wide ".repeat(100));
        for width in [40, 80, 120] {
            let (text, note) = written(width, &[&long, r#"{"a":"x\ny"}"#]);
            assert!(text.lines().all(|line| line.width() <= width), "{width}\n{text}");
            assert_eq!(note.is_some(), width < 120, "{width}: {note:?}\n{text}");
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let wide = format!(r#"{{"名前":"{}","b":"e\u0301\u0301"}}"#, "東京都".repeat(40));
        for width in [40, 41, 80, 120] {
            let (text, _) = written(width, &[&wide, r#"{"名前":"東京","b":"x"}"#]);
            assert!(text.lines().all(|line| line.width() <= width), "{width}\n{text}");
            // The columns stand below each other.
            let ends = |mark: &str| {
                text.lines().find(|line| line.contains(mark)).map(|line| line.trim_end().width())
            };
            assert!(ends("…").is_some_and(|end| end + 3 >= width.min(MAX_CELL)), "{width}\n{text}");
        }
        assert_eq!(shorten("東京都", 5), "東京…");
        assert_eq!(shorten("東京都", 4), "東…");
        assert_eq!(shorten("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
    }

    #[test]
    fn objects_stay_within_the_terminal() {
        let fields = |text: &str| -> Fields {
            (0..12).map(|number| (format!("field{number}"), text.into())).collect()
        };
        let mut out = Vec::new();
        let hidden = write_objects(&mut out, &[fields("some text"), fields("東京")], 60).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.lines().all(|line| line.width() <= 60) && hidden.contains(&"field11".to_owned()),
            "{text}"
        );
        let mut out = Vec::new();
        assert!(write_objects(&mut out, &[fields(&"東京 ".repeat(30))], 50).unwrap().is_empty());
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.width() <= 50), "{text}");
        assert_eq!(text.matches('東').count(), 12 * 30, "{text}");
    }

    #[test]
    fn an_empty_answer_is_noted() {
        assert_eq!(written(80, &[]).0, "(nothing)\n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert!(!written(80, &[r#"{"a":"\u001b[31mred\u0007"}"#]).0.contains(['\u{1b}', '\u{7}']));
    }
}
