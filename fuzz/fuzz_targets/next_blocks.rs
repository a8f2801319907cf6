//! Any bytes as an index block and as a directory of an index of kind `next`: refused, or asked without harm.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // The first byte says how long the question is that the rest begins with.
    let Some((&len, rest)) = input.split_first() else { return };
    let (question, block) = rest.split_at_checked(usize::from(len)).unwrap_or((rest, &[]));
    bolide_index::next::fuzz_blocks(block, question);
});
