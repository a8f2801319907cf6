//! Any text as a filter.
#![no_main]

use bolide_index::{Filter, Query};

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Filter::parse(text) {
        Ok(filter) => {
            let printed = filter.to_string();
            let again = Filter::parse(&printed).expect("a printed filter parses");
            assert_eq!(again, filter);
            assert_eq!(again.to_string(), printed);
            let _ = Query::new().filter(filter).check();
        }
        Err(error) => assert!(!error.message().is_empty()),
    }
});
