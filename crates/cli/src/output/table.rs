//! Tables for terminals: as many columns as fit, long cells truncated.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::csv_form::{columns_of, line_cells};
use super::{Cells, Fields, OutputLine, cell_of, object_cells};

/// The number of lines in one table; long answers are split.
const CHUNK_LINES: usize = 500;
/// The maximum width of a cell, in characters.
const MAX_CELL: usize = 60;
/// The minimum width of a truncated column, in characters.
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
    /// A table of at most `width` characters.
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
        let longest = cells.map(|(_, cell)| cell.chars().count().min(MAX_CELL)).max().unwrap_or(0);
        let name = column.chars().count();
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

/// One line of at most `width` characters.
fn shorten(cell: &str, width: usize) -> String {
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    if cell.chars().count() <= width {
        return cell.chars().map(plain).collect();
    }
    let mut short: String = cell.chars().take(width.saturating_sub(1)).map(plain).collect();
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
pub(super) fn write_objects(out: &mut impl Write, objects: &[Fields]) -> io::Result<()> {
    match objects {
        [] => return writeln!(out, "(nothing)"),
        [fields] => return write_fields(out, fields),
        _ => {}
    }
    let rows: Vec<Cells> = objects.iter().map(object_cells).collect();
    let columns = columns_of(&rows);
    let columns: Vec<&String> = columns.iter().collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| cell_at(row, column, MAX_CELL)).collect());
    writeln!(out, "{}", table_of(&columns, cells))
}

fn write_fields(out: &mut impl Write, fields: &Fields) -> io::Result<()> {
    let longest = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in fields {
        writeln!(out, "{name:longest$}  {}", cell_of(value))?;
    }
    Ok(())
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
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
            assert_eq!(note.is_some(), width < 120, "{width}: {note:?}\n{text}");
        }
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
