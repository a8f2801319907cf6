//! Cuts a sequence of entries, given by their runs, into segments (REMIX §4.1).
//!
//! All versions of a key stand in one segment as long as they fit one: where they would not fit the rest of a
//! segment, it is filled up with placeholders. The versions of a key that has more of them than a segment has
//! selectors begin a segment and run on through as many as they need; the anchors of those have sequence numbers.

use std::sync::Arc;

use bolide_base::key_bits::first_difference;
use bolide_base::{Error, Result, Trailer};
use bolide_table::PinnedBlock;

use super::Remix;
use super::anchors::AnchorList;
use super::forks::NO_FORK;
use super::run::{Position, ViewRun};
use super::segments::{SegmentWriter, Shape};
use super::selectors::{OLD, RUN_BITS, TOMBSTONE};

/// What is known of the first version of a key that was passed over without being read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key<'a> {
    /// The key.
    Known(&'a [u8]),
    /// Nothing: it is read if a segment turns out to start with it.
    Unread,
}

/// The first bit in which a key differs from the key before, [`NO_FORK`] if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fork {
    /// This.
    Known(u32),
    /// Found by comparing; keys that are unread are read for it.
    Compared,
}

pub(super) struct Segmenter {
    runs: Vec<Arc<ViewRun>>,
    segments: SegmentWriter,
    anchors: AnchorList,
    /// An entry of each run that is no later than the first one in no finished group, and how many it is before that:
    /// places in blocks are made out where they are needed.
    positions: Vec<(Position, u32)>,
    entries: u64,
    /// The versions of the last key: their selectors, and what is known of the key.
    group: Vec<u8>,
    key: Vec<u8>,
    key_known: bool,
    tag: u8,
    fork: Fork,
    /// The key before: the place of its first version, told as in `positions`, and the key if it is known.
    before: (usize, Position, u32),
    before_key: Vec<u8>,
    before_known: bool,
    /// Keys that were read to make anchors.
    keys_read: u64,
    /// The last block of each run that a key was read from: a view reads most blocks once, so that the cache, full of
    /// what readers want, does not keep them.
    in_hand: Vec<Option<(u32, PinnedBlock)>>,
}

impl Segmenter {
    pub(super) fn new(runs: &[Arc<ViewRun>], shape: Shape) -> Self {
        Self {
            runs: runs.to_vec(),
            segments: SegmentWriter::new(shape),
            anchors: AnchorList::default(),
            positions: vec![(Position::default(), 0); runs.len()],
            entries: 0,
            group: Vec::new(),
            key: Vec::new(),
            key_known: false,
            tag: 0,
            fork: Fork::Compared,
            before: (0, Position::default(), 0),
            before_key: Vec::new(),
            before_known: false,
            keys_read: 0,
            in_hand: runs.iter().map(|_| None).collect(),
        }
    }

    /// Starts the next key; its versions follow, newest first.
    #[inline]
    pub(super) fn start_key(&mut self, key: Key<'_>, tag: u8, fork: Fork) -> Result<()> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        (self.tag, self.fork) = (tag, fork);
        match key {
            Key::Known(key) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.key_known = true;
            }
            Key::Unread => self.key_known = false,
        }
        Ok(())
    }

    /// The next version of the key: it is the next entry of this run.
    #[inline]
    pub(super) fn push(&mut self, run: usize, tombstone: bool) {
        let old = if self.group.is_empty() { 0 } else { OLD };
        self.group.push(run as u8 | old | if tombstone { TOMBSTONE } else { 0 });
    }

    /// Adds a key with one version, of which nothing is known but its tag and its fork, as `start_key` and `push` do.
    #[inline]
    pub(super) fn push_lone(&mut self, run: usize, tombstone: bool, tag: u8, fork: Fork) -> Result<()> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        match (fork, self.positions.get_mut(run)) {
            (Fork::Known(fork), Some((position, ahead))) if self.segments.room() > 0 => {
                self.before = (run, *position, *ahead);
                self.before_known = false;
                *ahead += 1;
                self.entries += 1;
                let selector = run as u8 | if tombstone { TOMBSTONE } else { 0 };
                self.segments.push(selector, tag, fork);
            }
            _ => {
                self.start_key(Key::Unread, tag, fork)?;
                self.push(run, tombstone);
            }
        }
        Ok(())
    }

    /// Adds keys as [`push_lone`](Self::push_lone) does, whose forks are known.
    #[inline]
    pub(super) fn push_lones(
        &mut self,
        mut selectors: &[u8],
        mut tags: &[u8],
        fork: impl Fn(usize) -> u32,
    ) -> Result<()> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        let all = selectors.len();
        while let Some((&first, behind)) = selectors.split_first() {
            let done = all - selectors.len();
            let room = self.segments.room();
            if room == 0 {
                let (run, tombstone) = (usize::from(first & RUN_BITS), first & TOMBSTONE != 0);
                let tag = tags.first().copied().unwrap_or(0);
                self.push_lone(run, tombstone, tag, Fork::Known(fork(done)))?;
                self.finish_group()?;
                (selectors, tags) = (behind, tags.get(1..).unwrap_or_default());
                continue;
            }
            let (now, later) = selectors.split_at(room.min(selectors.len()));
            self.segments.push_all(now, tags, |index| fork(done + index));
            for selector in now {
                let run = usize::from(selector & RUN_BITS);
                if let Some((position, ahead)) = self.positions.get_mut(run) {
                    self.before = (run, *position, *ahead);
                    *ahead += 1;
                }
            }
            self.before_known = false;
            self.entries += now.len() as u64;
            (selectors, tags) = (later, tags.get(now.len()..).unwrap_or_default());
        }
        Ok(())
    }

    /// The key that [`start_key`](Self::start_key) was told last; empty if it was not.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        if self.key_known && !self.group.is_empty() { &self.key } else { &[] }
    }

    /// True while no key was started.
    #[inline]
    pub(super) fn has_key(&self) -> bool {
        self.key_known && !self.group.is_empty()
    }

    fn finish_group(&mut self) -> Result<()> {
        let group = std::mem::take(&mut self.group);
        if group.len() > self.segments.room() {
            self.segments.close();
        }
        let mut fork = self.fork_of(&group)?;
        for &selector in &group {
            let run = usize::from(selector & RUN_BITS);
            if self.segments.room() == 0 {
                self.open_segment(run, selector & OLD != 0)?;
            }
            self.segments.push(selector, self.tag, fork);
            fork = NO_FORK;
            if let Some((_, ahead)) = self.positions.get_mut(run) {
                *ahead += 1;
            }
        }
        self.entries += group.len() as u64;
        std::mem::swap(&mut self.key, &mut self.before_key);
        self.before_known = self.key_known;
        self.group = group;
        self.group.clear();
        Ok(())
    }

    /// The fork of the key of `group`, whose place becomes that of the key before.
    fn fork_of(&mut self, group: &[u8]) -> Result<u32> {
        let run = group.first().map_or(0, |selector| usize::from(selector & RUN_BITS));
        let (position, ahead) = self.positions.get(run).copied().unwrap_or_default();
        let place = (run, position, ahead);
        let before = std::mem::replace(&mut self.before, place);
        match self.fork {
            _ if !self.segments.shape.forks || self.entries == 0 => Ok(NO_FORK),
            Fork::Known(fork) => Ok(fork),
            Fork::Compared => {
                if !self.before_known {
                    self.before_key = self.read(before)?;
                }
                if !self.key_known {
                    self.key = self.read(place)?;
                    self.key_known = true;
                }
                Ok(first_difference(&self.before_key, &self.key).unwrap_or(NO_FORK))
            }
        }
    }

    fn read(&mut self, (run, position, ahead): (usize, Position, u32)) -> Result<Vec<u8>> {
        let at = self.runs.get(run).map(|run| run.advance(position, ahead));
        Ok(self.entry(run, at.unwrap_or_default())?.0)
    }

    /// Makes out where the next entry of each run is.
    fn settle_positions(&mut self) {
        for (run, (position, ahead)) in self.runs.iter().zip(&mut self.positions) {
            *position = run.advance(*position, std::mem::take(ahead));
        }
    }

    /// The key and the trailer of the entry of run number `run` at `at`.
    fn entry(&mut self, run: usize, at: Position) -> Result<(Vec<u8>, Trailer)> {
        let (Some(source), Some(held)) = (self.runs.get(run), self.in_hand.get_mut(run)) else {
            return Err(Error::internal("a selector without a run"));
        };
        if held.as_ref().is_none_or(|held| held.0 != at.block) {
            *held = Some((at.block, source.pinned_block(at.block, false)?));
        }
        let key = held.as_ref().and_then(|held| held.1.key(at.entry as usize));
        key.ok_or_else(|| source.damaged(at.block))
    }

    /// Starts a segment whose first entry is the next one of run number `run`.
    fn open_segment(&mut self, run: usize, continues: bool) -> Result<()> {
        let mut sequence = None;
        self.settle_positions();
        if continues || !self.key_known {
            let (position, _) = self.positions.get(run).copied().unwrap_or_default();
            let (key, trailer) = self.entry(run, position)?;
            self.keys_read += 1;
            self.key = key;
            self.key_known = true;
            sequence = continues.then(|| trailer.sequence());
        }
        if !self.anchors.push(&self.key, sequence) {
            return Err(Error::limit_exceeded("the anchor keys of a REMIX", u64::MAX, u32::MAX.into()));
        }
        self.segments.open(self.positions.iter().map(|&(position, _)| position));
        Ok(())
    }

    /// Ends the last segment. Answers also how many keys were read to make anchors.
    pub(super) fn finish(mut self) -> Result<(Remix, u64)> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        self.settle_positions();
        let mut at_end = self.runs.iter().zip(&self.positions);
        if at_end.any(|(run, (position, _))| position.block != run.blocks()) {
            return Err(Error::internal("a REMIX was built of other entries than its runs have"));
        }
        let tables = self.runs.iter().map(super::tables_of).collect();
        let damaged = || Error::internal("the segments of a REMIX have different lengths");
        let segments = self.segments.finish().ok_or_else(damaged)?;
        let remix = Remix { tables, segments, anchors: self.anchors.finish(), entries: self.entries };
        Ok((remix, self.keys_read))
    }
}
