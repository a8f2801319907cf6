//! Baselines that substitute an index of a database: the lookup driver reads them like its own indexes.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bolide::{Components, IndexSpec, Order, Query, Value};
use bolide_base::{Error, Result, SequenceNumber, TreeId};
use bolide_index::secondary_index::{IndexWrites, IndexedRecord};
use bolide_index::{
    Access, Candidate, CandidateCursor, CheckedTable, CompiledQuery, IndexCheck, ReadSource, SecondaryIndex,
    Validator, Verdict,
};
use bolide_lsm::ReadView;

use super::cells::{self, CELL};
use super::eager::EagerIndex;
use super::memo::{MemoReader, UpdateMemo};

/// The source of the candidates of a substituted index.
#[derive(Debug, Clone)]
pub enum Substitution {
    /// A tree in memory; the index itself stays empty.
    Eager(Arc<EagerIndex>),
    /// The index, with candidates validated by a memo.
    Memo(Arc<UpdateMemo>),
    /// An index of cells that is read by several ranges, with candidates validated by a memo.
    MemoAndCells(Arc<UpdateMemo>, Arc<CellRanges>),
    /// An index of cells that is read by several ranges and validates its candidates.
    Cells(Arc<CellRanges>),
}

/// The window of the next query, and the grids with records: together they yield the ranges of cells to read.
#[derive(Debug, Default)]
pub struct CellRanges {
    window: Mutex<[f64; 4]>,
    /// A bit for each grid.
    grids: AtomicU64,
}

impl CellRanges {
    /// The ranges for points, which are all in the finest grid.
    pub fn of_points() -> Self {
        Self { grids: 1.into(), ..Self::default() }
    }

    /// Sets the window of the next query.
    pub fn set_window(&self, window: [f64; 4]) {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = window;
    }

    /// Adds the grids of a written record.
    fn note(&self, record: &IndexedRecord<'_>) {
        for value in record.slots.iter().flat_map(|slot| record.values.values(*slot)) {
            let cell = match Value::decode(value) {
                Some((Value::Uint(cell), _)) => cell,
                Some((Value::Int(cell), _)) => cell.try_into().unwrap_or(0),
                _ => continue,
            };
            self.grids.fetch_or(1 << cells::class_of(cell), Ordering::Relaxed);
        }
    }

    fn ranges(&self) -> Vec<RangeInclusive<u64>> {
        let window = *self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let grids = self.grids.load(Ordering::Relaxed);
        cells::ranges(window, |class| grids >> class & 1 == 1)
    }
}

/// `components` that substitute the indexes with these names.
pub fn with_substitutions(
    components: Components,
    substitutions: HashMap<String, Substitution>,
) -> Components {
    components.index_wrapper(Arc::new(move |declared, _: TreeId| {
        match substitutions.get(declared.spec().name()) {
            Some(substitution) => Arc::new(SubstitutedIndex { declared, substitution: substitution.clone() }),
            None => declared,
        }
    }))
}

/// The index `declared` with substituted candidates.
#[derive(Debug)]
struct SubstitutedIndex {
    declared: Arc<dyn SecondaryIndex<ReadView>>,
    substitution: Substitution,
}

impl SecondaryIndex<ReadView> for SubstitutedIndex {
    fn spec(&self) -> &IndexSpec {
        self.declared.spec()
    }

    fn trees(&self) -> &[TreeId] {
        self.declared.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        match &self.substitution {
            Substitution::Eager(_) => Ok(()),
            Substitution::Memo(_) | Substitution::Cells(_) => self.declared.derive(record, key, out),
            Substitution::MemoAndCells(_, cells) => {
                cells.note(record);
                self.declared.derive(record, key, out)
            }
        }
    }

    fn derive_delete(&self, primary_key: &[u8], key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        self.declared.derive_delete(primary_key, key, out)
    }

    fn needs_deletes(&self) -> bool {
        self.declared.needs_deletes()
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        match &self.substitution {
            Substitution::Eager(tree) => {
                let mut found = BufferedCandidates::default();
                let (low, end) = access.bounds();
                tree.find(low, end, &mut |key, sequence| found.add(key, sequence, true));
                Ok(Box::new(found))
            }
            Substitution::Memo(memo) => {
                let inner = self.declared.candidates(access, order, view)?;
                Ok(Box::new(MemoFilteredCursor {
                    inner,
                    memo: memo.reader(view.sequence()),
                    key: Vec::new(),
                    value: Vec::new(),
                }))
            }
            Substitution::MemoAndCells(memo, cells) => {
                let memo = memo.reader(view.sequence());
                let mut found = BufferedCandidates::default();
                for range in cells.ranges() {
                    self.read_cells(range, view, &mut |candidate| match memo
                        .verdict(candidate.primary_key, candidate.sequence)
                    {
                        Verdict::Obsolete => {}
                        verdict => {
                            found.add(candidate.primary_key, candidate.sequence, verdict == Verdict::Current)
                        }
                    })?;
                }
                Ok(Box::new(found))
            }
            Substitution::Cells(cells) => {
                let mut found = BufferedCandidates::default();
                for range in cells.ranges() {
                    self.read_cells(range, view, &mut |candidate| {
                        found.add(candidate.primary_key, candidate.sequence, candidate.origin.validated);
                    })?;
                }
                Ok(Box::new(found))
            }
        }
    }

    fn estimate(&self, _: &Access, _: &ReadView) -> Result<Option<u64>> {
        // Queries name their index, so no plan depends on the estimate.
        Ok(Some(1))
    }

    fn validator(&self) -> &dyn Validator<<ReadView as ReadSource>::Tree> {
        self.declared.validator()
    }

    fn origins(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        self.declared.origins(key, sequence, value, visit)
    }

    fn check(&self, _: &ReadView, _: &CheckedTable<'_>, _: &mut IndexCheck) -> Result<()> {
        Ok(())
    }
}

impl SubstitutedIndex {
    /// Visits the candidates of a range of cells.
    fn read_cells(
        &self,
        range: RangeInclusive<u64>,
        view: &ReadView,
        visit: &mut dyn FnMut(&Candidate<'_>),
    ) -> Result<()> {
        let query = Query::new().range(CELL, range);
        let access = self.declared.access(&CompiledQuery::new(&query)?);
        let access = access.ok_or_else(|| Error::internal("an index of cells has no query for cells"))?;
        // In key order; the driver sorts the candidates of all ranges.
        let mut cursor = self.declared.candidates(&access, Order::Value, view)?;
        while let Some(candidate) = cursor.next()? {
            visit(&candidate);
        }
        Ok(())
    }
}

/// Candidates that were read at the start of a query.
#[derive(Debug, Default)]
struct BufferedCandidates {
    keys: Vec<u8>,
    /// The end of each key, its sequence number, and whether it is validated as current.
    ends: Vec<(usize, SequenceNumber, bool)>,
    position: usize,
}

impl BufferedCandidates {
    fn add(&mut self, key: &[u8], sequence: SequenceNumber, is_current: bool) {
        self.keys.extend_from_slice(key);
        self.ends.push((self.keys.len(), sequence, is_current));
    }
}

impl CandidateCursor for BufferedCandidates {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        let Some(&(end, sequence, is_current)) = self.ends.get(self.position) else { return Ok(None) };
        let start = self.position.checked_sub(1).map_or(0, |last| self.ends[last].0);
        self.position += 1;
        let mut candidate = Candidate::new(&self.keys[start..end], sequence);
        candidate.origin.validated = is_current;
        candidate.origin.checked = true;
        Ok(Some(candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.ends.iter().skip(self.position).map(|(_, sequence, _)| *sequence).max().unwrap_or(0)
    }

    fn order(&self) -> Option<Order> {
        None
    }
}

/// The candidates of an index without those that are obsolete by the memo.
struct MemoFilteredCursor<'v> {
    inner: Box<dyn CandidateCursor + 'v>,
    memo: MemoReader<'v>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl CandidateCursor for MemoFilteredCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        loop {
            let Some(candidate) = self.inner.next()? else { return Ok(None) };
            let verdict = self.memo.verdict(candidate.primary_key, candidate.sequence);
            if verdict == Verdict::Obsolete {
                continue;
            }
            self.key.clear();
            self.key.extend_from_slice(candidate.primary_key);
            self.value.clear();
            self.value.extend_from_slice(candidate.order_value);
            let (sequence, repeated) = (candidate.sequence, candidate.repeated);
            let mut candidate = Candidate::new(&self.key, sequence);
            candidate.order_value = &self.value;
            candidate.repeated = repeated;
            candidate.origin.validated = verdict == Verdict::Current;
            candidate.origin.checked = !repeated;
            return Ok(Some(candidate));
        }
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.inner.sequence_bound()
    }

    fn order(&self) -> Option<Order> {
        self.inner.order()
    }
}
