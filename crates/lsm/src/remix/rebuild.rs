//! A REMIX from an older one and further runs (REMIX §4.3).
//!
//! The runs that the older view has are one sorted sequence already. For each key of the further runs the merge
//! point in it is found as every seek finds its place: by the anchors, then in one segment, reading a key or a few.
//! The entries between two merge points are taken over from the old selectors unread. Where a segment of the new
//! REMIX starts with one of them, its key is an old anchor or is read: one key for each segment at most. Where both
//! views have forks, those tell where keys part: neither the keys around a merge point nor those behind it are read but for
//! the one that the forks lead to.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bolide_base::{MAX_SEQUENCE, Result, SequenceNumber};
use bolide_table::PinnedBlock;

use super::forks::{FAR, NO_FORK, absolute};
use super::new_runs::FurtherEntries;
use super::retained_runs::KeptRuns;
use super::run::ViewRun;
use super::search::{Beside, LastBlocks, Place};
use super::segmenter::{Fork, Key, Segmenter};
use super::segments::{MAX_WIDTH, Segment, tag_of};
use super::selectors::{OLD, RUN_BITS, TOMBSTONE, below, mask_of_old, mask_where};
use super::view::SortedView;
use super::{Remix, RemixOptions, contradiction};

/// What a rebuild cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RebuildCost {
    /// Keys of the further runs: as many merge points were searched.
    pub merge_points: u64,
    /// Entries that were taken over without being read.
    pub taken_over: u64,
    /// Keys that were read to become anchors.
    pub anchors_read: u64,
}

impl Remix {
    /// The REMIX of `runs`, the newest first, with the help of `old`. Sstables that `old` orders may stand in other runs
    /// now, together with others; those that are not among `runs` are left out. The further sstables are read
    /// whole, and stay in the cache if it has most of the others; of these some blocks are read, as told above.
    ///
    /// Costs about as much as [`build`](Self::build) once the further sstables have as many entries as the others. Where
    /// tags or forks are wanted that `old` does not have, everything is read.
    ///
    /// # Errors
    /// Those of [`build`](Self::build).
    pub fn rebuild(
        old: &SortedView,
        runs: &[Arc<ViewRun>],
        options: &RemixOptions,
    ) -> Result<(Self, RebuildCost)> {
        let kept = KeptRuns::new(old.runs(), runs);
        let lacks = options.tags && !old.remix().has_tags() || options.forks && !old.remix().has_forks();
        if lacks && kept.is_any() {
            return Ok((Self::build(runs, options)?, RebuildCost::default()));
        }
        let shape = options.shape(runs)?;
        let mut rebuild = Rebuild {
            old,
            kept,
            tags: shape.tags,
            forks: shape.forks,
            segmenter: Segmenter::new(runs, shape),
            blocks: LastBlocks::new(old.runs()),
            at: Place { segment: 0, index: 0 },
            last: Last::Unknown,
            further: FurtherEntries::new(old, runs)?,
            cost: RebuildCost::default(),
        };
        rebuild.run()?;
        let (remix, anchors_read) = rebuild.segmenter.finish()?;
        Ok((remix, RebuildCost { anchors_read, ..rebuild.cost }))
    }
}

/// What the last key of the new view is to the entry of the old one that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// The key before it.
    Before,
    /// A further key, which parts from its key in this bit first.
    Further(u32),
    /// It is not known where they part.
    Unknown,
}

/// The key that entries of the old view are versions of.
struct OldKey {
    /// Whether a version of it was taken over.
    is_started: bool,
    fork: Fork,
}

/// A bit for each entry of `segment` that is the only version of its key, and of which forks, if there are any, tell where that key parts from
/// the one before; not for the first one, whose key is known. `runs_on`: the next segment starts with versions of the last key.
#[inline]
fn lone_keys(segment: Segment<'_>, runs_on: bool) -> u64 {
    let entries = below(segment.entries());
    let old = mask_of_old(segment.selectors()) & entries;
    let last = entries & !(entries >> 1);
    let goes_on = old >> 1 | if runs_on { last } else { 0 };
    let far = segment.forks().map_or(0, |(forks, _)| mask_where(forks, u8::MAX, FAR));
    entries & !1 & !old & !goes_on & !far
}

struct Rebuild<'a> {
    old: &'a SortedView,
    kept: KeptRuns,
    /// Whether the new view has tags.
    tags: bool,
    /// Whether it has forks.
    forks: bool,
    segmenter: Segmenter,
    /// Blocks of the old runs.
    blocks: LastBlocks<'a>,
    /// The first old entry that was not taken over yet; always the first version of a key.
    at: Place,
    last: Last,
    further: FurtherEntries<'a>,
    cost: RebuildCost,
}

impl Rebuild<'_> {
    fn run(&mut self) -> Result<()> {
        let mut key = Vec::new();
        while let Some(next) = self.further.next() {
            key.clear();
            key.extend_from_slice(next.key);
            let (remix, runs) = (self.old.remix(), self.old.runs());
            let (point, beside) = match next.leaf {
                Some(leaf) => remix.locate_beside(leaf, runs, &key, MAX_SEQUENCE, &mut self.blocks)?,
                None => (remix.locate(runs, &key, MAX_SEQUENCE, &mut self.blocks)?.0, Beside::Unknown),
            };
            self.take_over(point)?;
            self.cost.merge_points += 1;
            let tag = if self.tags { tag_of(&key) } else { 0 };
            self.segmenter.start_key(Key::Known(&key), tag, self.fork_of_further(beside))?;
            self.last = match self.merge_versions(&key, beside)? {
                true => Last::Before,
                false => self.further_before(beside),
            };
        }
        self.take_over(Place { segment: self.old.remix().segments(), index: 0 })
    }

    /// The fork of the old entry at `at`, if that tells it.
    fn old_fork(&self) -> Option<u32> {
        let (forks, base) = self.old.remix().segments.get(self.at.segment).forks()?;
        absolute(forks, base, self.at.index)
    }

    /// The fork of a further key whose place is `at`.
    ///
    /// Of three keys that ascend, the first parts from the last where it parts from the middle one or the middle one
    /// from the last, whatever comes first.
    fn fork_of_further(&self, beside: Beside) -> Fork {
        let fork = match (self.last, beside) {
            (Last::Before, Beside::After(bit)) => Some(bit),
            (Last::Before, Beside::Before(bit)) => self.old_fork().filter(|&fork| fork < bit),
            (Last::Before, Beside::Same(_)) => self.old_fork(),
            (Last::Further(bit), Beside::Same(_)) => Some(bit),
            _ => None,
        };
        fork.map_or(Fork::Compared, Fork::Known)
    }

    /// What a further key is to the entry at `at`, its place.
    fn further_before(&self, beside: Beside) -> Last {
        match (beside, self.old_fork()) {
            (Beside::Before(bit), _) => Last::Further(bit),
            (Beside::After(bit), Some(fork)) if fork < bit => Last::Further(fork),
            _ => Last::Unknown,
        }
    }

    /// The entry at `at`: its old run and selector.
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
            self.kept.pass(run);
        }
        self.at.index += 1;
        if self.at.index >= self.old.remix().segments.get(self.at.segment).entries() {
            self.at = Place { segment: self.at.segment + 1, index: 0 };
        }
    }

    /// Takes over the entries up to `end`, where a key begins.
    fn take_over(&mut self, end: Place) -> Result<()> {
        let old = self.old.remix();
        let mut key = OldKey { is_started: false, fork: Fork::Compared };
        while self.at < end {
            let segment = old.segments.get(self.at.segment);
            let runs_on = old.segments.get(self.at.segment + 1).starts_old();
            let entries = segment.entries();
            let to = if self.at.segment < end.segment { entries } else { end.index.min(entries) };
            let lone = lone_keys(segment, runs_on);
            while self.at.index < to {
                let all = (lone >> self.at.index).trailing_ones() as usize;
                let stretch = self.at.index..to.min(self.at.index + all);
                let knows_fork = !self.forks || self.last == Last::Before;
                if !stretch.is_empty() && knows_fork && self.kept.is_steady(stretch.len()) {
                    self.take_over_all(segment, stretch)?;
                } else {
                    self.take_over_one(segment, runs_on, &mut key)?;
                }
            }
            if to == entries {
                self.at = Place { segment: self.at.segment + 1, index: 0 };
            }
        }
        Ok(())
    }

    /// Takes over a stretch of [`lone_keys`].
    #[inline]
    fn take_over_all(&mut self, segment: Segment<'_>, stretch: Range<usize>) -> Result<()> {
        let selectors = segment.selectors().get(stretch.clone()).unwrap_or_default();
        let mut new = [0; MAX_WIDTH];
        let new = new.get_mut(..selectors.len()).unwrap_or_default();
        self.kept.pass_all(selectors, new);
        let tags = segment.tags().get(stretch.clone()).unwrap_or_default();
        let (forks, base) = segment.forks().filter(|_| self.forks).unwrap_or_default();
        let forks = forks.get(stretch.clone()).unwrap_or_default();
        self.segmenter.push_lones(new, tags, |index| absolute(forks, base, index).unwrap_or(NO_FORK))?;
        self.cost.taken_over += stretch.len() as u64;
        self.last = Last::Before;
        self.at.index = stretch.end;
        Ok(())
    }

    /// Takes over the entry at `at`, which is in `segment`; the last key of that may run on in the next one. `key` is the key that it may be an
    /// older version of.
    fn take_over_one(&mut self, segment: Segment<'_>, runs_on: bool, key: &mut OldKey) -> Result<()> {
        let (selectors, index) = (segment.selectors(), self.at.index);
        let selector = selectors.get(index).copied().unwrap_or(0);
        if selector & OLD == 0 {
            let fork = || segment.forks().and_then(|(forks, base)| absolute(forks, base, index));
            *key = OldKey { is_started: false, fork: self.fork_of_old(fork) };
        }
        self.at.index += 1;
        let run = usize::from(selector & RUN_BITS);
        let number = self.kept.number(run);
        self.kept.pass(run);
        let Some(number) = number else { return Ok(()) };
        self.cost.taken_over += 1;
        self.last = Last::Before;
        let (tag, tombstone) = (segment.tags().get(index).copied().unwrap_or(0), selector & TOMBSTONE != 0);
        let goes_on = || match index + 1 < segment.entries() {
            true => selectors.get(index + 1).is_some_and(|next| next & OLD != 0),
            false => runs_on,
        };
        if index > 0 && !key.is_started && !goes_on() {
            return self.segmenter.push_lone(number, tombstone, tag, key.fork);
        }
        if !key.is_started {
            let anchor = (index == 0).then(|| self.old.remix().anchors.key(self.at.segment));
            self.segmenter.start_key(anchor.as_deref().map_or(Key::Unread, Key::Known), tag, key.fork)?;
            key.is_started = true;
        }
        self.segmenter.push(number, tombstone);
        Ok(())
    }

    /// The fork of the old key that begins next, of which `old_fork` is what the old view says. Nobody knows yet what the last
    /// key of the new view is to the one behind it.
    #[inline]
    fn fork_of_old(&mut self, old_fork: impl FnOnce() -> Option<u32>) -> Fork {
        let fork = match std::mem::replace(&mut self.last, Last::Unknown) {
            _ if !self.forks => Some(NO_FORK),
            Last::Before => old_fork(),
            Last::Further(bit) => Some(bit),
            Last::Unknown => None,
        };
        fork.map_or(Fork::Compared, Fork::Known)
    }

    /// Merges the versions of `key`, a further key that lies at `at` as `beside` tells, in the further runs with those, if any,
    /// that the old view has; answers whether it has any.
    fn merge_versions(&mut self, key: &[u8], beside: Beside) -> Result<bool> {
        let is_old = match beside {
            Beside::Same(_) => true,
            Beside::Before(_) | Beside::After(_) => false,
            Beside::Unknown => self.is_next(key)?,
        };
        let mut first = Some(beside);
        while is_old && let Some((number, sequence, tombstone)) = self.old_version(first.take())? {
            while let Some((further, newer)) = self.further_version(key)
                && newer.cmp(&sequence).then(number.cmp(&further)) == Ordering::Greater
            {
                self.push_further()?;
            }
            self.segmenter.push(number, tombstone);
            self.step();
        }
        while self.further_version(key).is_some() {
            self.push_further()?;
        }
        Ok(is_old)
    }

    /// Asks the block of the entry at `at`, one of run `run`, about it.
    fn prefetch_next<T>(&mut self, run: usize, ask: impl FnOnce(&PinnedBlock, usize) -> Option<T>) -> Result<T> {
        let source = self.old.runs().get(run).ok_or_else(contradiction)?;
        let position = self.old.remix().segments.get(self.at.segment).position(source, run, self.at.index);
        let block = self.blocks.block(run, position.block)?;
        ask(block, position.entry as usize).ok_or_else(|| source.damaged(position.block))
    }

    /// True if the entry at `at` is one of `key`.
    fn is_next(&mut self, key: &[u8]) -> Result<bool> {
        let Some((run, _)) = self.selector() else { return Ok(false) };
        self.prefetch_next(run, |block, index| Some(block.difference(index, key)?.order.is_eq()))
    }

    /// The kept version at `at` or behind of the key that `at` has a version of, its first if `first`, whose sequence number may be known: its new run,
    /// its sequence number, whether it is a tombstone.
    fn old_version(&mut self, first: Option<Beside>) -> Result<Option<(usize, SequenceNumber, bool)>> {
        let mut first = first;
        while let Some((run, selector)) = self.selector()
            && (first.is_some() || selector & OLD != 0)
        {
            if let Some(number) = self.kept.number(run) {
                let sequence = match first {
                    Some(Beside::Same(sequence)) => sequence,
                    _ => self.prefetch_next(run, |block, index| Some(block.entry(index)?.trailer().sequence()))?,
                };
                return Ok(Some((number, sequence, selector & TOMBSTONE != 0)));
            }
            first = None;
            self.step();
        }
        Ok(None)
    }

    /// The next entry of the further runs if it is one of `key`: its run and its sequence number.
    fn further_version(&self, key: &[u8]) -> Option<(usize, SequenceNumber)> {
        let next = self.further.next().filter(|next| next.key == key)?;
        Some((next.run, next.trailer.sequence()))
    }

    fn push_further(&mut self) -> Result<()> {
        if let Some(next) = self.further.next() {
            self.segmenter.push(next.run, next.trailer.is_delete());
        }
        self.further.pass()
    }
}
