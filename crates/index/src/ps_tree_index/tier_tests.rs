//! Both tiers against an oracle: random writes of one or several values, deletes of records and of ranges of them, sweeps, spills at
//! any time, and queries at older views. Every [`SpillFlaw`] is found.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bolide_base::{EntryKind, SequenceNumber, Trailer, TreeId};
use bolide_lsm::ExternalTree;
use bolide_lsm::external_tree::{ExternalWrite, SpillingTree};
use bolide_memory::MemoryBudget;
use bolide_storage::{MemVfs, SimRng, SystemRuntime};
use parking_lot::Mutex;

use super::backend::PsTreeBackend;
use super::cursor::PsCandidates;
use super::log_entry::put_mark;
use super::region_location::RegionMemory;
use super::spill_flaw::{self, SpillFlaw};
use super::{DeletedRanges, RegionLocation};
use crate::access::Access;
use crate::attribute::{self, Value};
use crate::candidate::CandidateCursor;
use crate::model::ModelView;
use crate::newest_keys::NewestKeys;
use crate::ps_tree::PsBounds;
use crate::query::Order;
use crate::source::{ForwardCursor, ReadSource, TreeSource};
use crate::spec::IndexSpec;

/// Deleted ranges of records, with the sequence numbers of the deletes.
#[derive(Debug, Default)]
struct Ranges(Mutex<Vec<(Range<u64>, SequenceNumber)>>);

impl DeletedRanges for Ranges {
    fn newest(&self, primary_key: &[u8], at: SequenceNumber) -> SequenceNumber {
        let record = record_of(primary_key);
        let ranges = self.0.lock();
        let newer = ranges.iter().filter(|(range, sequence)| *sequence <= at && range.contains(&record));
        newer.map(|(_, sequence)| *sequence).max().unwrap_or(0)
    }

    fn newest_of_all(&self) -> SequenceNumber {
        self.0.lock().iter().map(|(_, sequence)| *sequence).max().unwrap_or(0)
    }
}

const RUNS: TreeId = 2;
const GROUPS: u64 = 6;
const RECORDS: u64 = 40;

/// The writes of a record: its groups at each sequence number; none for a delete.
type Writes = BTreeMap<SequenceNumber, Vec<u64>>;

struct Tiers {
    backend: Arc<PsTreeBackend>,
    spec: IndexSpec,
    runs: ModelView,
    records: BTreeMap<u64, Writes>,
    sequence: SequenceNumber,
    /// The last published write.
    published: SequenceNumber,
    /// The view of all readers.
    view: SequenceNumber,
    ranges: Arc<Ranges>,
    /// Whether records have several values. Then the version table has no exact counts.
    has_arrays: bool,
    /// Whether ranges of records are deleted.
    deletes_ranges: bool,
    rng: SimRng,
    spills: usize,
}

fn secondary_key(group: u64) -> Vec<u8> {
    let mut key = Vec::new();
    Value::Uint(group).encode(&mut key).unwrap();
    key
}

fn primary_key(record: u64) -> Vec<u8> {
    format!("key{record:03}").into_bytes()
}

fn record_of(primary_key: &[u8]) -> u64 {
    std::str::from_utf8(primary_key).unwrap()[3..].parse().unwrap()
}

fn entry_key(group: u64, record: u64, sequence: SequenceNumber) -> Vec<u8> {
    [&secondary_key(group)[..], &(!sequence).to_be_bytes(), &primary_key(record)].concat()
}

/// The records under some groups, with the writes that an index should propose.
type Rows = Vec<(u64, u64, SequenceNumber)>;

/// The position of a row in an order.
fn position(row: &(u64, u64, SequenceNumber), order: Order) -> (u64, u64) {
    match order {
        Order::Newest => (!row.2, 0),
        Order::Oldest => (row.2, 0),
        Order::ValueDescending => (!row.0, !row.2),
        _ => (row.0, !row.2),
    }
}

/// Sorts by an order; by group within one write.
fn sort(rows: &mut Rows, order: Order) {
    rows.sort_by_key(|row| (position(row, order), row.0));
}

impl Tiers {
    fn new(seed: u64) -> Self {
        let ranges = Arc::new(Ranges::default());
        let location = RegionLocation {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            dir: "db".into(),
            dax_dir: None,
            database_id: 1,
            tag: 3,
            seed,
            read_only: false,
            deleted: ranges.clone(),
            memory: RegionMemory { budget: MemoryBudget::unlimited(), name: "c.index".into() },
            durable: Arc::default(),
        };
        let spec: IndexSpec = "group:ps-tree:memory=4194304,page_bytes=512".parse().unwrap();
        let backend = PsTreeBackend::open(&spec, RUNS, None, &location, &|_| Ok(())).unwrap();
        Self {
            backend: Arc::new(backend),
            spec,
            runs: ModelView::default(),
            records: BTreeMap::new(),
            sequence: 0,
            published: 0,
            view: 0,
            ranges,
            has_arrays: seed % 3 == 1,
            deletes_ranges: seed % 3 == 2,
            rng: SimRng::new(seed),
            spills: 0,
        }
    }

    /// Writes a record, or deletes some. A spill may run between two entries of a write.
    fn write(&mut self) {
        self.sequence += 1;
        let (sequence, record) = (self.sequence, self.rng.below(RECORDS));
        if self.deletes_ranges && self.rng.one_in(40) {
            let range = record..record + self.rng.below(8);
            self.ranges.0.lock().push((range.clone(), sequence));
            range.for_each(|record| _ = self.records.entry(record).or_default().insert(sequence, Vec::new()));
            self.published = sequence;
            return;
        }
        let most = if self.has_arrays { 3 } else { 1 };
        let values = if self.rng.one_in(6) { 0 } else { 1 + self.rng.below(most) };
        let groups: BTreeSet<u64> = (0..values).map(|_| self.rng.below(GROUPS)).collect();
        self.records.entry(record).or_default().insert(sequence, groups.iter().copied().collect());
        let mut mark = Vec::new();
        put_mark(&mut mark, &primary_key(record), Some(sequence));
        let mut keys: Vec<_> = groups.iter().map(|group| entry_key(*group, record, sequence)).collect();
        if keys.is_empty() {
            keys.push(mark);
        }
        for (number, key) in keys.iter().enumerate() {
            if number > 0 && self.rng.one_in(20) {
                self.spill();
            }
            let trailer = Trailer::new(sequence, EntryKind::Put);
            self.backend.reserve(1, key.len()).unwrap();
            let view = self.view;
            self.backend.apply(ExternalWrite { key, trailer, value: &[] }, &|| view).unwrap();
        }
        self.published = sequence;
    }

    fn sweep(&mut self) {
        let view = self.view;
        self.backend.collect_garbage_when_idle(&|| view, &|| true).unwrap();
    }

    fn spill(&mut self) {
        let before = self.backend.spilled_through();
        let cut = self.backend.choose_cut(self.published).unwrap();
        if cut == before {
            return;
        }
        let mut moved = Vec::new();
        let add = &mut |write: ExternalWrite<'_>| {
            moved.push((write.key.to_vec(), write.trailer.sequence()));
            Ok(())
        };
        self.backend.write_spill(cut, self.view, add).unwrap();
        moved.iter().for_each(|(key, sequence)| self.runs.write(RUNS, key, Some(&[]), *sequence));
        self.backend.finish_spill(cut).unwrap();
        self.spills += 1;
    }

    /// Fails if an entry that a present or later reader needs is in neither tier.
    fn check_contents(&self, after: &str) -> std::result::Result<(), String> {
        let cut = self.backend.cut();
        let all = PsBounds::Range { low: &[], end: None };
        let mut cursor = self.backend.tree().cursor(all, Order::Value, SequenceNumber::MAX).unwrap();
        let mut found = BTreeSet::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            found.insert((entry.secondary_key.to_vec(), entry.sequence));
        }
        let mut runs = self.runs.at(SequenceNumber::MAX).tree(RUNS).unwrap().cursor(&[], None).unwrap();
        let mut spilled = BTreeSet::new();
        runs.seek_to_first().unwrap();
        while runs.valid() {
            let key = runs.key();
            let secondary_key = &key[..key.len() - 8 - primary_key(0).len()];
            spilled.insert((secondary_key.to_vec(), runs.sequence()));
            runs.next().unwrap();
        }
        for (record, writes) in &self.records {
            let first = writes.range(..=self.view).next_back().map_or(self.view + 1, |(at, _)| *at);
            for (sequence, groups) in writes.range(first..) {
                let tier = if *sequence <= cut { &spilled } else { &found };
                for group in groups {
                    let entry = (secondary_key(*group), *sequence);
                    if !tier.contains(&entry) {
                        return Err(format!(
                            "after {after}: the entry of key {record} at {sequence} is missing; cut {cut}, view {}, in memory {}, spilled {}",
                            self.view,
                            found.contains(&entry),
                            spilled.contains(&entry)
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The groups of a record at a view, and the write that set them.
    fn newest_at(&self, record: u64, at: SequenceNumber) -> (&[u64], SequenceNumber) {
        let newest = self.records.get(&record).and_then(|writes| writes.range(..=at).next_back());
        newest.map_or((&[], 0), |(sequence, groups)| (groups, *sequence))
    }

    fn expected(&self, wanted: Range<u64>, order: Order, at: SequenceNumber) -> Rows {
        let mut rows = Rows::new();
        for record in self.records.keys() {
            let (groups, sequence) = self.newest_at(*record, at);
            let groups = groups.iter().filter(|group| wanted.contains(group));
            rows.extend(groups.map(|group| (*group, *record, sequence)));
        }
        sort(&mut rows, order);
        rows
    }

    /// Reads the candidates of some groups, and validates those that the index did not. Writes and spills go on meanwhile.
    fn query(&mut self) -> std::result::Result<(), String> {
        let first = self.rng.below(GROUPS);
        let groups =
            if self.rng.one_in(2) { first..first + 1 } else { first..first + 1 + self.rng.below(GROUPS) };
        let order =
            *self.rng.pick(&[Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending]).unwrap();
        let is_point = groups.end == first + 1;
        let (low, mut end) = (secondary_key(groups.start), secondary_key(groups.end));
        if is_point {
            end = low.clone();
            attribute::make_successor(&mut end);
        }
        let access = Access {
            prefix_len: 0,
            fixed: usize::from(is_point),
            order_attribute: (!is_point).then_some(0),
            low,
            end,
            point: is_point,
            covered: Vec::new(),
            includes_key_attributes: false,
            included: Vec::new(),
            order_included: None,
            window: None,
            near: None,
            limit: usize::MAX,
            resume: None,
        };
        let (at, backend, spec) = (self.view, self.backend.clone(), self.spec.clone());
        let view = self.runs.at(at);
        let mut cursor = PsCandidates::new(&backend, (&spec, RUNS), &access, order, &view).unwrap();
        let reported = cursor.order();
        let mut rows = Rows::new();
        loop {
            if self.rng.one_in(150) {
                (0..self.rng.below(20)).for_each(|_| self.write());
                self.check_contents("writes in a query")?;
                if self.rng.one_in(2) {
                    self.spill();
                    self.check_contents("a spill in a query")?;
                }
            }
            let Some(found) = cursor.next().unwrap() else { break };
            let record = record_of(found.primary_key);
            let (current, newest) = self.newest_at(record, at);
            let group = match is_point {
                true => first,
                false => groups.clone().find(|group| secondary_key(*group) == found.order_value).unwrap(),
            };
            // The driver checks deleted ranges for each candidate.
            let is_deleted = self.ranges.newest(found.primary_key, at) > found.sequence;
            if newest == found.sequence && current.contains(&group) {
                rows.push((group, record, found.sequence));
            } else if found.origin.validated && !is_deleted {
                return Err(format!("key {record} at {} is not current at {at}", found.sequence));
            }
        }
        let order = reported.unwrap_or(Order::Newest);
        let expected = self.expected(groups.clone(), order, at);
        let is_in_order = reported.is_none() || rows.is_sorted_by_key(|row| position(row, order));
        sort(&mut rows, order);
        match is_in_order && rows == expected {
            true => Ok(()),
            false => Err(format!("{groups:?} by {order:?} at {at}: {rows:?} instead of {expected:?}")),
        }
    }

    fn newest(&mut self) -> std::result::Result<bool, String> {
        let (group, limit) = (self.rng.below(GROUPS), 1 + self.rng.below(6) as usize);
        let (mut out, view) = (NewestKeys::new(), self.view);
        if !self.backend.newest_keys(&secondary_key(group), limit, view, &|| view, &mut out).unwrap() {
            return Ok(false);
        }
        let found: Vec<_> = out.found.iter().map(|found| found.sequence).collect();
        let expected = self.expected(group..group + 1, Order::Newest, view);
        let expected: Vec<_> = expected.iter().take(limit).map(|row| row.2).collect();
        match found == expected {
            true => Ok(true),
            false => Err(format!("newest {limit} of {group} at {view}: {found:?} instead of {expected:?}")),
        }
    }
}

/// Returns the numbers of spills, and of answers of the fast path.
fn run(seed: u64, flaw: Option<SpillFlaw>) -> std::result::Result<(usize, usize), String> {
    spill_flaw::plant(flaw);
    let (mut tiers, mut answers) = (Tiers::new(seed), 0);
    for step in 0..600 {
        let context = |what: String| format!("seed {seed}, step {step}: {what}");
        let step_kind = tiers.rng.below(20);
        match step_kind {
            0 if tiers.rng.one_in(2) => tiers.spill(),
            0 if tiers.rng.one_in(3) => tiers.sweep(),
            1..3 => tiers.view = tiers.view.max(tiers.sequence.saturating_sub(tiers.rng.below(30))),
            3..5 => tiers.query().map_err(context)?,
            5..8 => answers += usize::from(tiers.newest().map_err(context)?),
            _ => tiers.write(),
        }
        if flaw.is_none() {
            tiers.check_contents(&format!("step kind {step_kind}")).map_err(context)?;
        }
    }
    spill_flaw::plant(None);
    Ok((tiers.spills, answers))
}

#[test]
fn both_tiers_have_the_answers_of_the_oracle() {
    for seed in 0..30 {
        let (spills, answers) = run(seed, None).unwrap_or_else(|what| panic!("{what}"));
        // Deleted ranges exclude the fast path.
        assert!(
            spills > 5 && (answers > 10 || seed % 3 > 0),
            "seed {seed}: {spills} spills, {answers} answers in memory"
        );
    }
}

#[test]
fn every_planted_bug_of_tiers_is_found() {
    for flaw in SpillFlaw::EACH {
        let found = (0..60).any(|seed| run(seed, Some(flaw)).is_err());
        spill_flaw::plant(None);
        assert!(found, "{flaw:?} is not found");
    }
}
