//! Any bytes as the payload of a data block.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bolide_table::fuzzing::data_block(bytes));
