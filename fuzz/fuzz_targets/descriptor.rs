//! Any bytes as the descriptor of a tree in the manifest: described as text or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(words) = bolide::describe_descriptor(bytes) {
        assert!(!words.is_empty());
    }
});
