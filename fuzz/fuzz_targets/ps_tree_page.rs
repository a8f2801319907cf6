//! A small PS-Tree with damaged pages behind valid checksums: reads, checks, writes and sweeps succeed or report damage.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bolide_index::ps_tree::fuzz_ps_tree(input);
});
