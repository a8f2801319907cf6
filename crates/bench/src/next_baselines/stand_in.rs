//! Something else in the place of an index of a database, read by the lookup driver like its own indexes.

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

/// What answers for an index.
#[derive(Debug, Clone)]
pub enum StandIn {
    /// A tree in memory; the index itself is left empty.
    Eager(Arc<EagerIndex>),
    /// The index, its candidates validated by a memo.
    Memo(Arc<UpdateMemo>),
    /// The same, of an index of cells, which takes several ranges at once.
    Cells(Arc<UpdateMemo>, Arc<CellQueries>),
    /// An index of cells as it is, queried by several ranges at once; it reports the verdicts on its candidates itself.
    Ranges(Arc<CellQueries>),
}

/// The window that the next query is about, and the grids that have records.
#[derive(Debug, Default)]
pub struct CellQueries {
    window: Mutex<[f64; 4]>,
    /// A bit for each grid.
    grids: AtomicU64,
}

impl CellQueries {
    /// For records that are points, all in the finest grid.
    pub fn of_points() -> Self {
        Self { grids: 1.into(), ..Self::default() }
    }

    /// The next query is about this window.
    pub fn run_query(&self, window: [f64; 4]) {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = window;
    }

    /// Notes the grids of a record that is written.
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

/// `components` with others in the places of the indexes with these names.
pub fn standing_in(components: Components, stand_ins: HashMap<String, StandIn>) -> Components {
    components.index_wrapper(Arc::new(move |declared, _: TreeId| {
        match stand_ins.get(declared.spec().name()) {
            Some(stand_in) => Arc::new(Standing { declared, stand_in: stand_in.clone() }),
            None => declared,
        }
    }))
}

/// What stands in the place of `declared`.
#[derive(Debug)]
struct Standing {
    declared: Arc<dyn SecondaryIndex<ReadView>>,
    stand_in: StandIn,
}

impl SecondaryIndex<ReadView> for Standing {
    fn spec(&self) -> &IndexSpec {
        self.declared.spec()
    }

    fn trees(&self) -> &[TreeId] {
        self.declared.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        match &self.stand_in {
            StandIn::Eager(_) => Ok(()),
            StandIn::Memo(_) | StandIn::Ranges(_) => self.declared.derive(record, key, out),
            StandIn::Cells(_, cells) => {
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
        match &self.stand_in {
            StandIn::Eager(tree) => {
                let mut found = ReadBefore::default();
                let (low, end) = access.bounds();
                tree.find(low, end, &mut |key, sequence| found.add(key, sequence, true));
                Ok(Box::new(found))
            }
            StandIn::Memo(memo) => {
                let inner = self.declared.candidates(access, order, view)?;
                Ok(Box::new(Memoed {
                    inner,
                    memo: memo.reader(view.sequence()),
                    key: Vec::new(),
                    value: Vec::new(),
                }))
            }
            StandIn::Cells(memo, queried) => {
                let memo = memo.reader(view.sequence());
                let mut found = ReadBefore::default();
                for range in queried.ranges() {
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
            StandIn::Ranges(queried) => {
                let mut found = ReadBefore::default();
                for range in queried.ranges() {
                    self.read_cells(range, view, &mut |candidate| {
                        found.add(candidate.primary_key, candidate.sequence, candidate.origin.validated);
                    })?;
                }
                Ok(Box::new(found))
            }
        }
    }

    fn estimate(&self, _: &Access, _: &ReadView) -> Result<Option<u64>> {
        // Queries name it, so nothing depends on it.
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

impl Standing {
    /// Shows the candidates of a range of cells.
    fn read_cells(
        &self,
        range: RangeInclusive<u64>,
        view: &ReadView,
        visit: &mut dyn FnMut(&Candidate<'_>),
    ) -> Result<()> {
        let query = Query::new().range(CELL, range);
        let access = self.declared.access(&CompiledQuery::new(&query)?);
        let access = access.ok_or_else(|| Error::internal("an index of cells has no query for cells"))?;
        // In the order in which they lie; the driver sorts those of all ranges.
        let mut cursor = self.declared.candidates(&access, Order::Value, view)?;
        while let Some(candidate) = cursor.next()? {
            visit(&candidate);
        }
        Ok(())
    }
}

/// Candidates that were read at the start.
#[derive(Debug, Default)]
struct ReadBefore {
    keys: Vec<u8>,
    /// Where each key ends, its sequence number, and whether it is known to be current.
    ends: Vec<(usize, SequenceNumber, bool)>,
    given: usize,
}

impl ReadBefore {
    fn add(&mut self, key: &[u8], sequence: SequenceNumber, is_current: bool) {
        self.keys.extend_from_slice(key);
        self.ends.push((self.keys.len(), sequence, is_current));
    }
}

impl CandidateCursor for ReadBefore {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        let Some(&(end, sequence, is_current)) = self.ends.get(self.given) else { return Ok(None) };
        let start = self.given.checked_sub(1).map_or(0, |last| self.ends[last].0);
        self.given += 1;
        let mut candidate = Candidate::new(&self.keys[start..end], sequence);
        candidate.origin.validated = is_current;
        candidate.origin.checked = true;
        Ok(Some(candidate))
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.ends.iter().skip(self.given).map(|(_, sequence, _)| *sequence).max().unwrap_or(0)
    }

    fn order(&self) -> Option<Order> {
        None
    }
}

/// The candidates of an index, but for those that the memo knows to be obsolete.
struct Memoed<'v> {
    inner: Box<dyn CandidateCursor + 'v>,
    memo: MemoReader<'v>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl CandidateCursor for Memoed<'_> {
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
