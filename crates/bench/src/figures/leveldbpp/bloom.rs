//! Table 8: the length of the embedded Bloom filters and the reads that they save.

use super::indexed_database::{IndexVariant, IndexedDatabase};
use super::queries::{QueryCase, Values};
use super::{USER, bars, listed, load, location, report, seed_set, tweets};
use crate::data::random::Random;
use crate::error::Result;
use crate::figures::Scale;
use crate::figures::report::FigureReport;
use crate::measure::{Cause, thread_cpu_nanos};

const LENGTHS: [IndexVariant; 5] = [
    IndexVariant { name: "5 bits", spec: Some("embedded:bloom_bits=5") },
    IndexVariant { name: "10 bits", spec: Some("embedded:bloom_bits=10") },
    IndexVariant { name: "20 bits", spec: Some("embedded:bloom_bits=20") },
    IndexVariant { name: "100 bits", spec: Some("embedded:bloom_bits=100") },
    IndexVariant { name: "200 bits", spec: Some("embedded:bloom_bits=200") },
];

pub(super) fn table_8(scale: &Scale) -> Result<FigureReport> {
    let seed_set = seed_set(scale)?;
    let (tweets, rows) = tweets(scale, &seed_set);
    let values = Values::new(USER, &tweets, &rows);
    let mut report = report("leveldbpp-table8", "Table 8", scale, &seed_set);
    report.set("lookups", scale.queries);
    let (mut sizes, mut reads, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for kind in LENGTHS {
        let subject = IndexedDatabase::open(&location(scale), kind, &[USER], true)?;
        load(&subject, &rows)?;
        subject.flush()?;
        sizes.push((kind, vec![subject.disk_bytes()? as f64 / 1e6]));
        let mut random = Random::new(scale.seed ^ 80);
        let (io, cpu) = (subject.io().of(Cause::Lookup), thread_cpu_nanos());
        for _ in 0..scale.queries {
            values.run_query(&subject, &mut random, QueryCase::Lookup, None)?;
        }
        let queries = scale.queries as f64;
        times.push((kind, vec![(thread_cpu_nanos() - cpu) as f64 / 1000.0 / queries]));
        reads.push((kind, vec![subject.io().of(Cause::Lookup).since(io).reads as f64 / queries]));
    }
    let summary = |all: &[(IndexVariant, Vec<f64>)]| {
        listed(&all.iter().map(|(kind, values)| (kind.name, values[0])).collect::<Vec<_>>())
    };
    let first = |all: &[(IndexVariant, Vec<f64>)]| all.first().map_or(0.0, |(_, values)| values[0]);
    let last = |all: &[(IndexVariant, Vec<f64>)]| all.last().map_or(0.0, |(_, values)| values[0]);
    report.claim("longer filters take more space", first(&sizes) < last(&sizes), summary(&sizes));
    report.claim(
        "longer filters save reads, with decreasing gain",
        first(&reads) > last(&reads) && reads[0].1[0] - reads[2].1[0] >= reads[2].1[0] - reads[4].1[0],
        summary(&reads),
    );
    report.panels = vec![
        bars("Size on disk", "MB", false, &["database"], sizes),
        bars("Reads of a LOOKUP without limit", "file accesses", false, &["by user"], reads),
        bars("Time of a LOOKUP without limit", "CPU µs, calling thread", false, &["by user"], times),
    ];
    Ok(report)
}
