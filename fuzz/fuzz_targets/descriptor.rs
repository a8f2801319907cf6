//! The descriptor of a tree, as the manifest keeps it: anything is told in words or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(words) = bolide::describe_descriptor(bytes) {
        assert!(!words.is_empty());
    }
});
