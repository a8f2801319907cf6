//! A complete sstable with valid checksums: any bytes, or a valid table with edits.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((0, file)) => bolide_table::fuzzing::table(file),
        _ => bolide_table::fuzzing::edited_table(bytes),
    }
});
