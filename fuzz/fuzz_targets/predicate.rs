//! Any text as the predicates and values of a query.
#![no_main]

use bolide_index::predicate::parse_value;
use bolide_index::{Order, Predicate, Query};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(equal) = Predicate::parse_equal(text) {
        let again = Predicate::parse_equal(&equal.to_string()).expect("a printed predicate parses");
        assert_eq!(again, equal);
    }
    if let Ok(range) = Predicate::parse_range(text) {
        let again = Predicate::parse_range(&range.to_string()).expect("a printed predicate parses");
        assert_eq!(again, range);
        assert!(Query::new().predicate(range).check().is_ok());
    }
    if let Ok(value) = parse_value(text) {
        let mut key = Vec::new();
        value.encode(&mut key).expect("a parsed value has a key");
        assert_eq!(bolide_index::Value::decode(&key), Some((value, key.len())));
    }
    let _ = Order::parse(text);
});
