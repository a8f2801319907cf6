//! Any bytes as an index block and as a directory of an index of kind `next`: rejected, or queried without a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // The first byte is the length of the query at the start of the rest.
    let Some((&len, rest)) = input.split_first() else { return };
    let (query, block) = rest.split_at_checked(usize::from(len)).unwrap_or((rest, &[]));
    bolide_index::next::fuzz_blocks(block, query);
});
