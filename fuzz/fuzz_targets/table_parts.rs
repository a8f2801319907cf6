//! Any bytes as an index block, a filter, properties, an index of meta blocks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    bolide_table::fuzzing::index_block(bytes);
    bolide_table::fuzzing::small_parts(bytes);
});
