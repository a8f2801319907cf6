//! Compares the index blocks of an index of kind `next`, the memtable indexes, and the global index, with the records.
//!
//! All meta blocks are made again from the records of their sstable and must come out the same, byte by byte, so that nothing is
//! missing from them and nothing is in them that the records do not have. The global index must lead every key to the blocks
//! that have it.

use std::sync::Arc;

use bolide_base::{EntryKind, Result};
use bolide_lsm::cursor::InternalCursor;
use bolide_lsm::store::{MemtableComponent, TableComponent};
use bolide_lsm::{ReadView, TreeView};
use bolide_table::{BlockHandle, MetaCollector};

use super::directory;
use super::global_index::{BlockPlace, GlobalIndex};
use super::index_block::IndexBlock;
use super::{NextIndex, collector};
use crate::check::{CheckedTable, IndexCheck};
use crate::in_sstable::check::check_memtable;
use crate::in_sstable::{SstableIndexBase, SstableIndex, TableCollectors, summary};
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
        // Those without are read whole by every question, so there is nothing to be wrong.
        if let Some(sstable) = tree.table_at(place)
            && summary::find(&sstable.meta().attachment, base.id).is_some()
        {
            check_sstable(base, &sstable, report)?;
        }
    }
    check_global(base, &tree, &*index.global(&tree)?, report)
}

/// Makes the meta blocks of an sstable again.
fn check_sstable(index: &SstableIndexBase, sstable: &TableComponent, report: &mut IndexCheck) -> Result<()> {
    let Some(extractor) = &index.extractor else { return Ok(()) };
    let member: Arc<dyn SstableIndex> = Arc::new(collector::Member::new(index));
    let mut collector = TableCollectors::new(Arc::clone(extractor), [member]).collector();
    let mut entries = sstable.entries()?;
    entries.seek_to_first()?;
    let mut block = 0;
    while let Some(position) = entries.position() {
        if position.block != block {
            collector.finish_block(BlockHandle::default());
            block = position.block;
        }
        report.records += u64::from(entries.trailer().kind() == Some(EntryKind::Put));
        collector.add(entries.key(), entries.trailer(), entries.value(), block);
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
    for (block, made) in collector.finish()? {
        let stored = sstable.meta_block(&block)?;
        if stored.as_deref() != Some(made.as_slice()) {
            wrong(report, &format!("the meta block {block:?}"));
        }
        let entries = IndexBlock::parse(&made).map(|block| block.entries());
        let entries = entries.or_else(|| RectBlock::parse(&made).map(|block| block.entries()));
        report.entries += u64::from(entries.unwrap_or(0));
    }
    let section = collector.attachment();
    let mut made = summary::find(&section, index.id);
    if let (Some(made), Some(filter)) = (&mut made, sstable.meta_block(&directory::filter_name(index.id))?) {
        // None was made again: how long it is depends on how the blocks were compressed then.
        made.block_bytes += filter.len() as u64;
    }
    if made != summary::find(&sstable.meta().attachment, index.id) {
        wrong(report, "the summary in the manifest");
    }
    Ok(())
}

/// Asks the global index for each key of each index block.
fn check_global(
    index: &SstableIndexBase,
    tree: &TreeView,
    global: &GlobalIndex,
    report: &mut IndexCheck,
) -> Result<()> {
    let mut key = Vec::new();
    for member in 0..u32::MAX {
        let Some(place) = global.place(member) else {
            if global.is_behind(member) {
                break;
            }
            continue;
        };
        let Some(sstable) = tree.table_at(place) else { continue };
        for block in 0..u32::MAX {
            let at = BlockPlace { member, block };
            let Some(info) = global.info(at) else { break };
            let Some(bytes) = sstable.cached_meta_block(info.meta_block)? else { continue };
            let mut passed_over = |shown: &dyn Fn() -> String| {
                report.missing += 1;
                report.describe(|| {
                    let (name, key) = (index.spec.name(), shown());
                    format!(
                        "index {name}: the global index passes over block {block} of sstable {} for {key}",
                        sstable.meta().number
                    )
                });
            };
            if !info.is_opaque {
                rect_block::visit(&bytes, None, |entry| {
                    if !global.find(&[], &[], Some(&entry.rect)).contains(&at) {
                        passed_over(&|| entry.rect.to_string());
                    }
                });
            }
            let Some(mut keys) = IndexBlock::parse(&bytes).map(|block| block.keys_from_start(Vec::new()))
            else {
                continue;
            };
            while let Some(true) = keys.next() {
                key.clear();
                keys.write_key(&mut key);
                let end = [key.as_slice(), &[0]].concat();
                let mut found = global.find(&key, &end, None);
                global.pass_filters(&mut found, &key);
                if !found.contains(&at) {
                    passed_over(&|| format!("\"{}\"", key.escape_ascii()));
                }
            }
        }
    }
    Ok(())
}
