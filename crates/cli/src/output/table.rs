//! Tables for people: as many columns as fit the terminal, long cells cut short.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::csv_form::{columns_of, line_cells};
use super::{Cells, Fields, Line, cell_of, object_cells};

/// Lines that share one table; long answers come as several.
const CHUNK_LINES: usize = 500;
/// Longest cell, in characters.
const MAX_CELL: usize = 60;
/// Narrowest that a column is cut down to, in characters.
const MIN_CUT_CELL: usize = 16;
/// One rule under the header, and nothing else that a person would have to look past.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// Blank space that a column costs besides its cells.
const COLUMN_PADDING: usize = 2;

/// Collects lines and writes them as tables of at most [`CHUNK_LINES`].
pub(super) struct TableForm {
    waiting: Vec<Cells>,
    width: usize,
    wrote: bool,
    fields_left_out: Vec<String>,
}

impl TableForm {
    /// A table of at most `width` characters.
    pub(super) fn new(width: usize) -> Self {
        Self { waiting: Vec::new(), width, wrote: false, fields_left_out: Vec::new() }
    }

    /// Takes one line.
    pub(super) fn push(&mut self, out: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
        self.waiting.push(line_cells(line));
        if self.waiting.len() >= CHUNK_LINES { self.write_waiting(out) } else { Ok(()) }
    }

    /// Writes what waits; answers with a note where columns had no room.
    pub(super) fn finish(&mut self, out: &mut impl Write) -> io::Result<Option<String>> {
        if !self.waiting.is_empty() {
            self.write_waiting(out)?;
        } else if !self.wrote {
            writeln!(out, "(nothing)")?;
        }
        let hidden = &self.fields_left_out;
        Ok((!hidden.is_empty()).then(|| format!("no room for {}", hidden.join(", "))))
    }

    fn write_waiting(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        let columns = columns_of(&rows);
        let shown = fitting(&columns, &rows, self.width);
        for column in &columns {
            if !shown.iter().any(|(name, _)| *name == column) && !self.fields_left_out.contains(column) {
                self.fields_left_out.push(column.clone());
            }
        }
        let cells = |row: &Cells| shown.iter().map(|(column, width)| cell_at(row, column, *width)).collect();
        let names: Vec<&String> = shown.iter().map(|(column, _)| *column).collect();
        let table = table_of(&names, rows.iter().map(cells));
        self.wrote = true;
        writeln!(out, "{table}")
    }
}

/// The columns that fit `width`, each with the width of its cells: always the first two, then in order
/// every one that still has room. The first that has not is cut down to what is left, if that is enough
/// to read something.
fn fitting<'c>(columns: &'c [String], rows: &[Cells], width: usize) -> Vec<(&'c String, usize)> {
    let mut room = width;
    let mut shown = Vec::new();
    for column in columns {
        let cells = rows.iter().flatten().filter(|(name, _)| name == column);
        let longest = cells.map(|(_, cell)| cell.chars().count().min(MAX_CELL)).max().unwrap_or(0);
        let name = column.chars().count();
        let left = room.saturating_sub(COLUMN_PADDING);
        let cell_width = if longest.max(name) <= left || shown.len() < 2 {
            longest.max(name)
        } else if left >= MIN_CUT_CELL.max(name) {
            left
        } else {
            continue;
        };
        room = room.saturating_sub(cell_width + COLUMN_PADDING);
        shown.push((column, cell_width));
    }
    shown
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
            // A blank stands between columns already.
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

/// The cell of a column, cut to `width`; empty where the row has none.
fn cell_at(row: &Cells, column: &str, width: usize) -> String {
    row.iter().find(|(name, _)| name == column).map_or_else(String::new, |(_, cell)| shorten(cell, width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(width: usize, records: &[&str]) -> (String, Option<String>) {
        let (mut form, mut out) = (TableForm::new(width), Vec::new());
        for (number, record) in records.iter().enumerate() {
            let line = Line { key: number.into(), sequence: Some(1), record: Some(record) };
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
    fn no_answer_says_so() {
        assert_eq!(written(80, &[]).0, "(nothing)\n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert!(!written(80, &[r#"{"a":"\u001b[31mred\u0007"}"#]).0.contains(['\u{1b}', '\u{7}']));
    }
}
