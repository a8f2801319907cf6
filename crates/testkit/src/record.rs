//! Random records: JSON objects whose attributes have few distinct values, so that queries match.

use bolide_storage::SimRng;
use serde_json::{Map, Value, json};

/// The text of a random record.
///
/// | attribute | values |
/// |---|---|
/// | `a` | anything: null, booleans, integers up to 64 bits, floats, strings; sometimes an array or an object |
/// | `n.x` | integers from -5 to 20; sometimes the path is missing |
/// | `tags[*]` | up to four strings or small numbers, with repetitions |
/// | `s` | one of ten strings; sometimes missing |
/// | `p.x`, `p.y` | coordinates from -2 to 6 in halves; sometimes one is missing or has another type |
/// | `areas` | a rectangle, or an array of up to three, that touch and repeat; sometimes inverted or malformed |
/// | `pad` | text of very different lengths |
pub fn record(rng: &mut SimRng) -> Vec<u8> {
    let mut fields = Map::new();
    if !rng.one_in(8) {
        let value = match rng.below(12) {
            0 => json!([1, "x"]),
            1 => json!({"b": 1}),
            _ => scalar(rng),
        };
        fields.insert("a".to_owned(), value);
    }
    let x = match rng.below(10) {
        0 => json!(7),
        1 => json!([{"x": 3}]),
        _ => json!({"x": rng.below(26) as i64 - 5}),
    };
    fields.insert("n".to_owned(), x);
    if !rng.one_in(6) {
        let tags = match rng.below(12) {
            0 => json!("red"),
            _ => Value::Array((0..rng.below(5)).map(|_| tag(rng)).collect()),
        };
        fields.insert("tags".to_owned(), tags);
    }
    if !rng.one_in(12) {
        fields.insert("s".to_owned(), json!(format!("w{}", rng.below(10))));
    }
    fields.insert("pad".to_owned(), json!(padding(rng)));
    match rng.below(10) {
        0 => {}
        1 => drop(fields.insert("p".to_owned(), json!({"x": coordinate(rng), "y": "north"}))),
        _ => drop(fields.insert("p".to_owned(), json!({"x": coordinate(rng), "y": coordinate(rng)}))),
    }
    match rng.below(8) {
        0 => {}
        1 => drop(fields.insert("areas".to_owned(), json!([1, 2, 3]))),
        2..=3 => {
            let areas: Vec<_> = (0..rng.below(4)).map(|_| rectangle(rng)).collect();
            fields.insert("areas".to_owned(), json!(areas));
        }
        _ => drop(fields.insert("areas".to_owned(), json!(rectangle(rng)))),
    }
    Value::Object(fields).to_string().into_bytes()
}

/// A random scalar of any type, from a small set.
pub fn scalar(rng: &mut SimRng) -> Value {
    match rng.below(16) {
        0 => Value::Null,
        1 => json!(rng.one_in(2)),
        2 => json!(i64::MIN),
        3 => json!(u64::MAX - rng.below(2)),
        4 => json!(9_007_199_254_740_992_i64 + rng.below(3) as i64),
        5 => json!(9_007_199_254_740_992_f64),
        6 => json!(rng.below(8) as f64 / 2.0),
        7 => json!(-0.0),
        8 => json!(-(rng.below(5) as f64) * 1e200),
        9 => json!(""),
        10 => json!("a\u{0}b"),
        11 => json!("é\u{10ffff}"),
        12 => json!(format!("w{}", rng.below(10))),
        _ => json!(rng.below(10) as i64 - 3),
    }
}

/// A random spatial attribute.
pub fn spatial_path(rng: &mut SimRng) -> &'static str {
    rng.pick(&["point(p.x,p.y)", "rect(areas)"]).copied().unwrap_or("rect(areas)")
}

/// A random coordinate, from a small set.
pub fn coordinate(rng: &mut SimRng) -> f64 {
    f64::from(rng.below(17) as u32) / 2.0 - 2.0
}

/// The corners of a random rectangle; sometimes an invalid one.
fn rectangle(rng: &mut SimRng) -> [f64; 4] {
    let [x, y] = [coordinate(rng), coordinate(rng)];
    if rng.one_in(12) {
        return [x, y, x - 1.0, y];
    }
    [x, y, x + f64::from(rng.below(4) as u32) / 2.0, y + f64::from(rng.below(4) as u32) / 2.0]
}

/// A random element of `tags`.
pub fn tag(rng: &mut SimRng) -> Value {
    match rng.below(8) {
        0 => json!(rng.below(3)),
        _ => json!(*rng.pick(&["red", "green", "blue", "white", "black"]).unwrap_or(&"red")),
    }
}

/// Mostly short text, sometimes longer than a block.
fn padding(rng: &mut SimRng) -> String {
    let length = match rng.below(20) {
        0 => 500 + rng.below(3_000),
        1..=4 => rng.below(300),
        _ => rng.below(40),
    };
    // Half random, half repeated, so that compression is effective but not extreme.
    let letter = char::from(b'a' + rng.below(26) as u8);
    (0..length).map(|_| if rng.one_in(2) { letter } else { char::from(b'a' + rng.below(26) as u8) }).collect()
}
