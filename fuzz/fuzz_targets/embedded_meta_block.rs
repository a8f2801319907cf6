//! Any bytes as the meta block and the summary of an embedded index: refused, or asked without harm, and what decodes
//! is what it was decoded from.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    // The first byte says how long the question is that the rest begins with.
    let Some((&len, rest)) = input.split_first() else { return };
    let (question, block) = rest.split_at_checked(usize::from(len)).unwrap_or((rest, &[]));
    bolide_index::embedded::fuzz_meta_block(block, question);
});
