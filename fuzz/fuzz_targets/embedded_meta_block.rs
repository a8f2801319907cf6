//! Any bytes as the meta block and the summary of an embedded index: rejected, or queried without a panic. A decoded block
//! encodes to the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // The first byte is the length of the query at the start of the rest.
    let Some((&len, rest)) = input.split_first() else { return };
    let (query, block) = rest.split_at_checked(usize::from(len)).unwrap_or((rest, &[]));
    bolide_index::embedded::fuzz_meta_block(block, query);
});
