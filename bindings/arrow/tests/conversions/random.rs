//! Random values that depend on a seed alone.

use bolide_arrow::{ColumnType, ScalarType};
use serde_json::{Value, json};

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// Prints the seed: that of `BOLIDE_SEED`, or another one in each run.
    pub(crate) fn seeded(test: &str) -> Self {
        let seed =
            std::env::var("BOLIDE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
                now.as_nanos() as u64
            });
        println!("{test}: BOLIDE_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn text(&mut self) -> String {
        let parts =
            ["", "a", "\"", "\\", "\n", "\u{1}", "é", "😀", "a longer part of a text", "/", "}", "]", ","];
        (0..self.below(5)).map(|_| parts[self.below(parts.len())]).collect()
    }

    fn int(&mut self) -> i64 {
        match self.below(4) {
            0 => self.below(20) as i64 - 10,
            1 => [i64::MAX, i64::MIN, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1][self.below(5)],
            2 => (self.next() >> self.below(64)) as i64,
            _ => self.below(1_000_000) as i64,
        }
    }

    fn float(&mut self) -> f64 {
        match self.below(4) {
            0 => [0.0, -0.0, 1.0, 1e300, -1e-300, 9.3e18, 4e15][self.below(7)],
            1 => self.below(1000) as f64 / 8.0,
            _ => {
                let value = f64::from_bits(self.next());
                if value.is_finite() { value } else { 0.5 }
            }
        }
    }

    fn scalar_of(&mut self, scalar: ScalarType) -> Value {
        match scalar {
            ScalarType::Bool => json!(self.below(2) == 0),
            ScalarType::Int64 => json!(self.int()),
            ScalarType::Float64 => json!(self.float()),
            ScalarType::Timestamp(_) => json!(self.int()),
            ScalarType::String | ScalarType::Json => json!(self.text()),
            ScalarType::Date => json!(format!(
                "{:04}-{:02}-{:02}",
                1 + self.below(9999),
                1 + self.below(12),
                1 + self.below(28)
            )),
            ScalarType::IsoTimestamp => json!(format!(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}{}",
                1900 + self.below(300),
                1 + self.below(12),
                1 + self.below(28),
                self.below(24),
                self.below(60),
                self.below(60),
                self.below(1_000_000),
                ["", "Z", "+02:30", "-11:00"][self.below(4)]
            )),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn value_of(&mut self, column_type: ColumnType) -> Value {
        match column_type {
            ColumnType::Scalar(scalar) => self.scalar_of(scalar),
            ColumnType::List(element) => (0..self.below(4))
                .map(|_| if self.below(6) == 0 { Value::Null } else { self.scalar_of(element) })
                .collect(),
        }
    }

    /// Any value.
    pub(crate) fn json(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 5 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.int()),
            3 => json!(self.float()),
            4 => json!(self.text()),
            5 => (0..self.below(4)).map(|_| self.json(depth - 1)).collect(),
            6 => json!(u64::MAX - self.below(10) as u64),
            _ => {
                Value::Object((0..self.below(4)).map(|at| (format!("f{at}"), self.json(depth - 1))).collect())
            }
        }
    }
}
