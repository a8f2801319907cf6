//! The entries of a composite index in one of the orders that its keys allow.

use std::borrow::Cow;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};

use crate::access::Access;
use crate::attribute;
use crate::query::Order;
use crate::source::EntryCursor;
use crate::spec::{EntryOrder, IndexSpec};
use crate::standalone::entry_key::{self, EntryKey, EntryLayout};

/// The order in which the cursor reads the entries of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompositeScanOrder {
    /// In key order: of one secondary key newest first (or by primary key), of several by value.
    Forward,
    /// In reverse key order: of one secondary key oldest first.
    Backward,
    /// From the largest secondary key to the smallest, each newest first. Cost: two seeks for each secondary key.
    GroupsDescending,
}

impl CompositeScanOrder {
    /// The scan order that yields `order` within `access`, if there is one; else the cheapest.
    pub(crate) fn choose(access: &Access, order: Order, spec: &IndexSpec) -> Self {
        match order {
            _ if spec.entry_order() == EntryOrder::PrimaryKey => Self::Forward,
            Order::Oldest if access.point => Self::Backward,
            // The newest entry of a value must come first, so the order attribute must be the last one of the key, before
            // the sequence number.
            Order::ValueDescending
                if access.order_attribute.is_some_and(|at| at + 1 == spec.attributes().len()) =>
            {
                Self::GroupsDescending
            }
            _ => Self::Forward,
        }
    }

    /// The range of keys to read: that of `access`, from the candidate of the cursor token on.
    pub(crate) fn bounds(self, access: &Access, layout: EntryLayout) -> (Cow<'_, [u8]>, Cow<'_, [u8]>) {
        let (low, end) = (Cow::Borrowed(&access.low[..]), Cow::Borrowed(&access.end[..]));
        let Some(sequence) = access.resume.filter(|_| access.point && layout.is_newest_first()) else {
            return (low, end);
        };
        let mut at = access.low.clone();
        entry_key::put_sequence(&mut at, sequence);
        match self {
            Self::Forward => (Cow::Owned(at), end),
            Self::Backward => {
                // The range includes the entry itself, so it does not depend on the primary key.
                attribute::make_successor(&mut at);
                (low, Cow::Owned(at))
            }
            Self::GroupsDescending => (low, end),
        }
    }
}

/// Reads the entries within the bounds of a cursor over their tree; see [`CompositeScanOrder`].
pub(crate) struct EntryWalk<'v, C> {
    entries: C,
    scan_order: CompositeScanOrder,
    spec: &'v IndexSpec,
    layout: EntryLayout,
    started: bool,
    /// The current secondary key of a descending scan.
    group: Vec<u8>,
}

impl<'v, C: EntryCursor> EntryWalk<'v, C> {
    /// Before the first of `entries`, which are not positioned, of the index that `spec` declares.
    pub(crate) fn new(entries: C, scan_order: CompositeScanOrder, spec: &'v IndexSpec) -> Self {
        let layout = EntryLayout::of(spec);
        Self { entries, scan_order, spec, layout, started: false, group: Vec::new() }
    }

    /// The scan order.
    pub(crate) fn scan_order(&self) -> CompositeScanOrder {
        self.scan_order
    }

    /// The layout of the keys.
    pub(crate) fn layout(&self) -> EntryLayout {
        self.layout
    }

    /// Whether [`advance`](Self::advance) was called.
    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Whether there is a current entry.
    pub(crate) fn valid(&self) -> bool {
        self.entries.valid()
    }

    /// The sequence number of the current entry in its tree.
    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.entries.sequence()
    }

    /// The value of the current entry.
    pub(crate) fn value(&self) -> &[u8] {
        self.entries.value()
    }

    /// The key of the current entry. `secondary_len` is the length of the secondary key, if it is known.
    ///
    /// # Errors
    /// `Corruption` if it is malformed.
    #[inline]
    pub(crate) fn key(&self, secondary_len: Option<usize>) -> Result<EntryKey<'_>> {
        let (key, sequence) = (self.entries.key(), self.entries.sequence());
        let entry = match secondary_len {
            Some(len) => self.layout.split(key, len, sequence),
            None => self.layout.parse(key, sequence),
        };
        entry.ok_or_else(|| self.malformed())
    }

    /// Moves to the next entry, or to the first.
    ///
    /// # Errors
    /// `Corruption` or `Io` from the files below; `Corruption` for a malformed key.
    pub(crate) fn advance(&mut self) -> Result<()> {
        match (self.scan_order, std::mem::replace(&mut self.started, true)) {
            (CompositeScanOrder::Forward, false) => self.entries.seek_to_first(),
            (CompositeScanOrder::Forward, true) => self.entries.next(),
            (CompositeScanOrder::Backward, false) => self.entries.seek_to_last(),
            (CompositeScanOrder::Backward, true) => self.entries.prev(),
            (CompositeScanOrder::GroupsDescending, false) => {
                self.entries.seek_to_last()?;
                self.enter_group()
            }
            (CompositeScanOrder::GroupsDescending, true) => {
                self.entries.next()?;
                if self.entries.valid() && self.entries.key().starts_with(&self.group) {
                    return Ok(());
                }
                // Seek to the first entry of the group, and step back into the next smaller group.
                self.entries.seek(&self.group)?;
                if self.entries.valid() {
                    self.entries.prev()?;
                }
                self.enter_group()
            }
        }
    }

    /// Moves from the last entry of a secondary key to its first. Encoded keys are prefix-free, so exactly its own entries
    /// start with the secondary key.
    fn enter_group(&mut self) -> Result<()> {
        if !self.entries.valid() {
            return Ok(());
        }
        let Some(entry) = self.layout.parse(self.entries.key(), self.entries.sequence()) else {
            return Err(self.malformed());
        };
        self.group.clear();
        self.group.extend_from_slice(entry.secondary_key);
        self.entries.seek(&self.group)
    }

    #[cold]
    fn malformed(&self) -> Error {
        Error::new(ErrorKind::Corruption, format!("index {}: an entry has a malformed key", self.spec.name()))
    }
}
