//! Iterators over the records of a collection in key order.

use std::collections::VecDeque;
use std::ffi::CString;
use std::ops::Bound as RangeEnd;
use std::sync::Arc;

use bolide::key::KeyFormat;
use bolide::{Cursor, IterOptions, RecordKind, Transaction};
use parking_lot::Mutex;
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::json_reader::read_record;
use crate::keys::{key_bytes, key_object};
use crate::session::{Exclusive, Released, Session, Shared};

/// Records that are read at once.
const READ_AHEAD: usize = 256;
/// Bytes that are read at once, about.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// What an iterator returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordPart {
    Keys,
    Values,
    Items,
}

/// What records of one iterator have in common.
#[derive(Clone, Copy)]
pub(crate) struct RecordShape {
    pub(crate) keys: KeyFormat,
    pub(crate) records: RecordKind,
    pub(crate) is_raw: bool,
    pub(crate) part: RecordPart,
}

/// The keys from `start` to `end`, without `end`, that start with `prefix`.
pub(crate) fn key_range(
    format: KeyFormat,
    prefix: Option<&Bound<'_, PyAny>>,
    start: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<IterOptions> {
    let mut options = IterOptions::default();
    if let Some(prefix) = prefix {
        options = options.prefix(&key_bytes(prefix, format)?);
    }
    if let Some(start) = start {
        let start = key_bytes(start, format)?;
        let is_later = match &options.lower {
            RangeEnd::Included(lower) | RangeEnd::Excluded(lower) => start > *lower,
            RangeEnd::Unbounded => true,
        };
        if is_later {
            options.lower = RangeEnd::Included(start);
        }
    }
    if let Some(end) = end {
        let end = key_bytes(end, format)?;
        let is_earlier = match &options.upper {
            RangeEnd::Included(upper) | RangeEnd::Excluded(upper) => end < *upper,
            RangeEnd::Unbounded => true,
        };
        if is_earlier {
            options.upper = RangeEnd::Excluded(end);
        }
    }
    Ok(options)
}

/// A key and its record.
type KeyRecord = (Vec<u8>, Vec<u8>);

/// Where records come from.
enum RecordSource {
    Cursor(Released<Exclusive<PositionedCursor>>),
    /// A transaction, and the collection that is read.
    Transaction(Released<Shared<Transaction>>, Released<Shared<bolide::Collection>>),
}

/// A cursor at the next record.
struct PositionedCursor {
    cursor: Cursor,
    is_reverse: bool,
}

/// Records in key order: an iterator, which holds a snapshot until it is read to its end or closed.
///
/// >>> with orders.keys() as keys:
/// ...     next(keys)
/// 'o1'
#[pyclass(frozen, name = "Records", module = "bolide")]
pub(crate) struct PyRecords {
    shape: RecordShape,
    is_reverse: bool,
    source: RecordSource,
    read: Mutex<ReadRecords>,
}

struct ReadRecords {
    records: VecDeque<KeyRecord>,
    has_ended: bool,
    /// The keys that a transaction has still to read.
    rest: IterOptions,
}

impl PyRecords {
    pub(crate) fn of_cursor(
        py: Python<'_>,
        session: &Arc<Session>,
        shape: RecordShape,
        cursor: Cursor,
        is_reverse: bool,
    ) -> PyResult<Self> {
        let cursor = Exclusive::new(session, PositionedCursor { cursor, is_reverse })?;
        cursor.with(
            py,
            |at| if at.is_reverse { at.cursor.seek_to_last() } else { at.cursor.seek_to_first() },
        )?;
        let rest = IterOptions::default();
        let read = Mutex::new(ReadRecords { records: VecDeque::new(), has_ended: false, rest });
        Ok(Self { shape, is_reverse, source: RecordSource::Cursor(Released::new(cursor)), read })
    }

    pub(crate) fn of_transaction(
        transaction: Shared<Transaction>,
        collection: Shared<bolide::Collection>,
        shape: RecordShape,
        range: IterOptions,
        is_reverse: bool,
    ) -> Self {
        let read = Mutex::new(ReadRecords { records: VecDeque::new(), has_ended: false, rest: range });
        let source = RecordSource::Transaction(Released::new(transaction), Released::new(collection));
        Self { shape, is_reverse, source, read }
    }

    fn pull(&self, py: Python<'_>) -> PyResult<()> {
        match &self.source {
            RecordSource::Cursor(cursor) => {
                let pulled = cursor.with_open(py, |at| {
                    let (mut pulled, has_ended) = at.pull(self.shape.part != RecordPart::Keys)?;
                    let mut read = self.read.lock();
                    // Another thread may have closed the iterator meanwhile.
                    if !read.has_ended {
                        read.records.append(&mut pulled);
                        read.has_ended = has_ended;
                    }
                    Ok(())
                })?;
                // Another thread may have read the end meanwhile, and closed the cursor.
                if pulled.is_none() && !self.read.lock().has_ended {
                    return Err(crate::errors::closed_error());
                }
            }
            RecordSource::Transaction(transaction, collection) => {
                let (transaction, collection) = (transaction.read()?, collection.read()?);
                let (transaction, collection): (&Transaction, &bolide::Collection) =
                    (&transaction, &collection);
                crate::errors::detached(py, || self.pull_from(transaction, collection))?;
            }
        }
        py.check_signals()
    }

    /// Reads a part of the range, and shortens the range to the rest.
    fn pull_from(&self, transaction: &Transaction, collection: &bolide::Collection) -> bolide::Result<()> {
        let mut read = self.read.lock();
        if read.has_ended || !read.records.is_empty() {
            return Ok(());
        }
        let mut cursor = transaction.cursor(collection, &read.rest)?;
        if self.is_reverse {
            cursor.seek_to_last()?
        } else {
            cursor.seek_to_first()?
        }
        let mut bytes = 0;
        while cursor.valid() && read.records.len() < READ_AHEAD && bytes < READ_AHEAD_BYTES {
            bytes += cursor.key().len() + cursor.value().len();
            read.records.push_back((cursor.key().to_vec(), cursor.value().to_vec()));
            if self.is_reverse { cursor.prev()? } else { cursor.next()? }
        }
        read.has_ended = !cursor.valid();
        drop(cursor);
        let last = read.records.back().map(|(key, _)| RangeEnd::Excluded(key.clone()));
        match (last, self.is_reverse) {
            (Some(last), true) => read.rest.upper = last,
            (Some(last), false) => read.rest.lower = last,
            (None, _) => {}
        }
        Ok(())
    }

    fn object<'py>(&self, py: Python<'py>, (key, record): &KeyRecord) -> PyResult<Bound<'py, PyAny>> {
        let key = || key_object(py, key, self.shape.keys);
        let record = || match self.shape.records {
            RecordKind::Json if !self.shape.is_raw => read_record(py, record),
            _ => Ok(PyBytes::new(py, record).into_any()),
        };
        match self.shape.part {
            RecordPart::Keys => key(),
            RecordPart::Values => record(),
            RecordPart::Items => Ok((key()?, record()?).into_pyobject(py)?.into_any()),
        }
    }
}

impl PositionedCursor {
    fn pull(&mut self, with_values: bool) -> bolide::Result<(VecDeque<KeyRecord>, bool)> {
        let mut pulled = VecDeque::with_capacity(READ_AHEAD);
        let mut bytes = 0;
        while self.cursor.valid() && pulled.len() < READ_AHEAD && bytes < READ_AHEAD_BYTES {
            let (key, value) = (self.cursor.key(), self.cursor.value());
            bytes += key.len() + value.len();
            pulled.push_back((key.to_vec(), if with_values { value.to_vec() } else { Vec::new() }));
            if self.is_reverse { self.cursor.prev()? } else { self.cursor.next()? }
        }
        Ok((pulled, !self.cursor.valid()))
    }
}

#[pymethods]
impl PyRecords {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            let (found, has_ended) = {
                let mut read = self.read.lock();
                (read.records.pop_front(), read.has_ended)
            };
            match found {
                Some(record) => return self.object(py, &record).map(Some),
                None if has_ended => {
                    self.close(py)?;
                    return Ok(None);
                }
                None => self.pull(py)?,
            }
        }
    }

    /// Ends the iteration and releases its snapshot. Does nothing the second time.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let RecordSource::Cursor(cursor) = &self.source {
            cursor.check_unused()?;
        }
        {
            let mut read = self.read.lock();
            read.records.clear();
            read.has_ended = true;
        }
        if let RecordSource::Cursor(cursor) = &self.source {
            cursor.close(py)?;
        }
        Ok(())
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for PyRecords {
    fn drop(&mut self) {
        if let RecordSource::Cursor(cursor) = &self.source
            && !self.read.get_mut().has_ended
            && cursor.is_open()
        {
            warn_about_open("an iterator over records was not read to its end nor closed");
        }
    }
}

/// Reports an iterator that was collected while it held a snapshot.
pub(crate) fn warn_about_open(message: &str) {
    let Ok(text) = CString::new(format!("{message}: it held a snapshot until now")) else { return };
    Python::try_attach(|py| {
        // An object may be collected while an exception is on its way.
        let raised = PyErr::take(py);
        let category = py.get_type::<PyResourceWarning>();
        if let Err(error) = PyErr::warn(py, &category, &text, 1) {
            error.write_unraisable(py, None);
        }
        if let Some(raised) = raised {
            raised.restore(py);
        }
    });
}
