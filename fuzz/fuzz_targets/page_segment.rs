//! Any bytes as a page segment, and as records with valid checksums in one: loaded as a region, or rejected.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bolide_lsm::page_log::fuzz_segment(input);
});
