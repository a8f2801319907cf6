//! Any bytes as encoded values: a decoded value encodes to the same bytes, and sorts like them.
#![no_main]

use bolide_index::Value;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((first, len)) = Value::decode(input) else { return };
    let mut key = Vec::new();
    first.encode(&mut key).expect("a decoded value has a key");
    assert_eq!(key, &input[..len]);
    if let Some((second, second_len)) = Value::decode(&input[len..]) {
        assert_eq!(first.cmp(&second), input[..len].cmp(&input[len..len + second_len]));
    }
});
