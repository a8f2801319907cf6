//! The columns of the batch that is being filled.

use arrow_array::ArrayRef;
use arrow_schema::SchemaRef;

use crate::Result;
use crate::column_builder::ColumnBuilder;
use crate::column_type::ColumnType;

/// One builder for each column.
pub(crate) struct BatchColumns {
    columns: Vec<ColumnBuilder>,
}

impl BatchColumns {
    pub(crate) fn new(types: impl IntoIterator<Item = ColumnType>) -> Self {
        Self { columns: types.into_iter().map(ColumnBuilder::new).collect() }
    }

    #[inline]
    pub(crate) fn column(&mut self, column: u32) -> Option<&mut ColumnBuilder> {
        self.columns.get_mut(column as usize)
    }

    /// Whether the column has a value of the row.
    #[inline]
    pub(crate) fn has_value(&self, column: u32, row: usize) -> bool {
        self.columns.get(column as usize).is_none_or(|column| column.len() > row)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut ColumnBuilder> {
        self.columns.iter_mut()
    }

    /// Removes the values of all rows after the first `rows`.
    pub(crate) fn truncate(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.truncate(rows);
        }
    }

    /// Appends NULL to the columns that have fewer than `rows` values.
    pub(crate) fn fill(&mut self, rows: usize) {
        for column in &mut self.columns {
            if column.len() < rows {
                column.append_null();
            }
        }
    }

    /// Bytes of the values of `rows` rows, about.
    pub(crate) fn bytes(&self, rows: usize) -> usize {
        self.columns.iter().map(|column| column.text_bytes() + 8 * rows).sum()
    }

    /// Bytes of texts, or elements, of the column with the most.
    pub(crate) fn filled(&self) -> usize {
        self.columns.iter().map(ColumnBuilder::filled).max().unwrap_or(0)
    }

    pub(crate) fn finish(&mut self, schema: &SchemaRef) -> Result<Vec<ArrayRef>> {
        let fields = schema.fields().iter();
        self.columns.iter_mut().zip(fields).map(|(column, field)| column.finish(field.data_type())).collect()
    }
}
