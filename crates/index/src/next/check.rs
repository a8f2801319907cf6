//! Checks the index blocks of an index of kind `next`, the memtable indexes and the global index against the records.
//!
//! All meta blocks are rebuilt from the records of their sstable and must be equal byte by byte: nothing is missing, nothing
//! is in excess. The global index must return, for every key, the blocks that contain it.

use std::sync::Arc;

use bolide_base::interruption::InterruptionSteps;
use bolide_base::{EntryKind, Result};
use bolide_lsm::cursor::InternalCursor;
use bolide_lsm::store::{MemtableComponent, TableComponent};
use bolide_lsm::{ReadView, TreeView};
use bolide_table::{BlockHandle, MetaCollector};

use super::directory;
use super::global_index::{GlobalIndex, IndexBlockId};
use super::key_block::KeyBlock;
use super::{NextIndex, collector};
use crate::check::{CheckedTable, IndexCheck};
use crate::in_sstable::check::check_memtable;
use crate::in_sstable::{SstableIndex, SstableIndexBase, TableCollectors, summary};
use crate::space::rect_block::{self, RectBlock};

pub(super) fn check(
    index: &NextIndex,
    view: &ReadView,
    table: &CheckedTable<'_>,
    report: &mut IndexCheck,
) -> Result<()> {
    let tree = view.tree(table.tree)?;
    let base = &index.base;
    let memtables: Vec<MemtableComponent> = tree.memtable_components().collect();
    for memtable in &memtables {
        check_memtable(base, memtable, table.extractor, view.sequence(), report)?;
    }
    for place in tree.table_places() {
        // Sstables without index blocks are scanned by every query, so there is nothing to check.
        if let Some(sstable) = tree.table_at(place)
            && summary::find(&sstable.meta().attachment, base.id).is_some()
        {
            check_sstable(base, &sstable, report)?;
        }
    }
    check_global(base, &tree, &*index.global(&tree)?, report)
}

/// Rebuilds the meta blocks of an sstable and compares them.
fn check_sstable(index: &SstableIndexBase, sstable: &TableComponent, report: &mut IndexCheck) -> Result<()> {
    let Some(extractor) = &index.extractor else { return Ok(()) };
    let member: Arc<dyn SstableIndex> = Arc::new(collector::NextTableIndex::new(index));
    let mut collector = TableCollectors::new(Arc::clone(extractor), [member]).collector();
    let mut entries = sstable.entries()?;
    entries.seek_to_first()?;
    let (mut block, mut steps) = (0, InterruptionSteps::default());
    while let Some(position) = entries.position() {
        if position.block != block {
            collector.finish_block(BlockHandle::default());
            block = position.block;
        }
        report.records += u64::from(entries.trailer().kind() == Some(EntryKind::Put));
        collector.add(entries.key(), entries.trailer(), entries.value(), block);
        steps.step()?;
        entries.next()?;
    }
    if sstable.data_blocks()? > 0 {
        collector.finish_block(BlockHandle::default());
    }
    let (name, number) = (index.spec.name(), sstable.meta().number);
    let wrong = |report: &mut IndexCheck, what: &str| {
        report.wrong += 1;
        report.describe(|| format!("index {name}: {what} of sstable {number} is not that of its records"));
    };
    for (block, rebuilt) in collector.finish()? {
        let stored = sstable.meta_block(&block)?;
        if stored.as_deref() != Some(rebuilt.as_slice()) {
            wrong(report, &format!("the meta block {block:?}"));
        }
        let entries = KeyBlock::parse(&rebuilt).map(|block| block.entries());
        let entries = entries.or_else(|| RectBlock::parse(&rebuilt).map(|block| block.entries()));
        report.entries += u64::from(entries.unwrap_or(0));
    }
    let section = collector.attachment();
    let mut rebuilt = summary::find(&section, index.id);
    let filter = sstable.meta_block(&directory::filter_name(index.id))?;
    if let (Some(rebuilt), Some(filter)) = (&mut rebuilt, filter) {
        // The filter is not rebuilt: its length depends on the compression of the data blocks at the time.
        rebuilt.block_bytes += filter.len() as u64;
    }
    if rebuilt != summary::find(&sstable.meta().attachment, index.id) {
        wrong(report, "the summary in the manifest");
    }
    Ok(())
}

/// Searches the global index for each key of each index block.
fn check_global(
    index: &SstableIndexBase,
    tree: &TreeView,
    global: &GlobalIndex,
    report: &mut IndexCheck,
) -> Result<()> {
    let mut key = Vec::new();
    for member in 0..u32::MAX {
        let Some(place) = global.place(member) else {
            if global.is_past_end(member) {
                break;
            }
            continue;
        };
        let Some(sstable) = tree.table_at(place) else { continue };
        for block in 0..u32::MAX {
            let at = IndexBlockId { member, block };
            let Some(info) = global.info(at) else { break };
            let Some(bytes) = sstable.cached_meta_block(info.meta_block)? else { continue };
            let mut report_missing = |describe_key: &dyn Fn() -> String| {
                report.missing += 1;
                report.describe(|| {
                    let (name, key) = (index.spec.name(), describe_key());
                    format!(
                        "index {name}: the global index omits block {block} of sstable {} for {key}",
                        sstable.meta().number
                    )
                });
            };
            if !info.is_opaque {
                rect_block::visit(&bytes, None, |entry| {
                    if !global.find(&[], &[], Some(&entry.rect)).contains(&at) {
                        report_missing(&|| entry.rect.to_string());
                    }
                });
            }
            let Some(mut keys) = KeyBlock::parse(&bytes).map(|block| block.keys_from_start(Vec::new()))
            else {
                continue;
            };
            while let Some(true) = keys.next() {
                key.clear();
                keys.write_key(&mut key);
                let end = [key.as_slice(), &[0]].concat();
                let mut found = global.find(&key, &end, None);
                global.apply_filters(&mut found, &key);
                if !found.contains(&at) {
                    report_missing(&|| format!("\"{}\"", key.escape_ascii()));
                }
            }
        }
    }
    Ok(())
}
