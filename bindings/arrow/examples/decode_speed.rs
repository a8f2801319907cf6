//! Speed of decoding: gigabytes of JSON per second, for three columns and for all, by one thread and by several.
//!
//! ```sh
//! cargo run --release -p bolide-arrow --example decode_speed -- posts.ndjson [THREADS]
//! ```

use std::sync::Arc;
use std::time::Instant;

use bolide_arrow::{
    BatchLimits, Column, ConversionError, InferenceLimits, PartStream, RecordDecoder, RecordKey,
    SchemaInference,
};

/// Records that a thread decodes at once.
const PART_RECORDS: usize = 32_768;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: decode_speed FILE.ndjson [THREADS]")?;
    let threads = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let text = std::fs::read_to_string(path)?;
    let bytes = text.len();
    let mut inference = SchemaInference::new(InferenceLimits::default());
    for record in text.lines().take(10_000) {
        inference.add(record.as_bytes());
    }
    let all = inference.finish();
    let three: Vec<Column> = [("subreddit", "string"), ("score", "int64"), ("created_ms", "timestamp[ms]")]
        .into_iter()
        .map(|(name, of)| Column::parse(name, of))
        .collect::<Result<_, _>>()?;
    let records: Arc<Vec<Box<[u8]>>> = Arc::new(text.lines().map(|line| line.as_bytes().into()).collect());
    for columns in [three, all] {
        let count = columns.len();
        let mut best = f64::INFINITY;
        for _ in 0..7 {
            let started = Instant::now();
            let (records_of_parts, columns) = (records.clone(), columns.clone());
            let parts = records.len().div_ceil(PART_RECORDS);
            let batches = PartStream::start(parts, threads, move |part, pass| {
                let mut decoder = RecordDecoder::new(columns.clone(), BatchLimits::default())?;
                for record in records_of_parts.iter().skip(part * PART_RECORDS).take(PART_RECORDS) {
                    decoder.push(RecordKey::Int(1), 1, record)?;
                    if decoder.is_full() && pass(decoder.finish()?).is_break() {
                        return Ok(());
                    }
                }
                let _ = pass(decoder.finish()?);
                Ok::<(), ConversionError>(())
            })?;
            let mut rows = 0;
            for batch in batches {
                rows += batch?.num_rows();
            }
            assert_eq!(rows, records.len());
            best = best.min(started.elapsed().as_secs_f64());
        }
        let (gigabytes, nanos) = (bytes as f64 / 1e9, best * 1e9 / records.len() as f64);
        println!("{count} columns, {threads} threads: {:.2} GB/s, {nanos:.0} ns a record", gigabytes / best);
    }
    Ok(())
}
