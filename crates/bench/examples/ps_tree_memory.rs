//! Memory of an index of kind `ps-tree`, in bytes per record: while it is loaded, after updates, and after an idle sweep.
//!
//! `cargo run --release -p bolide-bench --example ps_tree_memory -- [records]`
//!
//! | load | attribute values |
//! |---|---|
//! | groups | 25 records a value |
//! | unique | another value for each record, in random order |
//! | ascending | another value for each record, in ascending order |
//!
//! Updates write each record three times, in random order: `same` with its old value, `new` with another unique value.

use std::time::Instant;

use bolide::{CollectionOptions, Components, Db, IndexSpace, Options, PsTreeFigures, Result};

/// A bijection of numbers below 2^32, to have unique values in random order.
fn scrambled(number: u64) -> u64 {
    let mut word = number as u32;
    word = (word ^ word >> 16).wrapping_mul(0x7feb_352d);
    word = (word ^ word >> 15).wrapping_mul(0x846c_a68b);
    u64::from(word ^ word >> 16)
}

struct Load {
    db: Db,
    records: u64,
    peak: u64,
}

impl Load {
    fn new(records: u64) -> Result<Self> {
        let db = Db::open_with("db", Options::default(), Components::in_memory())?;
        db.create_collection("c", CollectionOptions::json().index("v:ps-tree".parse()?))?;
        Ok(Self { db, records, peak: 0 })
    }

    fn figures(&self) -> PsTreeFigures {
        let stats = self.db.stats();
        stats.collections[0].indexes[0].figures_of::<PsTreeFigures>().copied().expect("a ps-tree index")
    }

    /// Writes the records in the order of `number_at`, with the values of `value_of`.
    fn write(&mut self, number_at: impl Fn(u64) -> u64, value_of: impl Fn(u64) -> u64) -> Result<f64> {
        let records = self.db.collection("c")?;
        let begun = Instant::now();
        for at in 0..self.records {
            let number = number_at(at);
            records.put(&number.to_be_bytes(), format!(r#"{{"v":{}}}"#, value_of(number)).as_bytes())?;
            if at % 10_000 == 0 {
                self.peak = self.peak.max(self.figures().allocated_bytes);
            }
        }
        self.peak = self.peak.max(self.figures().allocated_bytes);
        Ok(begun.elapsed().as_secs_f64() * 1e6 / self.records as f64)
    }

    fn report(&mut self, what: &str, micros: f64) -> Result<()> {
        let (now, records) = (self.figures(), self.records as f64);
        let space = self.db.collection("c")?.index_space("v")?;
        let space = space.as_ref().and_then(|space| space.get::<IndexSpace>()).copied().unwrap_or_default();
        println!(
            "{what:28} {micros:6.2} us/put  memory {:6.1} peak {:6.1}  disk {:6.1} | nodes {:5.1} records {:5.1} \
             pages {:5.1} versions {:5.1} filter {:4.1} | keys {} entries {}",
            now.allocated_bytes as f64 / records,
            self.peak as f64 / records,
            now.disk_bytes as f64 / records,
            space.skey.node_bytes as f64 / records,
            space.skey.record_bytes as f64 / records,
            (space.head_page_bytes + space.sealed_page_bytes) as f64 / records,
            now.version_bytes as f64 / records,
            now.filter_bytes as f64 / records,
            now.keys,
            now.entries,
        );
        self.peak = 0;
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        std::thread::sleep(std::time::Duration::from_secs(3));
        self.db.flush()?;
        self.report("  after a pause", 0.0)
    }
}

fn main() -> Result<()> {
    let records: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(200_000);
    let random = |seed: u64| move |at: u64| (at.wrapping_mul(2_654_435_761) ^ seed) % records;
    for (name, value_of) in [
        ("groups", (|number, records| scrambled(number % (records / 25))) as fn(u64, u64) -> u64),
        ("unique", |number, _| scrambled(number)),
        ("ascending", |number, _| number),
    ] {
        for updates in ["same", "new"] {
            let mut load = Load::new(records)?;
            let micros = load.write(|at| at, |number| value_of(number, records))?;
            load.report(name, micros)?;
            for round in 1..=3_u64 {
                let shift = if updates == "new" { round * records } else { 0 };
                let micros = load.write(random(round), |number| value_of(number + shift, records))?;
                load.report(&format!("  {updates} values, update {round}"), micros)?;
            }
            load.settle()?;
        }
    }
    Ok(())
}
