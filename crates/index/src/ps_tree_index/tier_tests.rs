//! Both tiers against an oracle: random writes, spills at any time, and queries at older views. Every [`SpillFlaw`] is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use bolide_base::{EntryKind, SequenceNumber, Trailer, TreeId};
use bolide_lsm::ExternalTree;
use bolide_lsm::external_tree::{ExternalWrite, SpillReaders, SpillingTree};
use bolide_memory::MemoryBudget;
use bolide_storage::{MemVfs, SimRng, SystemRuntime};

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

#[derive(Debug)]
struct NoRanges;

impl DeletedRanges for NoRanges {
    fn newest(&self, _primary_key: &[u8], _at: SequenceNumber) -> SequenceNumber {
        0
    }

    fn newest_of_all(&self) -> SequenceNumber {
        0
    }
}

const RUNS: TreeId = 2;
const GROUPS: u64 = 6;
const RECORDS: u64 = 40;

/// The writes of a record: its group at each sequence number; `None` for a delete.
type Writes = BTreeMap<SequenceNumber, Option<u64>>;

struct Tiers {
    backend: Arc<PsTreeBackend>,
    spec: IndexSpec,
    runs: ModelView,
    records: BTreeMap<u64, Writes>,
    sequence: SequenceNumber,
    /// The view of all readers.
    view: SequenceNumber,
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

/// The records under some groups, with the writes that an index should propose, in the order of a cursor.
type Rows = Vec<(u64, u64, SequenceNumber)>;

impl Tiers {
    fn new(seed: u64) -> Self {
        let location = RegionLocation {
            vfs: Arc::new(MemVfs::new()),
            runtime: Arc::new(SystemRuntime::default()),
            dir: "db".into(),
            dax_dir: None,
            database_id: 1,
            tag: 3,
            seed,
            read_only: false,
            deleted: Arc::new(NoRanges),
            memory: RegionMemory { budget: MemoryBudget::unlimited(), name: "c.index".into() },
        };
        let spec: IndexSpec = "group:ps-tree:memory=65536,page_bytes=512".parse().unwrap();
        let backend = PsTreeBackend::open(&spec, RUNS, None, &location, &|_| Ok(())).unwrap();
        Self {
            backend: Arc::new(backend),
            spec,
            runs: ModelView::default(),
            records: BTreeMap::new(),
            sequence: 0,
            view: 0,
            rng: SimRng::new(seed),
            spills: 0,
        }
    }

    fn write(&mut self) {
        self.sequence += 1;
        let (sequence, record) = (self.sequence, self.rng.below(RECORDS));
        let group = (!self.rng.one_in(6)).then(|| self.rng.below(GROUPS));
        self.records.entry(record).or_default().insert(sequence, group);
        let mut key = Vec::new();
        match group {
            Some(group) => {
                key.extend_from_slice(&secondary_key(group));
                key.extend_from_slice(&(!sequence).to_be_bytes());
                key.extend_from_slice(&primary_key(record));
            }
            None => {
                put_mark(&mut key, &primary_key(record), Some(sequence));
            }
        }
        let trailer = Trailer::new(sequence, EntryKind::Put);
        self.backend.reserve(1, key.len()).unwrap();
        let view = self.view;
        self.backend.apply(ExternalWrite { key: &key, trailer, value: &[] }, &|| view).unwrap();
    }

    fn spill(&mut self) {
        let readers = SpillReaders { published: self.sequence, oldest_in_use: self.view };
        let before = self.backend.spilled_through();
        let mut moved = Vec::new();
        let cut = self
            .backend
            .write_spill(readers, &mut |write| {
                moved.push((write.key.to_vec(), write.trailer.sequence()));
                Ok(())
            })
            .unwrap();
        moved.iter().for_each(|(key, sequence)| self.runs.write(RUNS, key, Some(&[]), *sequence));
        if cut > before {
            self.backend.finish_spill(cut).unwrap();
            self.spills += 1;
        }
    }

    /// Fails if an entry that a present or later reader needs is in neither tier.
    fn check_contents(&self, after: &str) -> std::result::Result<(), String> {
        let cut = self.backend.cut();
        let all = PsBounds::Range { low: &[], end: None };
        let mut cursor = self.backend.tree().cursor(all, Order::Value, SequenceNumber::MAX).unwrap();
        let mut found = std::collections::BTreeSet::new();
        while let Some(entry) = cursor.next_entry().unwrap() {
            found.insert(entry.sequence);
        }
        let mut runs = self.runs.at(SequenceNumber::MAX).tree(RUNS).unwrap().cursor(&[], None).unwrap();
        let mut spilled = std::collections::BTreeSet::new();
        runs.seek_to_first().unwrap();
        while runs.valid() {
            spilled.insert(runs.sequence());
            runs.next().unwrap();
        }
        for (record, writes) in &self.records {
            let first = self.newest_at(*record, self.view).map_or(self.view + 1, |(_, sequence)| sequence);
            for (sequence, group) in writes.range(first..) {
                let tier = if *sequence <= cut { &spilled } else { &found };
                if group.is_some() && !tier.contains(sequence) {
                    return Err(format!(
                        "after {after}: the entry of key {record} at {sequence} is missing; cut {cut}, view {}, in memory {}, spilled {}",
                        self.view,
                        found.contains(sequence),
                        spilled.contains(sequence)
                    ));
                }
            }
        }
        Ok(())
    }

    /// The group of a record at a view, and the write that set it.
    fn newest_at(&self, record: u64, at: SequenceNumber) -> Option<(u64, SequenceNumber)> {
        let (sequence, group) = self.records.get(&record)?.range(..=at).next_back()?;
        Some(((*group)?, *sequence))
    }

    fn expected(&self, groups: std::ops::Range<u64>, order: Order, at: SequenceNumber) -> Rows {
        let newest = self.records.keys().filter_map(|record| {
            let (group, sequence) = self.newest_at(*record, at)?;
            groups.contains(&group).then_some((group, *record, sequence))
        });
        let mut rows: Rows = newest.collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.2));
        match order {
            Order::Newest => {}
            Order::Oldest => rows.reverse(),
            Order::ValueDescending => rows.sort_by_key(|row| std::cmp::Reverse(row.0)),
            _ => rows.sort_by_key(|row| row.0),
        }
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
            let record = std::str::from_utf8(found.primary_key).unwrap()[3..].parse().unwrap();
            let current = self.newest_at(record, at).filter(|(_, sequence)| *sequence == found.sequence);
            match current {
                Some((group, _)) => rows.push((group, record, found.sequence)),
                None if found.origin.validated => {
                    return Err(format!("key {record} at {} is not current at {at}", found.sequence));
                }
                None => {}
            }
        }
        let expected = self.expected(groups.clone(), reported.unwrap_or(Order::Newest), at);
        if reported.is_none() {
            rows.sort_by_key(|row| std::cmp::Reverse(row.2));
        }
        match rows == expected {
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
        assert!(spills > 5 && answers > 10, "seed {seed}: {spills} spills, {answers} answers in memory");
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
