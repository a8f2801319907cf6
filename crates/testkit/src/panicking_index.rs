//! Indexes whose calls may panic: calls of writers, commits, flushes and compactions that drop versions, builds, and
//! queries.

use std::fmt;
use std::sync::Arc;

use bolide::{Error, IndexCheck, IndexSpec, IndexWrapper, Order, Result, SequenceNumber};
use bolide_base::TreeId;
use bolide_index::explain::Explain;
use bolide_index::{
    Access, Candidate, CandidateCursor, CheckedTable, CompiledQuery, IndexWrites, IndexedRecord, NewestKeys,
    Retraction, SecondaryIndex, StagedBatch, Validator,
};
use bolide_lsm::{ReadView, TreeView};

use crate::panicking::{Site, Switch};

/// The wrapper that puts every index of a database behind `switch`.
pub(crate) fn wrapper(switch: &Arc<Switch>) -> IndexWrapper {
    let switch = Arc::clone(switch);
    Arc::new(move |inner, _| Arc::new(PanickingIndex { inner, switch: Arc::clone(&switch) }))
}

struct PanickingIndex {
    inner: Arc<dyn SecondaryIndex<ReadView>>,
    switch: Arc<Switch>,
}

impl PanickingIndex {
    fn counted_inner(&self) -> &dyn SecondaryIndex<ReadView> {
        self.switch.reach(Site::Index);
        &*self.inner
    }
}

impl fmt::Debug for PanickingIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl SecondaryIndex<ReadView> for PanickingIndex {
    fn spec(&self) -> &IndexSpec {
        self.inner.spec()
    }

    fn trees(&self) -> &[TreeId] {
        self.inner.trees()
    }

    fn derive(&self, record: &IndexedRecord<'_>, key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        self.counted_inner().derive(record, key, out)
    }

    fn derive_delete(&self, primary_key: &[u8], key: &mut Vec<u8>, out: &mut dyn IndexWrites) -> Result<()> {
        self.counted_inner().derive_delete(primary_key, key, out)
    }

    fn needs_deletes(&self) -> bool {
        self.inner.needs_deletes()
    }

    fn derives(&self) -> bool {
        self.inner.derives()
    }

    fn needs_stage(&self) -> bool {
        self.inner.needs_stage()
    }

    fn needs_old_records(&self) -> bool {
        self.inner.needs_old_records()
    }

    fn stage(
        &self,
        batch: &StagedBatch<'_>,
        view: &ReadView,
        key: &mut Vec<u8>,
        out: &mut dyn IndexWrites,
    ) -> Result<()> {
        self.counted_inner().stage(batch, view, key, out)
    }

    fn name_entries(
        &self,
        record: &IndexedRecord<'_>,
        key: &mut Vec<u8>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.counted_inner().name_entries(record, key, visit)
    }

    fn retract(&self, batch: &Retraction<'_>, view: &ReadView, out: &mut dyn IndexWrites) -> Result<()> {
        self.counted_inner().retract(batch, view, out)
    }

    fn refusal(&self) -> Result<Option<Error>> {
        self.inner.refusal()
    }

    fn access(&self, query: &CompiledQuery<'_>) -> Option<Access> {
        self.counted_inner().access(query)
    }

    fn candidates<'v>(
        &'v self,
        access: &'v Access,
        order: Order,
        view: &'v ReadView,
    ) -> Result<Box<dyn CandidateCursor + 'v>> {
        let inner = self.counted_inner().candidates(access, order, view)?;
        Ok(Box::new(PanickingCursor { inner, switch: &self.switch }))
    }

    fn newest_keys(
        &self,
        secondary_key: &[u8],
        limit: usize,
        at: SequenceNumber,
        oldest_in_use: &dyn Fn() -> SequenceNumber,
        out: &mut NewestKeys,
    ) -> Result<bool> {
        self.counted_inner().newest_keys(secondary_key, limit, at, oldest_in_use, out)
    }

    fn estimate(&self, access: &Access, view: &ReadView) -> Result<Option<u64>> {
        self.counted_inner().estimate(access, view)
    }

    fn validator(&self) -> &dyn Validator<TreeView> {
        self.inner.validator()
    }

    fn origins(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        value: &[u8],
        visit: &mut dyn FnMut(SequenceNumber, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        self.inner.origins(key, sequence, value, visit)
    }

    fn check(&self, view: &ReadView, table: &CheckedTable<'_>, report: &mut IndexCheck) -> Result<()> {
        self.inner.check(view, table, report)
    }
}

struct PanickingCursor<'v> {
    inner: Box<dyn CandidateCursor + 'v>,
    switch: &'v Switch,
}

impl CandidateCursor for PanickingCursor<'_> {
    fn next(&mut self) -> Result<Option<Candidate<'_>>> {
        self.switch.reach(Site::Index);
        self.inner.next()
    }

    fn sequence_bound(&self) -> SequenceNumber {
        self.inner.sequence_bound()
    }

    fn order(&self) -> Option<Order> {
        self.inner.order()
    }

    fn components_id(&self) -> Option<usize> {
        self.inner.components_id()
    }

    fn report(&self, explain: &mut Explain) {
        self.inner.report(explain);
    }
}
