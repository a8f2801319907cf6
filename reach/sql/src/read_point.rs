//! The state of the database that a statement reads: one snapshot, or that of a transaction with its own writes.

use std::fmt;
use std::ops::{Bound, ControlFlow};

use arrow::array::RecordBatch;
use bolide::{Collection, Explain, FindOptions, IterOptions, Query, Snapshot};
use datafusion::error::DataFusionError;
use tokio::runtime::Handle;
use tokio::sync::mpsc::Sender;

use crate::error::Result;
pub(crate) use crate::shared_transaction::{SharedTransaction, with_transaction};

/// A range of keys.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A record as it is stored, lent by a scan.
#[derive(Clone, Copy)]
pub(crate) struct StoredRow<'r> {
    pub(crate) key: &'r [u8],
    pub(crate) sequence: u64,
    /// Empty if the scan is of keys alone.
    pub(crate) record: &'r [u8],
}

/// Takes the rows of a scan until it breaks.
pub(crate) type RowSink<'s> = dyn FnMut(StoredRow<'_>) -> Result<ControlFlow<()>> + 's;

/// What all reads of one statement see.
#[derive(Clone)]
pub(crate) enum ReadPoint {
    Snapshot(Snapshot),
    Transaction(SharedTransaction),
}

impl fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot(_) => "snapshot",
            Self::Transaction(_) => "transaction",
        })
    }
}

impl ReadPoint {
    /// Passes a batch to the consumer of a scan, and waits until there is room for it. False if the consumer is gone, or the
    /// transaction that is read ends. Blocks.
    pub(crate) fn send(
        &self,
        sender: &Sender<std::result::Result<RecordBatch, DataFusionError>>,
        batch: RecordBatch,
    ) -> bool {
        match self {
            Self::Snapshot(_) => sender.blocking_send(Ok(batch)).is_ok(),
            Self::Transaction(shared) => Handle::current().block_on(async {
                tokio::select! {
                    biased;
                    () = shared.until_ended() => false,
                    sent = sender.send(Ok(batch)) => sent.is_ok(),
                }
            }),
        }
    }

    /// Whether the transaction that is read ends: its scans stop.
    pub(crate) fn is_ended(&self) -> bool {
        match self {
            Self::Snapshot(_) => false,
            Self::Transaction(shared) => shared.is_ended(),
        }
    }

    /// Passes the records that satisfy `query`, in its order. Blocks.
    pub(crate) fn visit(
        &self,
        collection: &Collection,
        query: &Query,
        sink: &mut RowSink<'_>,
    ) -> Result<Explain> {
        match self {
            Self::Snapshot(snapshot) => {
                let options = FindOptions::default().snapshot(snapshot);
                let mut answers = collection.answers(query, &options)?;
                while let Some(answer) = answers.next()? {
                    let record = answer.record.unwrap_or_default();
                    if sink(StoredRow { key: answer.key, sequence: answer.sequence, record })?.is_break() {
                        break;
                    }
                }
                Ok(answers.outcome().into_explain())
            }
            Self::Transaction(shared) => shared.read(|transaction| {
                let mut answers = transaction.answers(collection, query, &FindOptions::default())?;
                while let Some(answer) = answers.next()? {
                    let record = answer.record.unwrap_or_default();
                    if sink(StoredRow { key: answer.key, sequence: answer.sequence, record })?.is_break() {
                        break;
                    }
                }
                Ok(answers.outcome().into_explain())
            }),
        }
    }

    /// The number of records that satisfy `query`. Blocks.
    pub(crate) fn count(&self, collection: &Collection, query: &Query) -> Result<u64> {
        match self {
            Self::Snapshot(snapshot) => Ok(collection.find_at(snapshot, &query.clone().count())?.count()),
            Self::Transaction(shared) => shared.read(|transaction| Ok(transaction.count(collection, query)?)),
        }
    }

    /// Passes the records with keys in `bounds`, in the order of the keys. Blocks.
    pub(crate) fn scan(
        &self,
        collection: &Collection,
        bounds: &KeyBounds,
        is_reverse: bool,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let mut options = IterOptions::default();
        (options.lower, options.upper) = bounds.clone();
        match self {
            Self::Snapshot(snapshot) => {
                let mut cursor = collection.cursor(&options.snapshot(snapshot))?;
                if is_reverse {
                    cursor.seek_to_last()?
                } else {
                    cursor.seek_to_first()?
                }
                while cursor.valid() {
                    let row =
                        StoredRow { key: cursor.key(), sequence: cursor.sequence(), record: cursor.value() };
                    if sink(row)?.is_break() {
                        break;
                    }
                    if is_reverse { cursor.prev()? } else { cursor.next()? }
                }
                Ok(())
            }
            Self::Transaction(shared) => shared.read(|transaction| {
                let mut cursor = transaction.cursor(collection, &options)?;
                if is_reverse {
                    cursor.seek_to_last()?
                } else {
                    cursor.seek_to_first()?
                }
                while cursor.valid() {
                    let row =
                        StoredRow { key: cursor.key(), sequence: cursor.sequence(), record: cursor.value() };
                    if sink(row)?.is_break() {
                        break;
                    }
                    if is_reverse { cursor.prev()? } else { cursor.next()? }
                }
                Ok(())
            }),
        }
    }

    /// Passes the records under `keys`, in the order of the keys. Blocks.
    pub(crate) fn points(
        &self,
        collection: &Collection,
        keys: &[Vec<u8>],
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let Self::Snapshot(snapshot) = self else {
            // A range of one key each, so that no other key counts as read.
            for key in keys {
                let bounds = (Bound::Included(key.clone()), Bound::Included(key.clone()));
                let mut is_ended = false;
                self.scan(collection, &bounds, false, &mut |row| {
                    let flow = sink(row)?;
                    is_ended = flow.is_break();
                    Ok(flow)
                })?;
                if is_ended {
                    break;
                }
            }
            return Ok(());
        };
        let mut cursor = collection.cursor(&IterOptions::default().snapshot(snapshot))?;
        for key in keys {
            cursor.seek(key)?;
            if cursor.valid() && cursor.key() == key {
                let row =
                    StoredRow { key: cursor.key(), sequence: cursor.sequence(), record: cursor.value() };
                if sink(row)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether all keys begin with `byte`. Reads the first and the last one.
    pub(crate) fn all_keys_begin_with(&self, collection: &Collection, byte: u8) -> Result<bool> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        for is_reverse in [false, true] {
            let mut first = None;
            self.scan(collection, &all, is_reverse, &mut |row| {
                first = Some(row.key.first().copied());
                Ok(ControlFlow::Break(()))
            })?;
            if first.is_some_and(|first| first != Some(byte)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
