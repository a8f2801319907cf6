//! The candidate cursor of a composite index.

use std::borrow::Cow;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};

use crate::access::Access;
use crate::attribute;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::query::Order;
use crate::source::EntryCursor;
use crate::spec::{EntryOrder, IndexSpec};
use crate::standalone::covering;
use crate::standalone::entry_key::{self, EntryLayout};

/// The order in which the cursor reads the entries of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompositeScanOrder {
    /// In key order: of one secondary key newest first (or by primary key), of several by value.
    Forward,
    /// In reverse key order: of one secondary key oldest first.
    Backward,
    /// From the largest secondary key to the smallest, each newest first. Cost: two seeks for each secondary key.
    GroupsDescending,
}

impl CompositeScanOrder {
    /// The scan order that yields `order` within `access`, if there is one; else the cheapest.
    pub(super) fn choose(access: &Access, order: Order, spec: &IndexSpec) -> Self {
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
    pub(super) fn bounds(self, access: &Access, layout: EntryLayout) -> (Cow<'_, [u8]>, Cow<'_, [u8]>) {
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

/// The candidates of one query; see [`CompositeScanOrder`].
pub(super) struct CompositeCursor<'v, C> {
    entries: C,
    scan_order: CompositeScanOrder,
    access: &'v Access,
    spec: &'v IndexSpec,
    layout: EntryLayout,
    started: bool,
    /// Sequence number of the last candidate, or of the view.
    last_sequence: SequenceNumber,
    /// The current secondary key of a descending scan.
    group: Vec<u8>,
    /// The covering of the candidate with the attributes of its key, if these are needed.
    with_key: Vec<u8>,
}

impl<'v, C: EntryCursor> CompositeCursor<'v, C> {
    pub(super) fn new(
        entries: C,
        scan_order: CompositeScanOrder,
        access: &'v Access,
        spec: &'v IndexSpec,
        view_sequence: SequenceNumber,
    ) -> Self {
        let layout = EntryLayout::of(spec);
        let (started, group, with_key) = (false, Vec::new(), Vec::new());
        Self {
            entries,
            scan_order,
            access,
            spec,
            layout,
            started,
            last_sequence: view_sequence,
            group,
            with_key,
        }
    }

    fn advance(&mut self) -> Result<()> {
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

impl<C: EntryCursor + Send> CandidateCursor for CompositeCursor<'_, C> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        self.advance()?;
        if !self.entries.valid() {
            self.last_sequence = 0;
            return Ok(None);
        }
        let key = self.entries.key();
        let entry = if self.access.point {
            self.layout.split(key, self.access.low.len(), self.entries.sequence())
        } else {
            self.layout.parse(key, self.entries.sequence())
        };
        let Some(entry) = entry else {
            return Err(self.malformed());
        };
        self.last_sequence = entry.sequence;
        let value = self.entries.value();
        let order_value = self.access.order_value(entry.secondary_key);
        let is_only_key = value.first() != Some(&1);
        let mut included = value.get(1..).unwrap_or_default();
        if self.access.includes_key_attributes {
            self.with_key.clear();
            covering::put_key(self.spec, entry.secondary_key, is_only_key, &mut self.with_key);
            self.with_key.extend_from_slice(included);
            included = &self.with_key;
        }
        Ok(Some(Candidate {
            primary_key: entry.primary_key,
            sequence: entry.sequence,
            order_value,
            // A write has one entry under a secondary key.
            repeated: !self.access.point && !is_only_key,
            included,
            origin: CandidateOrigin::default(),
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.access.point
            && self.scan_order == CompositeScanOrder::Forward
            && self.layout.is_newest_first()
        {
            self.last_sequence.saturating_sub(u64::from(self.started))
        } else {
            SequenceNumber::MAX
        }
    }

    fn order(&self) -> Option<Order> {
        let by_value = self.access.order_attribute.is_some_and(|at| at + 1 == self.spec.attributes().len());
        match self.scan_order {
            _ if !self.layout.is_newest_first() => None,
            CompositeScanOrder::Forward if self.access.point => Some(Order::Newest),
            CompositeScanOrder::Forward if by_value => Some(Order::Value),
            CompositeScanOrder::Forward => None,
            CompositeScanOrder::Backward => Some(Order::Oldest),
            CompositeScanOrder::GroupsDescending => Some(Order::ValueDescending),
        }
    }
}
