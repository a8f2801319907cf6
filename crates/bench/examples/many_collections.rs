//! Measures a database of many collections with an index each: the times to create them, to flush, to close and to open, and the
//! memory.
//!
//! ```sh
//! cargo run --release -p bolide-bench --example many_collections -- DIR [COLLECTIONS]
//! ```
//!
//! `DIR` must not exist. Each of the `COLLECTIONS` (1,000) gets one record, and after the second opening another one.

use bolide::storage::{Runtime, SystemRuntime};
use bolide::{CollectionOptions, Db, Error, Options, Result};

/// Prints the time since the last call.
struct Clock {
    runtime: SystemRuntime,
    last: u64,
}

impl Clock {
    fn lap(&mut self, what: &str) {
        let now = self.runtime.now_micros();
        println!("{what:<24} {:>9.3} s", (now - self.last) as f64 / 1e6);
        self.last = self.runtime.now_micros();
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dir =
        arguments.first().ok_or_else(|| Error::invalid_input("usage: many_collections DIR [COLLECTIONS]"))?;
    let count: usize = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(1_000);
    let names: Vec<String> = (0..count).map(|number| format!("c{number}")).collect();
    let runtime = SystemRuntime::new();
    let mut clock = Clock { last: runtime.now_micros(), runtime };
    let db = Db::open(dir, Options::default())?;
    for name in &names {
        let collection = db.create_collection(name, CollectionOptions::json().index("group".parse()?))?;
        collection.put(b"1", br#"{"group":"g"}"#)?;
    }
    clock.lap("create, one put each");
    db.flush()?;
    clock.lap("flush");
    println!("memory, counted          {:>9.1} MB", db.stats().memory.reserved_bytes() as f64 / 1e6);
    db.close()?;
    clock.lap("close");
    let db = Db::open(dir, Options::default())?;
    clock.lap("open");
    for name in &names {
        db.collection(name)?.put(b"2", br#"{"group":"g"}"#)?;
    }
    clock.lap("one put each");
    db.flush()?;
    clock.lap("flush");
    db.close()?;
    clock.lap("close");
    Ok(())
}
