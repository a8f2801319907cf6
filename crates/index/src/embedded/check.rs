//! Check of the meta blocks of an embedded index, and of the memtable indexes, against the records.
//!
//! For every value, the filters must admit its block. Then the block and its summary in the manifest are rebuilt from the
//! records and must be equal, so they contain nothing that the records do not have.

use std::sync::Arc;

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{EntryKind, Result};
use bolide_lsm::ReadView;
use bolide_lsm::cursor::InternalCursor;
use bolide_lsm::store::{Component, TableComponent};
use bolide_table::{BlockHandle, MetaCollector};

use super::collector::EmbeddedSstableIndex;
use super::cursor::load;
use super::filter;
use super::meta_block::{self, FilterResult, MetaBlock, MetaBlockQuery};
use crate::attribute_plan::AttributeValues;
use crate::check::{CheckedTable, IndexCheck};
use crate::in_sstable::check::{check_memtable, for_each_key};
use crate::in_sstable::{SstableIndexBase, TableCollectors, summary};

pub(super) fn check(
    index: &SstableIndexBase,
    view: &ReadView,
    table: &CheckedTable<'_>,
    report: &mut IndexCheck,
) -> Result<()> {
    let tree = view.tree(table.tree)?;
    for component in tree.components() {
        match component {
            Component::Memtable(memtable) => {
                check_memtable(index, &memtable, table.extractor, view.sequence(), report)?;
            }
            Component::Table(sstable) if summary::find(&sstable.meta().attachment, index.id).is_some() => {
                check_table(index, &sstable, report)?;
            }
            // Queries read it completely, so nothing can be wrong.
            Component::Table(_) => {}
        }
    }
    Ok(())
}

fn check_table(index: &SstableIndexBase, sstable: &TableComponent, report: &mut IndexCheck) -> Result<()> {
    let Some(extractor) = &index.extractor else { return Ok(()) };
    let stored = load(sstable, index)?;
    let bits = u32::from(stored.bits());
    let member: Arc<dyn crate::in_sstable::SstableIndex> =
        Arc::new(EmbeddedSstableIndex::with_bits(index, bits));
    let mut collector = TableCollectors::new(Arc::clone(extractor), [member]).collector();
    let mut values = AttributeValues::new();
    let mut entries = sstable.entries()?;
    entries.seek_to_first()?;
    let (mut block, mut steps) = (0, InterruptionSteps::default());
    while let Some(position) = entries.position() {
        if position.block != block {
            collector.finish_block(BlockHandle::default());
            block = position.block;
        }
        collector.add(entries.key(), entries.trailer(), entries.value(), block);
        if entries.trailer().kind() == Some(EntryKind::Put) {
            report.records += 1;
            let primary_key = entries.key();
            for_each_key(index, &**extractor, entries.value(), &mut values, |key, first| {
                report.entries += 1;
                if !admits(&stored, block, key, first) {
                    report.missing += 1;
                    report.describe(|| {
                        format!(
                            "index {}: block {block} of sstable {} would be skipped for a value of key \"{}\"",
                            index.spec.name(),
                            sstable.meta().number,
                            primary_key.escape_ascii()
                        )
                    });
                }
            });
        }
        steps.step()?;
        entries.next()?;
    }
    collector.finish_block(BlockHandle::default());
    compare(index, sstable, &stored, &mut collector, report)
}

/// Whether a query for `key`, or for the first of its attributes, would read the block.
fn admits(stored: &MetaBlock, block: u64, key: &[u8], first: &[u8]) -> bool {
    let end = [key, &[0]].concat();
    [key, first].into_iter().all(|hashed| {
        let wanted = MetaBlockQuery { low: key, end: &end, hash: Some(filter::hash(hashed)) };
        let is_maybe = |answer| matches!(answer, FilterResult::MayMatch { .. });
        is_maybe(stored.match_table(&wanted, u64::MAX))
            && is_maybe(stored.match_block(block, &wanted, u64::MAX))
    })
}

/// Compares the meta block and the summary with those rebuilt from the records.
fn compare(
    index: &SstableIndexBase,
    sstable: &TableComponent,
    stored: &MetaBlock,
    collector: &mut impl MetaCollector,
    report: &mut IndexCheck,
) -> Result<()> {
    let name = meta_block::name(index.id);
    let expected = collector.finish()?;
    let expected = expected.iter().find(|(of, _)| *of == name).map(|(_, bytes)| bytes.as_slice());
    let section = collector.attachment();
    let same_summary =
        summary::find(&section, index.id) == summary::find(&sstable.meta().attachment, index.id);
    for (is_same, what) in
        [(expected == Some(stored.payload()), "meta block"), (same_summary, "summary in the manifest")]
    {
        if !is_same {
            report.wrong += 1;
            report.describe(|| {
                let (name, number) = (index.spec.name(), sstable.meta().number);
                format!("index {name}: the {what} of sstable {number} is not that of its records")
            });
        }
    }
    Ok(())
}
