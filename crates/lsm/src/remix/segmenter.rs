//! Divides a sequence of entries, given by their runs, into segments (REMIX §4.1).
//!
//! All versions of a key are in one segment if they fit. If they do not fit the rest of a segment, it is filled with
//! placeholders. A key with more versions than a segment has selectors starts a segment and continues in the next
//! ones, whose anchors have sequence numbers.

use std::sync::Arc;

use bolide_base::key_bits::first_difference;
use bolide_base::{Error, Result, Trailer};
use bolide_table::PinnedBlock;

use super::Remix;
use super::anchors::AnchorList;
use super::forks::NO_FORK;
use super::run::{BlockPosition, ViewRun};
use super::segments::{SegmentLayout, SegmentWriter};
use super::selectors::{OLD, RUN_BITS, TOMBSTONE};

/// The key of the entries to add.
#[derive(Debug, Clone, Copy)]
pub(super) enum InputKey<'a> {
    /// The key.
    Known(&'a [u8]),
    /// Not read yet. The segmenter reads it if a segment starts with it.
    Unread,
}

/// The first bit in which a key differs from the previous key; [`NO_FORK`] if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fork {
    /// The bit.
    Known(u32),
    /// Unknown: the segmenter compares the keys, and reads unread ones.
    Compared,
}

pub(super) struct Segmenter {
    runs: Vec<Arc<ViewRun>>,
    segments: SegmentWriter,
    anchors: AnchorList,
    /// For each run, the next entry as an earlier position and the number of entries in between. Positions are
    /// normalized only where they are needed.
    positions: Vec<(BlockPosition, u32)>,
    entries: u64,
    /// The selectors of the versions of the current key, and the key if it is known.
    group: Vec<u8>,
    key: Vec<u8>,
    key_known: bool,
    tag: u8,
    fork: Fork,
    /// The previous key: the run and position of its first version, as in `positions`, and the key if it is known.
    before: (usize, BlockPosition, u32),
    before_key: Vec<u8>,
    before_known: bool,
    /// The number of keys read for anchors.
    keys_read: u64,
    /// For each run, the last block that a key was read from. A build reads most blocks once, so that it does not fill the
    /// cache.
    pinned: Vec<Option<(u32, PinnedBlock)>>,
}

impl Segmenter {
    pub(super) fn new(runs: &[Arc<ViewRun>], layout: SegmentLayout) -> Self {
        Self {
            runs: runs.to_vec(),
            segments: SegmentWriter::new(layout),
            anchors: AnchorList::default(),
            positions: vec![(BlockPosition::default(), 0); runs.len()],
            entries: 0,
            group: Vec::new(),
            key: Vec::new(),
            key_known: false,
            tag: 0,
            fork: Fork::Compared,
            before: (0, BlockPosition::default(), 0),
            before_key: Vec::new(),
            before_known: false,
            keys_read: 0,
            pinned: runs.iter().map(|_| None).collect(),
        }
    }

    /// Starts the next key; its versions follow, newest first.
    #[inline]
    pub(super) fn start_key(&mut self, key: InputKey<'_>, tag: u8, fork: Fork) -> Result<()> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        (self.tag, self.fork) = (tag, fork);
        match key {
            InputKey::Known(key) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                self.key_known = true;
            }
            InputKey::Unread => self.key_known = false,
        }
        Ok(())
    }

    /// Adds the next version of the key: the next entry of run number `run`.
    #[inline]
    pub(super) fn push(&mut self, run: usize, tombstone: bool) {
        let old = if self.group.is_empty() { 0 } else { OLD };
        self.group.push(run as u8 | old | if tombstone { TOMBSTONE } else { 0 });
    }

    /// Adds an unread key with one version, as `start_key` and `push` do.
    #[inline]
    pub(super) fn push_single(&mut self, run: usize, tombstone: bool, tag: u8, fork: Fork) -> Result<()> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        match (fork, self.positions.get_mut(run)) {
            (Fork::Known(fork), Some((position, steps))) if self.segments.room() > 0 => {
                self.before = (run, *position, *steps);
                self.before_known = false;
                *steps += 1;
                self.entries += 1;
                let selector = run as u8 | if tombstone { TOMBSTONE } else { 0 };
                self.segments.push(selector, tag, fork);
            }
            _ => {
                self.start_key(InputKey::Unread, tag, fork)?;
                self.push(run, tombstone);
            }
        }
        Ok(())
    }

    /// Adds keys as [`push_single`](Self::push_single) does. Their forks are known.
    #[inline]
    pub(super) fn push_singles(
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
                self.push_single(run, tombstone, tag, Fork::Known(fork(done)))?;
                self.finish_group()?;
                (selectors, tags) = (behind, tags.get(1..).unwrap_or_default());
                continue;
            }
            let (now, later) = selectors.split_at(room.min(selectors.len()));
            self.segments.push_all(now, tags, |index| fork(done + index));
            for selector in now {
                let run = usize::from(selector & RUN_BITS);
                if let Some((position, steps)) = self.positions.get_mut(run) {
                    self.before = (run, *position, *steps);
                    *steps += 1;
                }
            }
            self.before_known = false;
            self.entries += now.len() as u64;
            (selectors, tags) = (later, tags.get(now.len()..).unwrap_or_default());
        }
        Ok(())
    }

    /// The current key; empty if it is unread or no key is started.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        if self.key_known && !self.group.is_empty() { &self.key } else { &[] }
    }

    /// Whether a key is started and known.
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
            if let Some((_, steps)) = self.positions.get_mut(run) {
                *steps += 1;
            }
        }
        self.entries += group.len() as u64;
        std::mem::swap(&mut self.key, &mut self.before_key);
        self.before_known = self.key_known;
        self.group = group;
        self.group.clear();
        Ok(())
    }

    /// The fork of the key of `group`. Makes this key the previous one.
    fn fork_of(&mut self, group: &[u8]) -> Result<u32> {
        let run = group.first().map_or(0, |selector| usize::from(selector & RUN_BITS));
        let (position, steps) = self.positions.get(run).copied().unwrap_or_default();
        let first = (run, position, steps);
        let before = std::mem::replace(&mut self.before, first);
        match self.fork {
            _ if !self.segments.layout.forks || self.entries == 0 => Ok(NO_FORK),
            Fork::Known(fork) => Ok(fork),
            Fork::Compared => {
                if !self.before_known {
                    self.before_key = self.read(before)?;
                }
                if !self.key_known {
                    self.key = self.read(first)?;
                    self.key_known = true;
                }
                Ok(first_difference(&self.before_key, &self.key).unwrap_or(NO_FORK))
            }
        }
    }

    fn read(&mut self, (run, position, steps): (usize, BlockPosition, u32)) -> Result<Vec<u8>> {
        let at = self.runs.get(run).map(|run| run.advance(position, steps));
        Ok(self.entry(run, at.unwrap_or_default())?.0)
    }

    /// Replaces the positions by those of the next entries.
    fn normalize_positions(&mut self) {
        for (run, (position, steps)) in self.runs.iter().zip(&mut self.positions) {
            *position = run.advance(*position, std::mem::take(steps));
        }
    }

    /// The key and the trailer of the entry of run number `run` at `at`.
    fn entry(&mut self, run: usize, at: BlockPosition) -> Result<(Vec<u8>, Trailer)> {
        let (Some(source), Some(pinned)) = (self.runs.get(run), self.pinned.get_mut(run)) else {
            return Err(Error::internal("a selector refers to no run"));
        };
        if pinned.as_ref().is_none_or(|pinned| pinned.0 != at.block) {
            *pinned = Some((at.block, source.pinned_block(at.block, false)?));
        }
        let key = pinned.as_ref().and_then(|pinned| pinned.1.key(at.entry as usize));
        key.ok_or_else(|| source.damaged(at.block))
    }

    /// Opens a segment whose first entry is the next one of run number `run`.
    fn open_segment(&mut self, run: usize, continues: bool) -> Result<()> {
        let mut sequence = None;
        self.normalize_positions();
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

    /// Finishes the REMIX. Also returns the number of keys read for anchors.
    pub(super) fn finish(mut self) -> Result<(Remix, u64)> {
        if !self.group.is_empty() {
            self.finish_group()?;
        }
        self.normalize_positions();
        let mut at_end = self.runs.iter().zip(&self.positions);
        if at_end.any(|(run, (position, _))| position.block != run.blocks()) {
            return Err(Error::internal("the entries of a REMIX differ from those of its runs"));
        }
        let tables = self.runs.iter().map(super::tables_of).collect();
        let internal = || Error::internal("the segments of a REMIX have different lengths");
        let segments = self.segments.finish().ok_or_else(internal)?;
        let remix = Remix { tables, segments, anchors: self.anchors.finish(), entries: self.entries };
        Ok((remix, self.keys_read))
    }
}
