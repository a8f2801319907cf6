//! Descriptions of index blocks and directories, and the entry point of the fuzzer.

use std::fmt::Write as _;

use super::directory::{Directory, parse_filter_name, parse_name};
use super::key_block::KeyBlock;
use super::key_filter::KeyFilter;
use crate::in_sstable::bound_text;
use crate::space::Rect;
use crate::space::rect_block;

/// Describes the meta block `name` with the content `bytes` in one line, for file dumps; `None` if it does not belong to
/// an index of kind `next`.
///
/// ```
/// use bolide_index::next::describe_meta_block;
/// assert!(describe_meta_block("other", b"").is_none());
/// assert!(describe_meta_block("next/7", b"").unwrap().contains("does not decode"));
/// assert!(describe_meta_block("next/7/0", b"").unwrap().contains("does not decode"));
/// ```
pub fn describe_meta_block(name: &str, bytes: &[u8]) -> Option<String> {
    if let Some(id) = parse_filter_name(name) {
        let text =
            KeyFilter::decode(bytes).map(|filter| format!("filter of {} bytes", filter.memory_bytes()));
        return Some(format!(
            "index {id} of kind next: {}",
            text.unwrap_or_else(|| "does not decode".to_owned())
        ));
    }
    let (id, number) = parse_name(name)?;
    let text = match number {
        Some(number) => describe_block(bytes).map(|text| format!("index block {number}: {text}")),
        None => describe_directory(bytes),
    };
    Some(format!("index {id} of kind next: {}", text.unwrap_or_else(|| "does not decode".to_owned())))
}

fn describe_directory(bytes: &[u8]) -> Option<String> {
    let directory = Directory::decode(bytes, |_| Some(0))?;
    let blocks = directory.blocks();
    let entries: u64 = blocks.iter().map(|info| u64::from(info.entries)).sum();
    let opaque: u64 = blocks.iter().filter(|info| info.is_opaque).map(|info| u64::from(info.entries)).sum();
    let mut text = format!(
        "directory of {} index blocks with {} ranges and {entries} entries over {} data blocks",
        blocks.len(),
        directory.ranges(),
        directory.data_blocks()
    );
    if opaque > 0 {
        let _ = write!(text, "; {opaque} opaque records");
    }
    let around = directory.rects().iter().map(|(_, rect)| *rect).reduce(|all, one| all.union(&one));
    if let Some(around) = around {
        let _ = write!(text, "; rectangles within {around}");
    }
    let last =
        directory.key_ranges().checked_sub(1).and_then(|last| directory.range(u32::try_from(last).ok()?));
    if let (Some((_, low, _)), Some((.., high))) = (directory.range(0), last) {
        let _ = write!(text, "; from {} to {}", bound_text(low), bound_text(high));
    }
    Some(text)
}

fn describe_block(bytes: &[u8]) -> Option<String> {
    if bytes.first() == Some(&rect_block::FORMAT) {
        let mut around: Option<Rect> = None;
        let count = rect_block::visit(bytes, None, |entry| {
            around = Some(around.map_or(entry.rect, |around| around.union(&entry.rect)));
        })?;
        return Some(format!("{count} rectangles, within {}", around?));
    }
    let block = KeyBlock::parse(bytes)?;
    let mut keys = block.keys_from_start(Vec::new());
    let (mut count, mut first, mut last) = (0, Vec::new(), Vec::new());
    while keys.next()? {
        last.clear();
        keys.write_key(&mut last);
        if count == 0 {
            first.clone_from(&last);
        }
        count += 1;
    }
    let entries = block.entries();
    Some(format!("{count} keys, {entries} entries; from {} to {}", bound_text(&first), bound_text(&last)))
}

/// Decodes an index block and a directory and queries them, for fuzzing: any bytes are rejected or harmless.
#[doc(hidden)]
pub fn fuzz_blocks(bytes: &[u8], query: &[u8]) {
    if let Some(block) = KeyBlock::parse(bytes)
        && let Some(mut keys) = block.seek(query, Vec::new())
    {
        let mut key = Vec::new();
        while let Some(true) = keys.next() {
            key.clear();
            keys.write_key(&mut key);
            let _ = keys.is_below(query);
            // The numbers of entries are checked against the block; their fields may be anything.
            let mut entries = keys.entries();
            assert!(entries.next().is_some_and(|entry| block.entry(entry).is_some()));
            assert!(entries.last().is_none_or(|entry| block.entry(entry).is_some()));
        }
        assert!(block.entry(block.entries()).is_none());
    }
    let window = Rect::decode(query);
    let _ = rect_block::visit(bytes, window.as_ref(), |entry| {
        assert!(window.is_none_or(|window| window.intersects(&entry.rect)));
    });
    if let Some(directory) = Directory::decode(bytes, |number| u32::try_from(number).ok()) {
        for (block, _) in directory.rects() {
            assert!(directory.blocks().get(*block as usize).is_some());
        }
        for range in 0..directory.key_ranges() as u32 {
            let (block, first, last) = directory.range(range).unwrap_or((u32::MAX, &[], &[]));
            assert!(directory.blocks().get(block as usize).is_some() && first <= last);
        }
    }
    if let Some(filter) = KeyFilter::decode(bytes) {
        // Any result is correct.
        filter.may_contain(bolide_base::checksum::hash_key(query));
    }
    assert!(describe_meta_block("next/7/filter", bytes).is_some());
    assert!(
        describe_meta_block("next/7", bytes).is_some() && describe_meta_block("next/7/1", bytes).is_some()
    );
}
