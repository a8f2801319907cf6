//! Any text as the declaration of an index.
#![no_main]

use bolide_index::IndexSpec;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(spec) = text.parse::<IndexSpec>() {
        let again: IndexSpec = spec.to_string().parse().expect("a printed specification parses");
        assert_eq!(again, spec);
    }
});
