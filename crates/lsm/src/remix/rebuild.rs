//! Builds a REMIX from an older one and new runs (REMIX §4.3).
//!
//! The older view orders its runs already. For each key of the new runs, the rebuild seeks the merge point in the old
//! view: by the anchors, then in one segment, with one or a few key reads. It copies the old selectors between two
//! merge points without reading entries. If a segment of the new REMIX starts with a copied entry, its key is an old
//! anchor or is read: at most one key for each segment. If both views have forks, the forks of copied entries are copied
//! too, and each merge point reads only the key of the leaf.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber};
use bolide_table::PinnedBlock;

use super::forks::{FAR, NO_FORK, absolute};
use super::new_runs::NewRunEntries;
use super::retained_runs::RetainedRuns;
use super::run::ViewRun;
use super::search::{KeyRelation, LastBlocks, ViewPosition};
use super::segmenter::{Fork, InputKey, Segmenter};
use super::segments::{MAX_WIDTH, Segment, tag_of};
use super::selectors::{OLD, RUN_BITS, TOMBSTONE, below, mask_of_old, mask_where};
use super::view::SortedView;
use super::{Remix, RemixOptions, contradiction};

/// The cost of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RebuildCost {
    /// The number of keys of the new runs, each with one search for a merge point.
    pub merge_points: u64,
    /// The number of entries copied without being read.
    pub copied_entries: u64,
    /// The number of keys read for anchors.
    pub anchors_read: u64,
}

impl Remix {
    /// The REMIX of `runs`, newest first, rebuilt from `old`. Sstables of `old` may have moved to other runs; those that
    /// are not in `runs` are dropped. Reads the new sstables as a whole, and fills the cache with them if most of the old
    /// blocks are cached. Reads few blocks of the old sstables.
    ///
    /// Costs about as much as [`build`](Self::build) if the new sstables have as many entries as the old ones. Reads all
    /// entries if `options` require tags or forks that `old` lacks.
    ///
    /// # Errors
    /// Those of [`build`](Self::build).
    pub fn rebuild(
        old: &SortedView,
        runs: &[Arc<ViewRun>],
        options: &RemixOptions,
    ) -> Result<(Self, RebuildCost)> {
        let retained = RetainedRuns::new(old.runs(), runs);
        let lacks = options.tags && !old.remix().has_tags() || options.forks && !old.remix().has_forks();
        if lacks && retained.retains_any() {
            return Ok((Self::build(runs, options)?, RebuildCost::default()));
        }
        let layout = options.layout(runs)?;
        let mut rebuild = Rebuild {
            old,
            retained,
            tags: layout.tags,
            forks: layout.forks,
            segmenter: Segmenter::new(runs, layout),
            blocks: LastBlocks::new(old.runs()),
            at: ViewPosition { segment: 0, index: 0 },
            last: LastKey::Unknown,
            new_entries: NewRunEntries::new(old, runs)?,
            cost: RebuildCost::default(),
        };
        rebuild.run()?;
        let (remix, anchors_read) = rebuild.segmenter.finish()?;
        Ok((remix, RebuildCost { anchors_read, ..rebuild.cost }))
    }
}

/// The relation of the last key of the new view to the next entry of the old view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastKey {
    /// It is the key of the previous old entry.
    Before,
    /// It is a key of a new run, which differs from the key of the next old entry first in this bit.
    New(u32),
    /// The first differing bit is unknown.
    Unknown,
}

/// The key of old entries during copying.
struct OldKey {
    /// Whether a version of it is copied.
    is_started: bool,
    fork: Fork,
}

/// A bit for each entry of `segment` that is the only version of its key and has a known fork, if there are forks. Not
/// for the first entry, whose key is the anchor. `continues`: the next segment starts with versions of the last key.
#[inline]
fn single_versions(segment: Segment<'_>, continues: bool) -> u64 {
    let entries = below(segment.entries());
    let old = mask_of_old(segment.selectors()) & entries;
    let last = entries & !(entries >> 1);
    let has_older = old >> 1 | if continues { last } else { 0 };
    let far = segment.forks().map_or(0, |(forks, _)| mask_where(forks, u8::MAX, FAR));
    entries & !1 & !old & !has_older & !far
}

struct Rebuild<'a> {
    old: &'a SortedView,
    retained: RetainedRuns,
    /// Whether the new view has tags.
    tags: bool,
    /// Whether it has forks.
    forks: bool,
    segmenter: Segmenter,
    /// The pinned blocks of the old runs.
    blocks: LastBlocks<'a>,
    /// The first old entry that is not copied yet; always the first version of a key.
    at: ViewPosition,
    last: LastKey,
    new_entries: NewRunEntries<'a>,
    cost: RebuildCost,
}

impl Rebuild<'_> {
    fn run(&mut self) -> Result<()> {
        let mut key = Vec::new();
        while let Some(next) = self.new_entries.next() {
            key.clear();
            key.extend_from_slice(next.key);
            let (remix, runs) = (self.old.remix(), self.old.runs());
            let (point, relation) = match next.leaf {
                Some(leaf) => remix.locate_from_leaf(leaf, runs, &key, MAX_SEQUENCE, &mut self.blocks)?,
                None => (remix.locate(runs, &key, MAX_SEQUENCE, &mut self.blocks)?.0, KeyRelation::Unknown),
            };
            self.copy_until(point)?;
            self.cost.merge_points += 1;
            let tag = if self.tags { tag_of(&key) } else { 0 };
            self.segmenter.start_key(InputKey::Known(&key), tag, self.fork_of_new_key(relation))?;
            self.last = match self.merge_versions(&key, relation)? {
                true => LastKey::Before,
                false => self.last_key_before(relation),
            };
        }
        self.copy_until(ViewPosition { segment: self.old.remix().segments(), index: 0 })
    }

    /// The fork of the old entry at `at`, if known.
    fn old_fork(&self) -> Option<u32> {
        let (forks, base) = self.old.remix().segments.get(self.at.segment).forks()?;
        absolute(forks, base, self.at.index)
    }

    /// The fork of a new key with position `at`.
    ///
    /// Of three ascending keys, the first differing bit of the first and the last is the smaller of the first differing
    /// bits of the two neighbouring pairs.
    fn fork_of_new_key(&self, relation: KeyRelation) -> Fork {
        let fork = match (self.last, relation) {
            (LastKey::Before, KeyRelation::After(bit)) => Some(bit),
            (LastKey::Before, KeyRelation::Before(bit)) => self.old_fork().filter(|&fork| fork < bit),
            (LastKey::Before, KeyRelation::Same(_)) => self.old_fork(),
            (LastKey::New(bit), KeyRelation::Same(_)) => Some(bit),
            _ => None,
        };
        fork.map_or(Fork::Compared, Fork::Known)
    }

    /// The relation of a new key to the entry at its position `at`.
    fn last_key_before(&self, relation: KeyRelation) -> LastKey {
        match (relation, self.old_fork()) {
            (KeyRelation::Before(bit), _) => LastKey::New(bit),
            (KeyRelation::After(bit), Some(fork)) if fork < bit => LastKey::New(fork),
            _ => LastKey::Unknown,
        }
    }

    /// The old run and the selector of the entry at `at`.
    fn selector(&self) -> Option<(usize, u8)> {
        let segment = self.old.remix().segments.get(self.at.segment);
        if self.at.index >= segment.entries() {
            return None;
        }
        let &selector = segment.selectors().get(self.at.index)?;
        Some((usize::from(selector & RUN_BITS), selector))
    }

    fn step(&mut self) {
        if let Some((run, _)) = self.selector() {
            self.retained.consume(run);
        }
        self.at.index += 1;
        if self.at.index >= self.old.remix().segments.get(self.at.segment).entries() {
            self.at = ViewPosition { segment: self.at.segment + 1, index: 0 };
        }
    }

    /// Copies the entries before `end`, where a key begins.
    fn copy_until(&mut self, end: ViewPosition) -> Result<()> {
        let old = self.old.remix();
        let mut key = OldKey { is_started: false, fork: Fork::Compared };
        while self.at < end {
            let segment = old.segments.get(self.at.segment);
            let continues = old.segments.get(self.at.segment + 1).starts_old();
            let entries = segment.entries();
            let to = if self.at.segment < end.segment { entries } else { end.index.min(entries) };
            let single = single_versions(segment, continues);
            while self.at.index < to {
                let all = (single >> self.at.index).trailing_ones() as usize;
                let range = self.at.index..to.min(self.at.index + all);
                let is_fork_known = !self.forks || self.last == LastKey::Before;
                if !range.is_empty() && is_fork_known && self.retained.is_steady(range.len()) {
                    self.copy_range(segment, range)?;
                } else {
                    self.copy_one(segment, continues, &mut key)?;
                }
            }
            if to == entries {
                self.at = ViewPosition { segment: self.at.segment + 1, index: 0 };
            }
        }
        Ok(())
    }

    /// Copies a range of [`single_versions`].
    #[inline]
    fn copy_range(&mut self, segment: Segment<'_>, range: Range<usize>) -> Result<()> {
        let selectors = segment.selectors().get(range.clone()).unwrap_or_default();
        let mut new = [0; MAX_WIDTH];
        let new = new.get_mut(..selectors.len()).unwrap_or_default();
        self.retained.consume_all(selectors, new);
        let tags = segment.tags().get(range.clone()).unwrap_or_default();
        let (forks, base) = segment.forks().filter(|_| self.forks).unwrap_or_default();
        let forks = forks.get(range.clone()).unwrap_or_default();
        self.segmenter.push_singles(new, tags, |index| absolute(forks, base, index).unwrap_or(NO_FORK))?;
        self.cost.copied_entries += range.len() as u64;
        self.last = LastKey::Before;
        self.at.index = range.end;
        Ok(())
    }

    /// Copies the entry at `at`, which is in `segment`. `continues`: the last key of the segment continues in the next one.
    /// `key` is the key of the previous entry.
    fn copy_one(&mut self, segment: Segment<'_>, continues: bool, key: &mut OldKey) -> Result<()> {
        let (selectors, index) = (segment.selectors(), self.at.index);
        let selector = selectors.get(index).copied().unwrap_or(0);
        if selector & OLD == 0 {
            let fork = || segment.forks().and_then(|(forks, base)| absolute(forks, base, index));
            *key = OldKey { is_started: false, fork: self.fork_of_old(fork) };
        }
        self.at.index += 1;
        let run = usize::from(selector & RUN_BITS);
        let number = self.retained.number(run);
        self.retained.consume(run);
        let Some(number) = number else { return Ok(()) };
        self.cost.copied_entries += 1;
        self.last = LastKey::Before;
        let (tag, tombstone) = (segment.tags().get(index).copied().unwrap_or(0), selector & TOMBSTONE != 0);
        let has_older = || match index + 1 < segment.entries() {
            true => selectors.get(index + 1).is_some_and(|next| next & OLD != 0),
            false => continues,
        };
        if index > 0 && !key.is_started && !has_older() {
            return self.segmenter.push_single(number, tombstone, tag, key.fork);
        }
        if !key.is_started {
            let anchor = (index == 0).then(|| self.old.remix().anchors.key(self.at.segment));
            self.segmenter.start_key(
                anchor.as_deref().map_or(InputKey::Unread, InputKey::Known),
                tag,
                key.fork,
            )?;
            key.is_started = true;
        }
        self.segmenter.push(number, tombstone);
        Ok(())
    }

    /// The fork of the next old key. `old_fork` returns its fork in the old view. Sets `last` to unknown.
    #[inline]
    fn fork_of_old(&mut self, old_fork: impl FnOnce() -> Option<u32>) -> Fork {
        let fork = match std::mem::replace(&mut self.last, LastKey::Unknown) {
            _ if !self.forks => Some(NO_FORK),
            LastKey::Before => old_fork(),
            LastKey::New(bit) => Some(bit),
            LastKey::Unknown => None,
        };
        fork.map_or(Fork::Compared, Fork::Known)
    }

    /// Merges the versions of the new key `key`, whose position is `at`, with its versions in the old view. Returns whether
    /// the old view has any.
    fn merge_versions(&mut self, key: &[u8], relation: KeyRelation) -> Result<bool> {
        let is_old = match relation {
            KeyRelation::Same(_) => true,
            KeyRelation::Before(_) | KeyRelation::After(_) => false,
            KeyRelation::Unknown => self.is_next(key)?,
        };
        let mut first = Some(relation);
        while is_old && let Some((number, sequence, tombstone)) = self.old_version(first.take())? {
            while let Some((run, newer)) = self.new_version(key)
                && newer.cmp(&sequence).then(number.cmp(&run)) == Ordering::Greater
            {
                self.push_new()?;
            }
            self.segmenter.push(number, tombstone);
            self.step();
        }
        while self.new_version(key).is_some() {
            self.push_new()?;
        }
        Ok(is_old)
    }

    /// The result of `read` for the entry at `at`, which is in run `run`, and its block.
    fn read_next<T>(&mut self, run: usize, read: impl FnOnce(&PinnedBlock, usize) -> Option<T>) -> Result<T> {
        let source = self.old.runs().get(run).ok_or_else(contradiction)?;
        let position = self.old.remix().segments.get(self.at.segment).position(source, run, self.at.index);
        let block = self.blocks.block(run, position.block)?;
        read(block, position.entry as usize).ok_or_else(|| source.damaged(position.block))
    }

    /// Whether the entry at `at` has the key `key`.
    fn is_next(&mut self, key: &[u8]) -> Result<bool> {
        let Some((run, _)) = self.selector() else { return Ok(false) };
        self.read_next(run, |block, index| Some(block.difference(index, key)?.order.is_eq()))
    }

    /// The next retained version of the current old key, from `at` on: its run in the new view, its sequence number, and
    /// whether it is a tombstone. `first` is set at the first version of the key, and may have its sequence number.
    fn old_version(&mut self, first: Option<KeyRelation>) -> Result<Option<(usize, SequenceNumber, bool)>> {
        let mut first = first;
        while let Some((run, selector)) = self.selector()
            && (first.is_some() || selector & OLD != 0)
        {
            if let Some(number) = self.retained.number(run) {
                let sequence = match first {
                    Some(KeyRelation::Same(sequence)) => sequence,
                    _ => {
                        self.read_next(run, |block, index| Some(block.entry(index)?.trailer().sequence()))?
                    }
                };
                return Ok(Some((number, sequence, selector & TOMBSTONE != 0)));
            }
            first = None;
            self.step();
        }
        Ok(None)
    }

    /// The run and the sequence number of the next entry of the new runs, if it has the key `key`.
    fn new_version(&self, key: &[u8]) -> Option<(usize, SequenceNumber)> {
        let next = self.new_entries.next().filter(|next| next.key == key)?;
        Some((next.run, next.trailer.sequence()))
    }

    fn push_new(&mut self) -> Result<()> {
        if let Some(next) = self.new_entries.next() {
            self.segmenter.push(next.run, next.trailer.is_delete());
        }
        self.new_entries.advance()
    }
}
