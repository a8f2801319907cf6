//! Reads the candidates of one query from a composite index.

use std::borrow::Cow;

use bolide_base::{Error, ErrorKind, Result, SequenceNumber};

use super::entry_key::{self, EntryLayout};
use crate::access::Access;
use crate::attribute;
use crate::candidate::{Candidate, CandidateCursor, CandidateOrigin};
use crate::query::Order;
use crate::source::EntryCursor;
use crate::spec::{EntryOrder, IndexSpec};
use crate::standalone::{covering, secondary_key};

/// How the cursor goes over the entries of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// In key order: of one secondary key newest first (or by primary key), of several by value.
    Forward,
    /// Against key order: of one secondary key oldest first.
    Backward,
    /// From the largest secondary key to the smallest, each newest first: two seeks a secondary key.
    GroupsDescending,
}

impl Walk {
    /// The walk that delivers `order` within `access`, if one does; else the cheapest.
    pub(super) fn choose(access: &Access, order: Order, spec: &IndexSpec) -> Self {
        match order {
            _ if spec.entry_order() == EntryOrder::PrimaryKey => Self::Forward,
            Order::Oldest if access.point => Self::Backward,
            // Of the entries with one value of the order's attribute, the newest must come first, so
            // nothing may stand between that value and the sequence number.
            Order::ValueDescending
                if access.order_attribute.is_some_and(|at| at + 1 == spec.attributes().len()) =>
            {
                Self::GroupsDescending
            }
            _ => Self::Forward,
        }
    }

    /// The keys to walk over: those of `access`, without what comes before the candidate that the answers go on
    /// behind.
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
                // The entry itself stays, so that nothing depends on its primary key.
                attribute::make_successor(&mut at);
                (low, Cow::Owned(at))
            }
            Self::GroupsDescending => (low, end),
        }
    }
}

/// The candidates of one query; see [`Walk`].
pub(super) struct CompositeCursor<'v, C> {
    entries: C,
    walk: Walk,
    access: &'v Access,
    spec: &'v IndexSpec,
    layout: EntryLayout,
    started: bool,
    /// Sequence number of the candidate given last, or of the view.
    last_sequence: SequenceNumber,
    /// The secondary key that a descending walk is in.
    group: Vec<u8>,
    /// What the candidate brings, where that is more than its entry has.
    brought: Vec<u8>,
}

impl<'v, C: EntryCursor> CompositeCursor<'v, C> {
    pub(super) fn new(
        entries: C,
        walk: Walk,
        access: &'v Access,
        spec: &'v IndexSpec,
        view_sequence: SequenceNumber,
    ) -> Self {
        let layout = EntryLayout::of(spec);
        let (started, group, brought) = (false, Vec::new(), Vec::new());
        Self { entries, walk, access, spec, layout, started, last_sequence: view_sequence, group, brought }
    }

    fn advance(&mut self) -> Result<()> {
        match (self.walk, std::mem::replace(&mut self.started, true)) {
            (Walk::Forward, false) => self.entries.seek_to_first(),
            (Walk::Forward, true) => self.entries.next(),
            (Walk::Backward, false) => self.entries.seek_to_last(),
            (Walk::Backward, true) => self.entries.prev(),
            (Walk::GroupsDescending, false) => {
                self.entries.seek_to_last()?;
                self.enter_group()
            }
            (Walk::GroupsDescending, true) => {
                self.entries.next()?;
                if self.entries.valid() && self.entries.key().starts_with(&self.group) {
                    return Ok(());
                }
                // Back to the group's first entry, and from there into the group below.
                self.entries.seek(&self.group)?;
                if self.entries.valid() {
                    self.entries.prev()?;
                }
                self.enter_group()
            }
        }
    }

    /// From the last entry of a secondary key to its first. Encoded keys are prefix-free, so the entries
    /// that start with the secondary key are exactly its own.
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

impl<C: EntryCursor> CandidateCursor for CompositeCursor<'_, C> {
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
        let order_value = match self.access.order_attribute {
            Some(position) => secondary_key::component(entry.secondary_key, position),
            None => &[],
        };
        let is_alone = value.first() != Some(&1);
        let mut included = value.get(1..).unwrap_or_default();
        if self.access.includes_key_attributes {
            self.brought.clear();
            covering::put_key(self.spec, entry.secondary_key, is_alone, &mut self.brought);
            self.brought.extend_from_slice(included);
            included = &self.brought;
        }
        Ok(Some(Candidate {
            primary_key: entry.primary_key,
            sequence: entry.sequence,
            order_value,
            // Within one secondary key a write has one entry.
            repeated: !self.access.point && !is_alone,
            included,
            origin: CandidateOrigin::default(),
        }))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        if self.access.point && self.walk == Walk::Forward && self.layout.is_newest_first() {
            self.last_sequence.saturating_sub(u64::from(self.started))
        } else {
            SequenceNumber::MAX
        }
    }

    fn order(&self) -> Option<Order> {
        let by_value = self.access.order_attribute.is_some_and(|at| at + 1 == self.spec.attributes().len());
        match self.walk {
            _ if !self.layout.is_newest_first() => None,
            Walk::Forward if self.access.point => Some(Order::Newest),
            Walk::Forward if by_value => Some(Order::Value),
            Walk::Forward => None,
            Walk::Backward => Some(Order::Oldest),
            Walk::GroupsDescending => Some(Order::ValueDescending),
        }
    }
}
