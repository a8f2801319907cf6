//! CSV: `key`, `sequence`, then one column for each top-level field of the first records.

use std::io::{self, Write};

use super::{Cells, Fields, OutputLine, cell_of, cells_of, object_cells};

/// The number of lines that determine the header.
const HEADER_LINES: usize = 1_000;

/// Collects the first lines for the header, then streams.
#[derive(Default)]
pub(super) struct CsvForm {
    waiting: Vec<Cells>,
    columns: Option<Vec<String>>,
    omitted_cells: u64,
}

impl CsvForm {
    /// Adds one line.
    pub(super) fn push(&mut self, out: &mut impl Write, line: &OutputLine<'_>) -> io::Result<()> {
        let cells = line_cells(line);
        if let Some(columns) = &self.columns {
            self.omitted_cells += write_row(out, columns, &cells)?;
            return Ok(());
        }
        self.waiting.push(cells);
        if self.waiting.len() >= HEADER_LINES { self.write_waiting(out) } else { Ok(()) }
    }

    /// Writes pending lines; returns a note if cells had no column.
    pub(super) fn finish(&mut self, out: &mut impl Write) -> io::Result<Option<String>> {
        if self.columns.is_none() {
            self.write_waiting(out)?;
        }
        Ok((self.omitted_cells > 0).then(|| {
            format!("{} values are omitted: their fields are not in the header", self.omitted_cells)
        }))
    }

    fn write_waiting(&mut self, out: &mut impl Write) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let columns = columns_of(&waiting);
        if !columns.is_empty() {
            write_cells(out, columns.iter().map(String::as_str))?;
        }
        for cells in &waiting {
            write_row(out, &columns, cells)?;
        }
        self.columns = Some(columns);
        Ok(())
    }
}

/// The cells of a line: the fields of its record under their names, `key` and `sequence` before them.
pub(super) fn line_cells(line: &OutputLine<'_>) -> Cells {
    let mut cells = vec![("key".to_owned(), cell_of(&line.key))];
    if let Some(sequence) = line.sequence {
        cells.push(("sequence".to_owned(), sequence.to_string()));
    }
    let own = cells.len();
    for (name, cell) in line.record.map(cells_of).unwrap_or_default() {
        let is_used = cells[..own].iter().any(|(column, _)| *column == name);
        cells.push((if is_used { format!("record.{name}") } else { name }, cell));
    }
    cells
}

/// Every name once, in the order of first appearance.
pub(super) fn columns_of(rows: &[Cells]) -> Vec<String> {
    let mut columns: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flatten() {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    columns
}

/// Writes the row and counts the cells that have no column.
fn write_row(out: &mut impl Write, columns: &[String], cells: &[(String, String)]) -> io::Result<u64> {
    let cell = |column: &String| cells.iter().find(|(name, _)| name == column).map_or("", |(_, cell)| cell);
    write_cells(out, columns.iter().map(cell))?;
    Ok(cells.iter().filter(|(name, _)| !columns.contains(name)).count() as u64)
}

fn write_cells<'a>(out: &mut impl Write, cells: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let mut writer = csv::WriterBuilder::new().buffer_capacity(4 << 10).from_writer(out);
    writer.write_record(cells).map_err(io::Error::from)?;
    writer.flush()
}

/// Writes objects under the union of their fields.
pub(super) fn write_objects(out: &mut impl Write, objects: &[Fields]) -> io::Result<()> {
    let rows: Vec<Cells> = objects.iter().map(object_cells).collect();
    let columns = columns_of(&rows);
    if !columns.is_empty() {
        write_cells(out, columns.iter().map(String::as_str))?;
    }
    for row in &rows {
        write_row(out, &columns, row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_the_union_of_the_first_records() {
        let (mut form, mut out) = (CsvForm::default(), Vec::new());
        for record in [r#"{"a":"x,y","key":1}"#, r#"{"b":[1,"z"],"a":null}"#] {
            let line = OutputLine { key: 5.into(), sequence: Some(2), record: Some(record) };
            form.push(&mut out, &line).unwrap();
        }
        assert_eq!(form.finish(&mut out).unwrap(), None);
        let expected = "key,sequence,a,record.key,b\n5,2,\"x,y\",1,\n5,2,,,\"[1,\"\"z\"\"]\"\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn fields_missing_in_the_header_are_counted() {
        let (mut form, mut out) = (CsvForm::default(), Vec::new());
        for number in 0..=HEADER_LINES {
            let record = if number < HEADER_LINES { r#"{"a":1}"# } else { r#"{"a":1,"late":2}"# };
            let line = OutputLine { key: number.into(), sequence: None, record: Some(record) };
            form.push(&mut out, &line).unwrap();
        }
        assert!(form.finish(&mut out).unwrap().unwrap().starts_with("1 values"));
        assert_eq!(String::from_utf8(out).unwrap().lines().count(), HEADER_LINES + 2);
    }
}
