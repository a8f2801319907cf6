//! What questions to an index of kind `next` take, counted in instructions by whoever runs this under a counter:
//!
//! ```text
//! cargo run --release -p bolide --example next_costs -- KIND WHAT ROUNDS
//! ```
//!
//! KIND is that of the index, WHAT one of `fill`, `newest` (ten records of one value) and `range` (all records of ten values). A run
//! of no rounds counts what comes before, to be taken off.

use bolide::{CollectionOptions, Components, Db, Options, Query};

/// Records, and how many have the same value.
const RECORDS: u64 = 100_000;
const OF_VALUE: u64 = 25;

fn main() -> bolide::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |number: usize| arguments.get(number).map_or("", String::as_str);
    let (kind, what, rounds) = (argument(0), argument(1), argument(2).parse().unwrap_or(0));
    let options = Options::default().cache_bytes(256 << 20).background_threads(0);
    let db = Db::open_with("db", options, Components::in_memory())?;
    let mut records = CollectionOptions::json();
    if kind != "none" {
        records = records.index(format!("a:{kind}").parse()?);
    }
    let records = db.create_collection("records", records)?;
    for number in 0..RECORDS {
        let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (RECORDS / OF_VALUE);
        let record = format!(r#"{{"a":{value},"pad":"{number:0>100}"}}"#);
        records.put(&(number.wrapping_mul(0x2545_f491_4f6c_dd1d)).to_be_bytes(), record.as_bytes())?;
    }
    if what == "fill" {
        return Ok(());
    }
    db.compact()?;
    let mut answers = 0;
    // The first round brings blocks into the cache.
    for round in 0..=rounds {
        let value = if round == 0 { 0 } else { 17 * round % 3_000 };
        let query = match what {
            "newest" => Query::new().eq("a", value).limit(10),
            _ => Query::new().range("a", value..value + 10),
        };
        answers += records.find(&query)?.len();
    }
    println!("{answers} answers");
    Ok(())
}
