//! Recorded histories: what each transaction read and wrote, and its place among the others.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The contents of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// The group, which queries select by.
    pub(super) group: u64,
    /// The writes of the record so far, the last one last. Each write has a number of its own.
    pub(super) writes: Vec<u64>,
}

impl Content {
    pub(super) fn json(&self) -> Vec<u8> {
        json!({"g": self.group, "w": self.writes}).to_string().into_bytes()
    }

    pub(super) fn parse(record: &[u8]) -> Result<Self, String> {
        let malformed = || format!("a record is {:?}", String::from_utf8_lossy(record));
        let json: Value = serde_json::from_slice(record).map_err(|_| malformed())?;
        let group = json.get("g").and_then(Value::as_u64).ok_or_else(malformed)?;
        let writes = json.get("w").and_then(Value::as_array).ok_or_else(malformed)?;
        let writes = writes.iter().map(Value::as_u64).collect::<Option<_>>().ok_or_else(malformed)?;
        Ok(Self { group, writes })
    }

    /// The number of its last write.
    pub(super) fn id(&self) -> u64 {
        self.writes.last().copied().unwrap_or(0)
    }
}

/// Records by key.
pub(super) type Contents = BTreeMap<String, Content>;

/// A read of a transaction.
#[derive(Debug, Clone)]
pub(super) enum Read {
    Key {
        key: String,
        found: Option<Content>,
    },
    /// All records from the first key up to the second, exclusive.
    Range {
        from: String,
        to: String,
        found: Contents,
    },
    /// All records of a group, by a query.
    Group {
        group: u64,
        found: Contents,
    },
}

impl Read {
    /// Whether the answer depends on `content`, a version of the record under `key`; `None` for no record.
    pub(super) fn selects(&self, key: &str, content: Option<&Content>) -> bool {
        match self {
            Self::Key { key: read, .. } => read == key,
            Self::Range { from, to, .. } => &from[..] <= key && key < &to[..],
            Self::Group { group, .. } => content.is_some_and(|content| content.group == *group),
        }
    }
}

/// A write of a transaction.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) key: String,
    /// `None` for a delete.
    pub(super) content: Option<Content>,
}

/// A step of a transaction.
#[derive(Debug, Clone)]
pub(super) enum TransactionStep {
    Read(Read),
    Write(Written),
}

/// A transaction, or a single write outside of one.
#[derive(Debug, Clone)]
pub(super) struct RecordedTransaction {
    pub(super) thread: usize,
    /// A time before it began.
    pub(super) start: u64,
    /// A time after its commit returned.
    pub(super) end: u64,
    /// The sequence number of the last commit that it sees.
    pub(super) snapshot: u64,
    /// The sequence number of its commit; `None` if it conflicted, or was rolled back. That of its snapshot without writes.
    pub(super) commit: Option<u64>,
    pub(super) steps: Vec<TransactionStep>,
}

impl RecordedTransaction {
    pub(super) fn writes(&self) -> impl Iterator<Item = &Written> {
        self.steps.iter().filter_map(|step| match step {
            TransactionStep::Write(written) => Some(written),
            TransactionStep::Read(_) => None,
        })
    }
}

/// The state of a copy of the disk after a power cut.
#[derive(Debug, Clone)]
pub(super) struct Recovered {
    /// The largest sequence number of a commit that was synced before the cut.
    pub(super) synced: u64,
    pub(super) found: Contents,
}

/// A history.
#[derive(Debug, Default)]
pub(super) struct RecordedHistory {
    pub(super) transactions: Vec<RecordedTransaction>,
    pub(super) recovered: Vec<Recovered>,
    /// The records at the end.
    pub(super) end: Contents,
}
