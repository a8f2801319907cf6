//! Tables for terminals: as many columns as fit, long cells truncated.

use std::borrow::Cow;
use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use unicode_width::UnicodeWidthStr;

use super::csv_form::{columns_of, line_cells};
use super::{Cells, Fields, OutputLine, cell_of, object_cells};

/// The number of lines in one table; long answers are split.
const CHUNK_LINES: usize = 500;
/// The maximum width of a cell, in columns of the terminal.
const MAX_CELL: usize = 60;
/// The minimum width of a truncated column, in columns of the terminal.
const MIN_TRUNCATED_CELL: usize = 16;
/// The width that the first column leaves to the second, in columns of the terminal.
const MIN_SECOND_CELL: usize = 6;
/// One rule under the header, and no other lines.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// The maximum number of characters of a truncated text for each column of the terminal: combining ones take none.
const MAX_CHARACTERS_PER_COLUMN: usize = 16;
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
        Ok((!hidden.is_empty()).then(|| format!("no room for {}", printed_names(hidden.iter()).join(", "))))
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
        let table = table_of(&fitted, rows.iter().map(cells));
        self.wrote = true;
        writeln!(out, "{table}")
    }
}

/// Names of fields for a note.
fn printed_names<'n>(names: impl Iterator<Item = &'n String>) -> Vec<String> {
    names.map(|name| shorten(name, MAX_CELL)).collect()
}

/// The columns that fit `width`, each with the width of its cells and its name: always the first two, truncated if they
/// must be, then in order every one that still fits. The first that does not fit is truncated to the remaining width, if
/// that is at least [`MIN_TRUNCATED_CELL`].
fn fitting<'c>(columns: &'c [String], rows: &[Cells], width: usize) -> Vec<(&'c String, usize)> {
    let mut room = width;
    let mut fitting = Vec::new();
    for (position, column) in columns.iter().enumerate() {
        let cells = rows.iter().flatten().filter(|(name, _)| name == column);
        let longest = cells.map(|(_, cell)| width_of(cell)).max().unwrap_or(0);
        let name = width_of(column).min(MAX_CELL);
        let wanted = longest.min(MAX_CELL).max(name);
        // Of two columns the first leaves some width to the second.
        let reserved = if position == 0 && columns.len() > 1 { MIN_SECOND_CELL + COLUMN_PADDING } else { 0 };
        let left = room.saturating_sub(COLUMN_PADDING + reserved);
        let cell_width = if wanted <= left || position < 2 {
            wanted.min(left)
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

/// The text with a space in place of each control character.
fn without_controls(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        Cow::Owned(text.replace(char::is_control, " "))
    } else {
        Cow::Borrowed(text)
    }
}

/// Columns of the terminal: wide characters take two, combining ones none, a control character one.
fn width_of(text: &str) -> usize {
    without_controls(text).width()
}

/// Adds `next` to a line of this width without control characters; returns the new width. A character may change the
/// width of the one before, so that the sum over characters is not the width.
fn push_measured(line: &mut String, width: usize, next: char) -> usize {
    line.push(next);
    if next.is_ascii() { width + 1 } else { line.width() }
}

/// One line of at most `width` columns.
fn shorten(cell: &str, width: usize) -> String {
    let cell = without_controls(cell);
    if cell.width() <= width {
        return cell.into_owned();
    }
    let (mut short, mut used) = (String::new(), 0);
    for character in cell.chars().take(width * MAX_CHARACTERS_PER_COLUMN) {
        used = push_measured(&mut short, used, character);
        if used >= width {
            short.pop();
            break;
        }
    }
    short.push('…');
    short
}

/// The table of these columns, each with its width.
fn table_of(columns: &[(&String, usize)], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|(column, width)| shorten(column, *width)));
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
/// Lines are at most `width` columns wide. Returns the names of the columns that did not fit, for a note.
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
    let cells = |row: &Cells| fitted.iter().map(|(column, width)| cell_at(row, column, *width)).collect();
    writeln!(out, "{}", table_of(&fitted, rows.iter().map(cells)))?;
    let omitted = columns.iter().filter(|column| !fitted.iter().any(|(name, _)| name == column));
    Ok(printed_names(omitted))
}

/// The fields of one object below each other. A value that is wider than the terminal continues on the next line, below its
/// beginning.
fn write_fields(out: &mut impl Write, fields: &Fields, width: usize) -> io::Result<()> {
    let longest = fields.iter().map(|(name, _)| width_of(name)).max().unwrap_or(0);
    let longest = longest.min((width / 2).saturating_sub(COLUMN_PADDING));
    let room = width.saturating_sub(longest + COLUMN_PADDING);
    for (name, value) in fields {
        let name = shorten(name, longest);
        let mut label = format!("{name}{}", " ".repeat(longest.saturating_sub(name.width())));
        for line in wrapped_lines(&cell_of(value), room) {
            writeln!(out, "{label}  {line}")?;
            label = " ".repeat(longest);
        }
    }
    Ok(())
}

/// `text` in lines of at most `width` columns, at least one.
fn wrapped_lines(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for character in without_controls(text).chars() {
        let is_long = line.len() >= width.max(1) * MAX_CHARACTERS_PER_COLUMN;
        used = push_measured(&mut line, used, character);
        if (used > width || is_long) && line.len() > character.len_utf8() {
            line.pop();
            lines.push(std::mem::take(&mut line));
            used = push_measured(&mut line, 0, character);
        }
    }
    lines.push(line);
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
    #[test]
    fn widths_are_those_of_whole_texts() {
        assert_eq!(shorten("❤️❤️❤️", 3), "❤️…");
        assert_eq!(shorten("a\r\nb", 4), "a  b");
        assert_eq!(shorten("a\r\nb", 3), "a …");
        assert_eq!(wrapped_lines("❤️❤️❤️", 4), ["❤️❤️", "❤️"]);
        assert_eq!(wrapped_lines("ab\ncd", 3), ["ab ", "cd"]);
        assert_eq!(wrapped_lines("", 3), [""]);
        assert!(shorten(&"e\u{301}".repeat(100_000), 20).width() <= 20);
        assert!(wrapped_lines(&"\u{301}".repeat(100_000), 20).iter().all(|line| line.len() < 1_000));
    }

    #[test]
    fn names_of_fields_are_printed_without_controls_and_bounded() {
        let name = format!("a\u{1b}[31m\n{}", "name ".repeat(100));
        let record =
            serde_json::json!({ name.clone(): 1, "b": 2, format!("c{name}"): 3, "\u{7}d": "x".repeat(90) });
        for width in [20, 21, 40, 80, 400] {
            let (text, note) = written(width, &[&record.to_string(), &record.to_string()]);
            let fields: Fields = vec![(name.clone(), 1.into()), (format!("x{name}"), 2.into())];
            let (mut several, mut one) = (Vec::new(), Vec::new());
            let omitted = write_objects(&mut several, &[fields.clone(), fields.clone()], width).unwrap();
            write_objects(&mut one, &[fields], width).unwrap();
            let all =
                format!("{text}{}{}", String::from_utf8(several).unwrap(), String::from_utf8(one).unwrap());
            assert!(all.lines().all(|line| line.width() <= width), "{width}\n{all}");
            let notes = format!("{}{}", note.unwrap_or_default(), omitted.concat());
            assert!(
                !format!("{}{notes}", all.replace('\n', "")).contains(char::is_control),
                "{width} {notes:?}"
            );
        }
    }

    #[test]
    fn long_keys_do_not_exceed_the_terminal() {
        let mut out = Vec::new();
        let mut form = TableForm::new(20);
        let line = OutputLine { key: "k".repeat(50).into(), sequence: Some(1 << 50), record: None };
        form.push(&mut out, &line).unwrap();
        form.finish(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.width() <= 20) && text.contains("kkk…"), "{text}");
    }
}
