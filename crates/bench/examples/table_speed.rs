//! Speed of writing and reading sstables when all blocks are cached.
//!
//! `cargo run --release -p bolide-bench --example table_speed -- [entries] [rounds]`
//!
//! Random keys of 16 bytes with values of 120, uncompressed, in tables of about 64 MB, as in a sorted run: a key is looked
//! up in the one table whose range contains it. Prints nanoseconds of CPU time of the calling thread per operation, the
//! median of all rounds.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{EntryKind, FileIdentity, MAX_SEQUENCE, Result, Trailer};
use bolide_storage::{File, MemVfs, Runtime, SystemRuntime, Vfs};
use bolide_table::{
    BlockCache, Compression, FileSource, InternalCursor, TableBuilder, TableCursor, TableOptions,
    TableReader, table_file_name,
};

const TABLE_BYTES: u64 = 64 << 20;
const READS: usize = 400_000;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

fn build(keys: &[[u8; 16]], value: &[u8]) -> Result<Vec<Arc<dyn File>>> {
    let vfs = MemVfs::new();
    let options = TableOptions::default().compression(Compression::None);
    let mut files = Vec::new();
    let mut builder: Option<TableBuilder> = None;
    for (number, key) in keys.iter().enumerate() {
        let open = match &mut builder {
            Some(open) => open,
            None => {
                let path = table_file_name(files.len() as u64);
                let file = vfs.create(Path::new(&path))?;
                files.push(Arc::clone(&file));
                builder.insert(TableBuilder::new(file, identity(files.len() - 1), &options, Vec::new())?)
            }
        };
        // Sequence numbers as after random inserts.
        let sequence = (number as u64).wrapping_mul(0x9e37_79b9) % (keys.len() as u64) + 1;
        open.add(key, Trailer::new(sequence, EntryKind::Put), value)?;
        if open.estimated_bytes() > TABLE_BYTES
            && let Some(full) = builder.take()
        {
            full.finish()?;
        }
    }
    if let Some(last) = builder {
        last.finish()?;
    }
    Ok(files)
}

fn identity(number: usize) -> FileIdentity {
    FileIdentity { file_number: number as u64, tag: 1 }
}

struct SortedTables {
    tables: Vec<Arc<TableReader>>,
    largest: Vec<Vec<u8>>,
}

impl SortedTables {
    fn table_of(&self, key: &[u8]) -> usize {
        self.largest.partition_point(|largest| largest.as_slice() < key).min(self.tables.len() - 1)
    }
}

/// Runs `operation` on `count` numbers and returns nanoseconds of the calling thread per call.
fn time(count: usize, mut operation: impl FnMut(usize) -> Result<()>) -> Result<f64> {
    let runtime = SystemRuntime::new();
    let start = runtime.thread_cpu_micros();
    for number in 0..count {
        operation(number)?;
    }
    Ok((runtime.thread_cpu_micros() - start) as f64 * 1e3 / count as f64)
}

fn report(name: &str, mut nanos: Vec<f64>) {
    nanos.sort_by(f64::total_cmp);
    println!("{name:<28} {:8.1} ns", nanos[nanos.len() / 2]);
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<usize>().ok());
    let entries = arguments.next().unwrap_or(2_000_000);
    let rounds = arguments.next().unwrap_or(3);
    let only = std::env::args().nth(3).unwrap_or_default();
    let mut rng = Rng(7);
    let mut keys: Vec<[u8; 16]> =
        (0..entries).map(|_| (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_be_bytes()).collect();
    keys.sort_unstable();
    let value: Vec<u8> = (0..120).map(|_| rng.next() as u8).collect();

    let mut files = Vec::new();
    let mut nanos = Vec::new();
    for _ in 0..rounds {
        let once = time(1, |_| {
            files = build(&keys, &value)?;
            Ok(())
        })?;
        nanos.push(once / entries as f64);
    }
    report("build, per entry", nanos);

    let cache = BlockCache::new(1 << 30);
    let mut run = SortedTables { tables: Vec::new(), largest: Vec::new() };
    for (number, file) in files.into_iter().enumerate() {
        let source = FileSource::direct(table_file_name(number as u64), file);
        let table = TableReader::open(source, identity(number), Arc::clone(&cache))?;
        run.largest.push(table.properties().largest_key.clone());
        run.tables.push(Arc::new(table));
    }
    let memory: usize = run.tables.iter().map(|table| table.memory_bytes()).sum();
    println!("{} tables, {memory} bytes resident", run.tables.len());
    for table in &run.tables {
        let mut cursor = table.cursor(true);
        cursor.seek_to_first()?;
        while cursor.valid() {
            cursor.next()?;
        }
    }
    println!("{:?}", cache.stats());

    // In an array, so that the time to fetch the key of a lookup itself is not measured.
    let probes: Vec<[u8; 16]> = (0..READS).map(|_| keys[(rng.next() % entries as u64) as usize]).collect();
    let absent: Vec<[u8; 16]> = (0..READS).map(|_| u128::from(rng.next()).to_le_bytes()).collect();
    // The keys by table: a merge seeks in all its tables.
    let mut by_table = vec![Vec::new(); run.tables.len()];
    probes.iter().for_each(|key| by_table[run.table_of(key)].push(*key));
    let bench = |name: &str, operation: &mut dyn FnMut(usize) -> Result<()>| -> Result<()> {
        if !name.contains(&only) {
            return Ok(());
        }
        let nanos = (0..rounds).map(|_| time(READS, &mut *operation)).collect::<Result<Vec<_>>>()?;
        report(name, nanos);
        Ok(())
    };
    bench("get", &mut |number| {
        let key = &probes[number];
        let found = run.tables[run.table_of(key)].get(key, MAX_SEQUENCE)?;
        assert_eq!(found.map(|(_, value)| value[119]), Some(value[119]));
        Ok(())
    })?;
    bench("newest", &mut |number| {
        let key = &probes[number];
        assert!(run.tables[run.table_of(key)].newest(key, MAX_SEQUENCE)?.is_some());
        Ok(())
    })?;
    bench("get absent", &mut |number| {
        let key = &absent[number];
        black_box(run.tables[run.table_of(key)].get(key, MAX_SEQUENCE)?);
        Ok(())
    })?;
    let mut cursors: Vec<TableCursor> = run.tables.iter().map(|table| table.cursor(true)).collect();
    bench("seek", &mut |number| {
        let key = &probes[number];
        let cursor = &mut cursors[run.table_of(key)];
        cursor.seek(key, MAX_SEQUENCE)?;
        assert_eq!(cursor.value().len(), 120);
        Ok(())
    })?;
    let many = cursors.len();
    for prepared in [false, true] {
        let name = if prepared { "seek in every table, prepared" } else { "seek in every table" };
        let mut from = 0;
        bench(name, &mut |number| {
            if number % many != 0 {
                return Ok(());
            }
            from = (from + many) % (READS - many);
            let queries = by_table.iter().map(|probes| probes[from % probes.len()]);
            let sources = || queries.clone().zip(0..many);
            if prepared {
                sources().for_each(|(key, table)| cursors[table].prepare_seek(&key, MAX_SEQUENCE));
                sources().for_each(|(_, table)| while cursors[table].prepare_next_stage() {});
            }
            for (key, table) in sources() {
                cursors[table].seek(&key, MAX_SEQUENCE)?;
                assert_eq!(cursors[table].value().len(), 120);
            }
            Ok(())
        })?;
    }
    let mut sum = 0_u64;
    let cursor = &mut cursors[0];
    cursor.seek_to_first()?;
    bench("next, key and value", &mut |_| {
        if !cursor.valid() {
            cursor.seek_to_first()?;
        }
        sum += u64::from(cursor.key()[15]) + u64::from(cursor.value()[0]);
        cursor.next()
    })?;
    cursor.seek_to_last()?;
    bench("prev, key and value", &mut |_| {
        if !cursor.valid() {
            cursor.seek_to_last()?;
        }
        sum += u64::from(cursor.key()[15]) + u64::from(cursor.value()[0]);
        cursor.prev()
    })?;
    let mut cold = run.tables[0].cursor(false);
    cache.clear();
    bench("next, uncached", &mut |_| {
        if !cold.valid() {
            cold.seek_to_first()?;
        }
        sum += u64::from(cold.key()[15]) + u64::from(cold.value()[0]);
        cold.next()
    })?;
    bench("scan 50", &mut |number| {
        if number % 50 != 0 {
            return Ok(());
        }
        let key = &probes[number];
        let cursor = &mut cursors[run.table_of(key)];
        cursor.seek(key, MAX_SEQUENCE)?;
        for _ in 0..50 {
            if !cursor.valid() {
                break;
            }
            sum += u64::from(cursor.key()[15]) + u64::from(cursor.value()[0]);
            cursor.next()?;
        }
        Ok(())
    })?;
    black_box(sum);
    Ok(())
}
