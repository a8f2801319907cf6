use proptest::prelude::*;

use super::*;

fn encoded(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    value.encode(&mut out).unwrap();
    out
}

/// Numbers where rounding, signs and types meet.
fn extreme_numbers() -> Vec<Value> {
    let mut numbers = vec![
        Value::Int(i64::MIN),
        Value::Int(i64::MIN + 1),
        Value::Int(i64::MAX),
        Value::Int(i64::MAX - 1),
        Value::Uint(u64::MAX),
        Value::Uint(u64::MAX - 1),
        Value::Uint(u64::MAX - 1024),
        Value::Uint(u64::MAX - 1025),
        Value::Int(0),
        Value::Float(-0.0),
        Value::Float(f64::MIN_POSITIVE),
        Value::Float(-f64::MIN_POSITIVE),
        Value::Float(f64::from_bits(1)),
        Value::Float(f64::MAX),
        Value::Float(f64::MIN),
        Value::Float(f64::INFINITY),
        Value::Float(f64::NEG_INFINITY),
        Value::Float(0.1),
        Value::Float(-2.5),
    ];
    for shift in 0..64 {
        let power = 1_u64 << shift;
        for value in [power - 1, power, power + 1] {
            numbers.push(Value::Uint(value));
            numbers.push(Value::Float(value as f64));
            numbers.push(Value::Float((value as f64).next_up()));
            numbers.push(Value::Float((value as f64).next_down()));
            numbers.push(Value::Int((value as i64).wrapping_neg()));
            numbers.push(Value::Float(-(value as f64)));
        }
    }
    numbers
}

fn assert_same_order(left: &Value, right: &Value) {
    assert_eq!(encoded(left).cmp(&encoded(right)), left.cmp(right), "{left:?} and {right:?}");
}

#[test]
fn all_pairs_of_extremes_sort_like_their_bytes() {
    let mut values = extreme_numbers();
    values.extend([Value::Null, Value::Bool(false), Value::Bool(true)]);
    values.extend(
        ["", "\0", "\0\0", "\0\u{1}", "a", "a\0", "a\0b", "ab", "b", "é", "\u{10ffff}"].map(Value::from),
    );
    for left in &values {
        for right in &values {
            assert_same_order(left, right);
        }
        let bytes = encoded(left);
        assert_eq!(Value::decode(&bytes), Some((left.clone(), bytes.len())), "{left:?}");
        assert_eq!(encoded_len(&bytes), Some(bytes.len()));
        for cut in 0..bytes.len() {
            assert_eq!(Value::decode(&bytes[..cut]), None);
            assert_eq!(encoded_len(&bytes[..cut]), None);
        }
    }
}

#[test]
fn the_order_of_numbers_is_the_order_of_their_values() {
    // Independent of both the encoding and `Ord`: sorted manually.
    let sorted = [
        Value::Float(f64::NEG_INFINITY),
        Value::Float(-9.3e18),
        Value::Int(i64::MIN),
        Value::Int(i64::MIN + 1),
        Value::Int(-1),
        Value::Float(-0.5),
        Value::Int(0),
        Value::Float(0.5),
        Value::Int(1),
        Value::Float(9007199254740992.0),
        Value::Int(9007199254740993),
        Value::Float(9007199254740994.0),
        Value::Int(i64::MAX),
        Value::Float(9223372036854775808.0),
        Value::Uint(9223372036854775809),
        Value::Uint(u64::MAX),
        Value::Float(18446744073709551616.0),
        Value::Float(f64::INFINITY),
    ];
    for pair in sorted.windows(2) {
        assert!(pair[0] < pair[1], "{pair:?}");
        assert_same_order(&pair[0], &pair[1]);
    }
}

#[test]
fn equal_numbers_have_equal_bytes_and_other_types_do_not() {
    assert_eq!(encoded(&Value::Int(1)), encoded(&Value::Float(1.0)));
    assert_eq!(encoded(&Value::Uint(7)), encoded(&Value::Int(7)));
    assert_eq!(encoded(&Value::Float(-0.0)), encoded(&Value::Int(0)));
    assert_ne!(encoded(&Value::Int(1)), encoded(&Value::from("1")));
    assert_ne!(encoded(&Value::Int(1)), encoded(&Value::Bool(true)));
}

#[test]
fn nan_is_rejected() {
    let error = Value::Float(f64::NAN).encode(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), bolide_base::ErrorKind::InvalidInput);
    assert!(Value::Float(f64::NAN) > Value::Float(f64::INFINITY));
    assert_eq!(Value::Float(f64::NAN), Value::Float(-f64::NAN));
}

#[test]
fn invalid_encodings_are_rejected() {
    let number = |nearest: f64, difference: u16| {
        let mut bytes = encoded(&Value::Float(nearest));
        bytes[9..].copy_from_slice(&difference.to_be_bytes());
        bytes
    };
    for bytes in [
        vec![],
        vec![0x00],
        vec![0xff; 20],
        number(1.5, 0x8001),
        number(4.0, 0x8001),
        number(1e300, 0x7fff),
        number(f64::INFINITY, 0x8001),
        vec![TAG_STRING, b'a', 0, 2],
        vec![TAG_STRING, 0xc3, 0, 1],
    ] {
        assert_eq!(Value::decode(&bytes), None, "{bytes:?}");
    }
    let mut minus_zero = vec![TAG_NUMBER];
    minus_zero.extend((!SIGN_BIT).to_be_bytes());
    minus_zero.extend([0x80, 0]);
    assert_eq!(Value::decode(&minus_zero), None);
}

#[test]
fn the_successor_sorts_after_all_extensions() {
    for value in [Value::Null, Value::Bool(true), Value::Uint(u64::MAX), Value::from("a\u{10ffff}")] {
        let key = encoded(&value);
        let mut successor = key.clone();
        make_successor(&mut successor);
        let mut extension = key.clone();
        extension.extend([0xff; 9]);
        assert!(extension < successor);
        assert!(key < successor);
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        4 => any::<i64>().prop_map(Value::Int),
        4 => any::<u64>().prop_map(Value::Uint),
        4 => any::<u64>()
            .prop_map(f64::from_bits)
            .prop_filter("NaN", |value| !value.is_nan())
            .prop_map(Value::Float),
        // Floats next to integers of 64 bits, and integers next to floats.
        4 => (any::<u64>(), -3_i64..3).prop_map(|(value, step)| {
            Value::Float(f64::from_bits((value as f64).to_bits().wrapping_add_signed(step)))
        }),
        4 => (0_u32..64, -1100_i64..1100)
            .prop_map(|(shift, step)| Value::Uint((1_u64 << shift).wrapping_add_signed(step))),
        4 => "[\0\u{1}aé\u{10ffff}]{0,5}".prop_map(Value::String),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn bytes_sort_like_values(left in any_value(), right in any_value()) {
        prop_assert_eq!(encoded(&left).cmp(&encoded(&right)), left.cmp(&right));
    }

    #[test]
    fn concatenated_values_round_trip(first in any_value(), second in any_value()) {
        let mut bytes = encoded(&first);
        bytes.extend(encoded(&second));
        let (decoded, len) = Value::decode(&bytes).unwrap();
        prop_assert_eq!(&decoded, &first);
        prop_assert_eq!(encoded_len(&bytes), Some(len));
        prop_assert_eq!(Value::decode(&bytes[len..]), Some((second, bytes.len() - len)));
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..24)) {
        if let Some((value, len)) = Value::decode(&bytes) {
            prop_assert_eq!(encoded(&value), &bytes[..len]);
        }
    }
}
