//! Text descriptions of sstables.

use std::io::{self, Write};
use std::sync::Arc;

use bolide_base::{Error, Result, SequenceNumber, Trailer};

use crate::footer::{IndexLevelCount, TABLE_FORMAT_VERSION};
use crate::index_block::IndexBlock;
use crate::internal_cursor::InternalCursor;
use crate::stored_block::BlockHandle;
use crate::table_reader::TableReader;

/// The level of detail of [`TableReader::describe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum TableDetail {
    /// Identity, properties, and the locations of the parts.
    #[default]
    Summary,
    /// Also each data block, with the separator before it.
    Blocks,
    /// Also each entry: key, sequence number, kind, and the first bytes of the value.
    Entries,
}

/// Describes an entry, given its key, trailer and value; `None` if its meaning is unknown.
pub type ExplainEntry<'e> = dyn Fn(&[u8], Trailer, &[u8]) -> Option<String> + 'e;

/// Describes a meta block, given its name and its bytes; `None` if its meaning is unknown.
pub type DescribeMetaBlock<'t> = dyn Fn(&str, &[u8]) -> Option<String> + 't;

/// Bytes of a value that are printed.
const PRINTED_VALUE_BYTES: usize = 64;

impl TableReader {
    /// Writes a description of the table to `out` for human readers; its form may change. Keys and values are printed as
    /// ASCII with escapes.
    ///
    /// A summary reads nothing. Data blocks are read for [`TableDetail::Entries`] only.
    pub fn describe(self: &Arc<Self>, detail: TableDetail, out: &mut dyn Write) -> Result<()> {
        self.describe_with(detail, &|_, _| None, &|_, _, _| None, out)
    }

    /// As [`describe`](Self::describe). `describe_meta` adds a line for a meta block, and `explain` a line below an
    /// entry. Reads the meta blocks.
    pub fn describe_with(
        self: &Arc<Self>,
        detail: TableDetail,
        describe_meta: &DescribeMetaBlock<'_>,
        explain: &ExplainEntry<'_>,
        out: &mut dyn Write,
    ) -> Result<()> {
        write_summary(self, out).map_err(printing)?;
        for name in self.meta_block_names() {
            let bytes = self.meta_block(name)?.unwrap_or_default();
            if let Some(text) = describe_meta(name, &bytes) {
                writeln!(out, "\"{}\": {text}", name.escape_default()).map_err(printing)?;
            }
        }
        if detail >= TableDetail::Blocks {
            write_index(self, out)?;
        }
        if detail >= TableDetail::Entries {
            write_entries(self, explain, out)?;
        }
        Ok(())
    }
}

fn write_summary(table: &TableReader, out: &mut dyn Write) -> io::Result<()> {
    let identity = table.identity();
    let p = table.properties();
    writeln!(out, "sstable          {}", table.source().name())?;
    writeln!(out, "format           version {TABLE_FORMAT_VERSION}")?;
    writeln!(out, "tag              {:016x}", identity.tag)?;
    writeln!(out, "file number      {}", identity.file_number)?;
    writeln!(out, "file bytes       {}", p.file_bytes)?;
    if let Some(owner) = &p.owner {
        writeln!(out, "tree             {}", owner.tree)?;
    }
    writeln!(
        out,
        "entries          {} ({} tombstones, {} merges) of {} keys",
        p.entries, p.tombstones, p.merges, p.distinct_keys
    )?;
    writeln!(out, "smallest key     \"{}\"", p.smallest_key.escape_ascii())?;
    writeln!(out, "largest key      \"{}\"", p.largest_key.escape_ascii())?;
    writeln!(out, "sequences        {}..={}", p.smallest_sequence, p.largest_sequence)?;
    writeln!(out, "raw bytes        {} of keys, {} of values", p.raw_key_bytes, p.raw_value_bytes)?;
    writeln!(
        out,
        "data             {} bytes in {} blocks, {:?}",
        p.data_bytes, p.data_blocks, p.compression
    )?;
    write_parts(table, out)
}

fn write_parts(table: &TableReader, out: &mut dyn Write) -> io::Result<()> {
    let p = table.properties();
    match (table.filter(), table.footer().filter) {
        (Some(filter), Some(handle)) => writeln!(
            out,
            "filter           {}, {} bits per key, {} probes",
            location(handle),
            p.bloom_bits_per_key,
            filter.probes()
        )?,
        _ => writeln!(out, "filter           none")?,
    }
    if let Some((handle, levels)) = table.footer().index {
        let partitions = if levels == IndexLevelCount::Two { p.index_partitions } else { 0 };
        writeln!(
            out,
            "index            {}, {partitions} partitions, {} bytes in all",
            location(handle),
            p.index_bytes
        )?;
    }
    for (name, handle) in table.meta_index() {
        writeln!(out, "meta block       {}, \"{}\"", location(*handle), name.escape_default())?;
    }
    writeln!(out, "meta index       {}", location(table.footer().meta_index))?;
    writeln!(out, "properties       {}", location(table.footer().properties))
}

fn write_index(table: &TableReader, out: &mut dyn Write) -> Result<()> {
    let Some(top) = table.top_index() else {
        return Ok(());
    };
    match top.levels {
        IndexLevelCount::One => write_blocks(&top.block, None, out).map_err(printing),
        IndexLevelCount::Two => {
            for partition in 0..top.block.len() {
                let handle = table.child_handle(&top.block, partition)?;
                writeln!(out, "partition {partition:<6} {}", location(handle)).map_err(printing)?;
                let leaf = table.partition(&top.block, partition)?;
                write_blocks(&leaf, top.block.separator(partition), out).map_err(printing)?;
            }
            Ok(())
        }
    }
}

fn write_entries(table: &Arc<TableReader>, explain: &ExplainEntry<'_>, out: &mut dyn Write) -> Result<()> {
    let mut cursor = table.cursor(false);
    cursor.seek_to_first()?;
    while cursor.valid() {
        let value = cursor.value();
        let printed = value.get(..PRINTED_VALUE_BYTES).unwrap_or(value);
        let more = if printed.len() < value.len() { "..." } else { "" };
        let position = cursor.position().map_or((0, 0), |position| (position.block, position.entry));
        writeln!(
            out,
            "entry {}/{} \"{}\" {:?} {} bytes \"{}\"{more}",
            position.0,
            position.1,
            cursor.key().escape_ascii(),
            cursor.trailer(),
            value.len(),
            printed.escape_ascii()
        )
        .map_err(printing)?;
        if let Some(text) = explain(cursor.key(), cursor.trailer(), value) {
            writeln!(out, "    {text}").map_err(printing)?;
        }
        cursor.next()?;
    }
    Ok(())
}

fn write_blocks(
    leaf: &IndexBlock,
    first: Option<(Vec<u8>, Option<SequenceNumber>)>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for child in 0..leaf.len() {
        let handle = leaf.handle(child).unwrap_or_default();
        write!(out, "block {:<10} {}", leaf.ordinal(child), location(handle))?;
        let separator = if child == 0 { first.clone() } else { leaf.separator(child) };
        match separator {
            Some((key, Some(sequence))) => writeln!(out, ", from \"{}\" #{sequence}", key.escape_ascii())?,
            Some((key, None)) => writeln!(out, ", from \"{}\"", key.escape_ascii())?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn location(handle: BlockHandle) -> String {
    format!("{} bytes at {}", handle.bytes, handle.offset)
}

fn printing(error: io::Error) -> Error {
    Error::io("print an sstable", error)
}
