//! Speed of decoding: gigabytes of JSON per second, for three columns and for all.
//!
//! ```sh
//! cargo run --release -p bolide-arrow --example decode_speed -- posts.ndjson
//! ```

use std::time::Instant;

use bolide_arrow::{BatchLimits, Column, InferenceLimits, RecordDecoder, RecordKey, SchemaInference};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: decode_speed FILE.ndjson")?;
    let text = std::fs::read_to_string(path)?;
    let records: Vec<&str> = text.lines().collect();
    let mut inference = SchemaInference::new(InferenceLimits::default());
    for record in records.iter().take(10_000) {
        inference.add(record.as_bytes());
    }
    let all = inference.finish();
    let three: Vec<Column> = [("subreddit", "string"), ("score", "int64"), ("created_ms", "timestamp[ms]")]
        .into_iter()
        .map(|(name, of)| Column::parse(name, of))
        .collect::<Result<_, _>>()?;
    for columns in [three, all] {
        let count = columns.len();
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let mut decoder = RecordDecoder::new(columns.clone(), BatchLimits::default())?;
            let started = Instant::now();
            let mut rows = 0;
            for record in &records {
                decoder.push(RecordKey::Int(1), 1, record.as_bytes())?;
                if decoder.is_full() {
                    rows += decoder.finish()?.num_rows();
                }
            }
            rows += decoder.finish()?.num_rows();
            assert_eq!((rows, decoder.malformed()), (records.len(), 0));
            best = best.min(started.elapsed().as_secs_f64());
        }
        let (gigabytes, nanos) = (text.len() as f64 / 1e9, best * 1e9 / records.len() as f64);
        println!("{count} columns: {:.2} GB/s, {nanos:.0} ns a record", gigabytes / best);
    }
    Ok(())
}
