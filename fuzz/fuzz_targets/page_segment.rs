//! Any bytes as a page segment, and as records with good checksums in one: loaded as a region, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bolide_lsm::page_log::fuzz_segment(input);
});
