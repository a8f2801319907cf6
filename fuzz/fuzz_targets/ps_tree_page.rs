//! A small PS-Tree whose pages are damaged in ways that no checksum of a file has caught: it is read, checked, written to
//! and swept, and answers or says that it is damaged.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    bolide_index::ps_tree::fuzz_ps_tree(input);
});
