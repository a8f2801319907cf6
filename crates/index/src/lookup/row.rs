//! Rows: the answers of a query, pulled one by one.

use std::ops::{ControlFlow, Deref};

use bolide_base::{Result, SequenceNumber};

use crate::attribute::Value as Selected;

/// The record of an answer.
#[derive(Debug, Clone, Copy)]
pub enum RowRecord<'r, V> {
    /// A record that was fetched for this answer.
    Fetched(V),
    /// A record in a buffer of the index.
    Borrowed(&'r [u8]),
}

impl<V: Deref<Target = [u8]>> Deref for RowRecord<'_, V> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Fetched(record) => record,
            Self::Borrowed(record) => record,
        }
    }
}

/// One answer; it borrows the key.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Row<'r, V> {
    /// The record's key.
    pub primary_key: &'r [u8],
    /// The sequence number of the record's write.
    pub sequence: SequenceNumber,
    /// The record, for queries that return records.
    pub record: Option<RowRecord<'r, V>>,
    /// The selected values, path by path, for [`Query::select`](crate::Query::select); else empty.
    pub values: &'r [Vec<Selected>],
}

/// The rows of a query in its order.
pub trait RowSource {
    /// A record that was fetched for a row.
    type Record: Deref<Target = [u8]>;

    /// Calls `each` with one row after the other until it breaks, and returns what it broke with; `None` if there are no more
    /// rows. The next call continues after the last row.
    ///
    /// # Errors
    /// `Corruption` or `Io` from reading. No rows follow an error.
    fn until<R>(&mut self, each: impl FnMut(Row<'_, Self::Record>) -> ControlFlow<R>) -> Result<Option<R>>;

    /// Calls `each` with the next row and returns its result; `None` if there are no more rows.
    ///
    /// # Errors
    /// As [`until`](Self::until).
    #[inline]
    fn next_with<R>(&mut self, mut each: impl FnMut(Row<'_, Self::Record>) -> R) -> Result<Option<R>> {
        self.until(|row| ControlFlow::Break(each(row)))
    }

    /// Calls `each` with the rows until it breaks.
    ///
    /// # Errors
    /// As [`until`](Self::until); those of `each`.
    #[inline]
    fn visit(
        &mut self,
        mut each: impl FnMut(Row<'_, Self::Record>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let outcome = self.until(|row| match each(row) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(Ok(())),
            Err(error) => ControlFlow::Break(Err(error)),
        })?;
        outcome.unwrap_or(Ok(()))
    }
}
