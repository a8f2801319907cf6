//! The cursors against a model that sorts and filters all entries at once.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bolide_base::{EntryKind, Error, Result, SequenceNumber, Trailer};
use bolide_table::{EntryHead, InternalCursor};

use super::{Bounds, MergingCursor, RunCursor, RunTables, VisibleCursor};
use crate::memtable::{Memtable, MemtableCursor, Visibility};
use crate::range_tombstones::{RangeTombstone, RangeTombstones};

type Entry = (Vec<u8>, Trailer, Vec<u8>);

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % limit as u64) as usize
    }

    fn one_in(&mut self, limit: usize) -> bool {
        self.below(limit) == 0
    }
}

/// A countdown of calls; the one that reaches zero fails.
type Fuse = Arc<AtomicUsize>;

fn burn(fuse: &Fuse) -> Result<()> {
    match fuse.load(Ordering::Relaxed) {
        0 => return Ok(()),
        1 => {}
        left => {
            fuse.store(left - 1, Ordering::Relaxed);
            return Ok(());
        }
    }
    fuse.store(0, Ordering::Relaxed);
    Err(Error::internal("burnt"))
}

/// A cursor over sorted entries in memory. If their number is odd, most steps need no read.
struct VecCursor {
    entries: Arc<Vec<Entry>>,
    at: Option<usize>,
    fuse: Fuse,
}

impl VecCursor {
    fn new(entries: Arc<Vec<Entry>>, fuse: &Fuse) -> Self {
        Self { entries, at: None, fuse: fuse.clone() }
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = None;
        burn(&self.fuse)?;
        self.at = at.filter(|&at| at < self.entries.len());
        Ok(())
    }

    fn entry(&self) -> Option<&Entry> {
        self.entries.get(self.at?)
    }
}

impl InternalCursor for VecCursor {
    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        self.entry().map_or(&[], |(key, _, _)| key)
    }

    fn trailer(&self) -> Trailer {
        self.entry().map_or(Trailer::from_bits(0), |(_, trailer, _)| *trailer)
    }

    fn value(&self) -> &[u8] {
        self.entry().map_or(&[], |(_, _, value)| value)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.go(self.entries.len().checked_sub(1))
    }

    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        let at = self.entries.partition_point(|(entry, trailer, _)| {
            (entry.as_slice(), Reverse(trailer.sequence())) < (key, Reverse(sequence))
        });
        self.go(Some(at))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        let at = self.entries.partition_point(|(entry, _, _)| entry.as_slice() < key);
        self.go(at.checked_sub(1))
    }

    fn next(&mut self) -> Result<()> {
        match self.at {
            Some(at) => self.go(Some(at + 1)),
            None => Ok(()),
        }
    }

    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        let at = self.at.filter(|at| at % 5 != 4 && self.supports_try_next_distinct())?;
        let [current, next] = self.entries.get(at..at + 2)? else { return None };
        if next.0 == current.0 {
            return None;
        }
        self.at = Some(at + 1);
        EntryHead::of(self)
    }

    fn supports_try_next_distinct(&self) -> bool {
        self.entries.len() % 2 == 1
    }

    fn prev(&mut self) -> Result<()> {
        match self.at {
            Some(at) => self.go(at.checked_sub(1)),
            None => Ok(()),
        }
    }
}

/// Sstables in memory, some of them empty.
struct VecRun(Vec<Arc<Vec<Entry>>>, Fuse);

impl RunTables for VecRun {
    type Cursor = VecCursor;

    fn tables(&self) -> usize {
        self.0.len()
    }

    fn position(&self, key: &[u8]) -> usize {
        self.0.partition_point(|table| table.last().is_none_or(|(last, _, _)| last.as_slice() < key))
    }

    fn open(&self, index: usize, _fill_cache: bool) -> Result<Option<VecCursor>> {
        burn(&self.1)?;
        Ok(self.0.get(index).map(|entries| VecCursor::new(entries.clone(), &self.1)))
    }
}

enum TestSource {
    Memtable(Box<MemtableCursor>),
    Vec(VecCursor),
    Run(RunCursor<VecRun>),
}

macro_rules! each {
    ($source:expr, $cursor:ident => $call:expr) => {
        match $source {
            Self::Memtable($cursor) => $call,
            Self::Vec($cursor) => $call,
            Self::Run($cursor) => $call,
        }
    };
}

impl InternalCursor for TestSource {
    fn valid(&self) -> bool {
        each!(self, cursor => cursor.valid())
    }
    fn key(&self) -> &[u8] {
        each!(self, cursor => cursor.key())
    }
    fn trailer(&self) -> Trailer {
        each!(self, cursor => cursor.trailer())
    }
    fn value(&self) -> &[u8] {
        each!(self, cursor => cursor.value())
    }
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_first())
    }
    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, cursor => cursor.seek_to_last())
    }
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()> {
        each!(self, cursor => cursor.seek(key, sequence))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        each!(self, cursor => cursor.seek_before(key))
    }
    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        each!(self, cursor => cursor.prepare_seek(key, sequence));
    }
    fn prepare_next_stage(&mut self) -> bool {
        each!(self, cursor => cursor.prepare_next_stage())
    }
    fn next(&mut self) -> Result<()> {
        each!(self, cursor => cursor.next())
    }
    fn next_entry(&mut self) -> Result<Option<EntryHead>> {
        each!(self, cursor => cursor.next_entry())
    }
    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        each!(self, cursor => cursor.try_next_distinct())
    }
    fn supports_try_next_distinct(&self) -> bool {
        !matches!(self, Self::Memtable(_))
    }
    fn yields_keys_once(&self) -> bool {
        each!(self, cursor => cursor.yields_keys_once())
    }
    fn prev(&mut self) -> Result<()> {
        each!(self, cursor => cursor.prev())
    }
}

/// A random history, distributed over random sources.
struct History {
    seed: u64,
    entries: Vec<Entry>,
    components: Vec<Vec<Entry>>,
    newest: SequenceNumber,
    keys: usize,
    ranges: Vec<RangeTombstone>,
    fuse: Fuse,
}

fn key(number: usize) -> Vec<u8> {
    // Some keys are longer than the compared heads, and some are prefixes of others.
    match number % 3 {
        0 => format!("{:03}", number / 3).into_bytes(),
        1 => format!("{:03}-a long common beginning {}", number / 3, number % 7).into_bytes(),
        _ => format!("{:03}-a long common beginning {}\0", number / 3, number % 7).into_bytes(),
    }
}

impl History {
    fn new(seed: u64, random: &mut Random) -> Self {
        let keys = [3, 20, 200][random.below(3)];
        let count = random.below(400);
        let components = 1 + random.below(16);
        let hot = random.below(keys);
        let mut entries = Vec::new();
        let mut spread = vec![Vec::new(); components];
        for sequence in 1..=count as u64 {
            let number = if random.one_in(3) { hot } else { random.below(keys) };
            let kind = if random.one_in(4) { EntryKind::Delete } else { EntryKind::Put };
            let length = if random.one_in(60) { 20_000 } else { random.below(9) };
            let entry = (key(number), Trailer::new(sequence, kind), vec![sequence as u8; length]);
            spread[random.below(components)].push(entry.clone());
            entries.push(entry);
        }
        for part in spread.iter_mut().chain([&mut entries]) {
            part.sort_by_key(|(key, trailer, _)| (key.clone(), Reverse(trailer.sequence())));
        }
        let ranges = (0..[0, 0, 1, 5][random.below(4)])
            .map(|_| {
                let (start, end) = (random.below(keys), random.below(keys));
                let sequence = 1 + random.below(count + 1) as u64;
                RangeTombstone { start: key(start.min(end)), end: key(start.max(end)), sequence }
            })
            .collect();
        let fuse = Fuse::default();
        Self { seed, entries, components: spread, newest: count as u64, keys, ranges, fuse }
    }

    /// Each component as a random kind of source with at least the entries that are visible at `sequence`.
    fn sources(&self, sequence: SequenceNumber, random: &mut Random) -> Vec<TestSource> {
        let source = |entries: &Vec<Entry>, random: &mut Random| match random.below(3) {
            0 => {
                let memtable = Arc::new(Memtable::new());
                for (key, trailer, value) in entries {
                    memtable.insert(key, *trailer, value);
                }
                let all = random.one_in(2);
                let visibility = if all { Visibility::All } else { Visibility::At(sequence) };
                TestSource::Memtable(Box::new(memtable.cursor(visibility)))
            }
            1 => TestSource::Vec(VecCursor::new(Arc::new(entries.clone()), &self.fuse)),
            _ => {
                TestSource::Run(RunCursor::new(VecRun(self.tables(entries, random), self.fuse.clone()), true))
            }
        };
        self.components.iter().map(|entries| source(entries, random)).collect()
    }

    fn tables(&self, entries: &[Entry], random: &mut Random) -> Vec<Arc<Vec<Entry>>> {
        let mut tables = Vec::new();
        for versions in entries.chunk_by(|left, right| left.0 == right.0) {
            if tables.is_empty() || random.one_in(5) {
                tables.push(Vec::new());
            }
            tables.last_mut().unwrap().extend_from_slice(versions);
        }
        tables.into_iter().map(Arc::new).collect()
    }

    /// The entries that are visible at `sequence` within `bounds`.
    fn visible(&self, sequence: SequenceNumber, bounds: &Bounds) -> Vec<Entry> {
        let mut visible = Vec::new();
        for versions in self.entries.chunk_by(|left, right| left.0 == right.0) {
            let newest = versions.iter().find(|(_, trailer, _)| trailer.sequence() <= sequence);
            let Some((key, trailer, value)) = newest else { continue };
            let covered = self.ranges.iter().any(|range| {
                range.contains(key) && range.sequence <= sequence && range.sequence > trailer.sequence()
            });
            if !trailer.is_delete() && !covered && bounds.contains(key) {
                visible.push((key.clone(), *trailer, value.clone()));
            }
        }
        visible
    }

    fn some_key(&self, random: &mut Random) -> Vec<u8> {
        let mut key = key(random.below(self.keys + 2));
        match random.below(6) {
            0 => key.push(0),
            1 => drop(key.pop()),
            _ => {}
        }
        key
    }

    fn bounds(&self, random: &mut Random) -> Bounds {
        let (lower, upper) = (self.some_key(random), self.some_key(random));
        match random.below(6) {
            0 => Bounds::of(lower..upper),
            1 => Bounds::of(lower..=upper),
            2 => Bounds::of(lower..),
            3 => Bounds::prefix(&lower[..lower.len().min(2)]),
            _ => Bounds::all(),
        }
    }
}

fn current<S: InternalCursor>(cursor: &VisibleCursor<S>) -> Option<(Vec<u8>, SequenceNumber, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.sequence(), cursor.value().to_vec()))
}

/// Moves at random and compares each position with the model's.
fn walk(history: &History, random: &mut Random) {
    let sequence = random.below(history.newest as usize + 2) as u64;
    let bounds = history.bounds(random);
    let visible = history.visible(sequence, &bounds);
    let ranges = Arc::new(RangeTombstones::from_tombstones(history.ranges.clone()).unwrap());
    let mut cursor = VisibleCursor::new(history.sources(sequence, random), sequence, ranges, bounds.clone());
    let mut at = None;
    for step in 0..120 {
        let target = history.some_key(random);
        let fails = random.one_in(40);
        history.fuse.store(if fails { 1 + random.below(30) } else { 0 }, Ordering::Relaxed);
        let (result, moved) = match random.below(16) {
            0 => (cursor.seek_to_first(), Some(0)),
            1 => (cursor.seek_to_last(), visible.len().checked_sub(1)),
            2 => (cursor.seek(&target), Some(visible.partition_point(|(key, _, _)| *key < target))),
            3 => (
                cursor.seek_for_prev(&target),
                visible.partition_point(|(key, _, _)| *key <= target).checked_sub(1),
            ),
            4..10 => (cursor.next(), at.map(|at| at + 1)),
            _ => (cursor.prev(), at.and_then(|at: usize| at.checked_sub(1))),
        };
        history.fuse.store(0, Ordering::Relaxed);
        at = moved.filter(|&at| at < visible.len() && result.is_ok());
        assert!(fails || result.is_ok());
        let expected = at
            .map(|at| &visible[at])
            .map(|(key, trailer, value)| (key.clone(), trailer.sequence(), value.clone()));
        assert_eq!(
            current(&cursor),
            expected,
            "seed {}, step {step}, at {sequence} in {bounds:?}",
            history.seed
        );
    }
}

/// The same for the merging cursor, which returns every version.
fn walk_merged(history: &History, random: &mut Random) {
    let sources = (history.components.iter())
        .map(|entries| VecCursor::new(Arc::new(entries.clone()), &history.fuse))
        .collect();
    let mut cursor = MergingCursor::new(sources);
    let all = &history.entries;
    let mut at: Option<usize> = None;
    for step in 0..120 {
        let target = history.some_key(random);
        let sequence = random.below(history.newest as usize + 2) as u64;
        let position = all.partition_point(|(key, trailer, _)| {
            (key, Reverse(trailer.sequence())) < (&target, Reverse(sequence))
        });
        at = match random.below(16) {
            0 => cursor.seek_to_first().map(|()| Some(0)),
            1 => cursor.seek_to_last().map(|()| all.len().checked_sub(1)),
            2 => cursor.seek(&target, sequence).map(|()| Some(position)),
            3 => cursor
                .seek_before(&target)
                .map(|()| all.partition_point(|(key, _, _)| *key < target).checked_sub(1)),
            4 if at.is_some_and(|at| position >= at) => {
                cursor.seek_forward(&target, sequence).map(|()| Some(position))
            }
            5 => {
                let (before, stepped) = (cursor.key().to_vec(), cursor.try_next_distinct());
                assert!(stepped.is_none() || stepped == EntryHead::of(&cursor), "seed {}", history.seed);
                assert!(stepped.is_none() || cursor.key() != before, "seed {}", history.seed);
                Ok(at.map(|at| at + usize::from(stepped.is_some())))
            }
            4..10 => cursor.next().map(|()| at.map(|at| at + 1)),
            _ => cursor.prev().map(|()| at.and_then(|at| at.checked_sub(1))),
        }
        .unwrap()
        .filter(|&at| at < all.len());
        let expected = at.map(|at| (all[at].0.as_slice(), all[at].1, all[at].2.as_slice()));
        let current = cursor.valid().then(|| (cursor.key(), cursor.trailer(), cursor.value()));
        assert_eq!(current, expected, "seed {}, step {step}", history.seed);
    }
}

#[test]
fn every_position_matches_the_model() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let history = History::new(seed, &mut random);
        for _ in 0..4 {
            walk(&history, &mut random);
        }
        walk_merged(&history, &mut random);
    }
}

/// The number of calls that reach a source.
fn calls(history: &History, walk: impl FnOnce(&mut VisibleCursor<VecCursor>)) -> usize {
    let sources = (history.components.iter())
        .map(|entries| VecCursor::new(Arc::new(entries.clone()), &history.fuse))
        .collect();
    let mut cursor = VisibleCursor::new(sources, u64::MAX >> 8, Arc::default(), Bounds::all());
    history.fuse.store(usize::MAX, Ordering::Relaxed);
    walk(&mut cursor);
    usize::MAX - history.fuse.load(Ordering::Relaxed)
}

#[test]
fn many_hidden_versions_are_skipped_by_seeks() {
    let versions = |key: &[u8]| {
        let key = key.to_vec();
        (1..=10_000)
            .rev()
            .map(move |sequence| (key.clone(), Trailer::new(sequence, EntryKind::Put), Vec::new()))
    };
    let entries: Vec<Entry> = versions(b"a").chain(versions(b"b")).chain(versions(b"c")).collect();
    let history = History {
        seed: 0,
        entries: entries.clone(),
        components: vec![entries],
        newest: 10_000,
        keys: 3,
        ranges: Vec::new(),
        fuse: Fuse::default(),
    };
    let forward = calls(&history, |cursor| {
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            cursor.next().unwrap();
        }
    });
    let backward = calls(&history, |cursor| {
        cursor.seek_to_last().unwrap();
        while cursor.valid() {
            cursor.prev().unwrap();
        }
    });
    assert!(forward < 60 && backward < 60, "{forward} calls forward, {backward} backward");
}

#[test]
fn an_unknown_kind_is_damage() {
    let entries = vec![(b"k".to_vec(), Trailer::from_bits(7 << 8 | 200), Vec::new())];
    let source = VecCursor::new(Arc::new(entries), &Fuse::default());
    let mut cursor = VisibleCursor::new(vec![source], 9, Arc::default(), Bounds::all());
    assert!(cursor.seek_to_first().unwrap_err().is_corruption());
    assert!(cursor.seek_to_last().unwrap_err().is_corruption());
    assert!(!cursor.valid());
}

#[test]
fn no_sources_is_an_empty_tree() {
    let mut cursor = VisibleCursor::<VecCursor>::new(Vec::new(), 9, Arc::default(), Bounds::all());
    cursor.seek_to_first().unwrap();
    cursor.seek_to_last().unwrap();
    cursor.next().unwrap();
    cursor.prev().unwrap();
    assert!(!cursor.valid());
}
