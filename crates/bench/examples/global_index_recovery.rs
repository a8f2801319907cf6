//! The cost to restore a global index of kind `next` after an opening: from the directories in the sstables, as implemented, or
//! from a stored snapshot (NEXT §3.3).
//!
//! ```sh
//! cargo run --release -p bolide-bench --example global_index_recovery -- DIR [RECORDS [FILE_KIB]]
//! valgrind --tool=callgrind --collect-atstart=no '--toggle-collect=*global_index_recovery*from_snapshot*' \
//!     target/release/examples/global_index_recovery DIR untimed
//! ```
//!
//! `DIR` must not exist; with `untimed` it is the directory of an earlier run, and no clock is read. RECORDS records (500,000)
//! of 150 bytes, 25 for each value, are written to sstables of FILE_KIB (1,024), with an index of kind `next` on the value.
//! Then, each three times with files in the page cache:
//!
//! * `from_sstables`: opens every sstable, reads and decodes its directory, and packs all directories;
//! * `from_directories`: the same with open sstables, as after a first read;
//! * `from_snapshot`: reads one file with all directories, checks its checksum, decodes and packs them;
//! * `write_snapshot`: writes and syncs that file, as a rotation of the log would.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bolide::storage::{DiskVfs, Runtime, SystemRuntime, Vfs};
use bolide::{CollectionOptions, Db, Error, Options, Result, SyncMode};
use bolide_base::ErrorKind;
use bolide_base::checksum::hash_key;
use bolide_index::next::Packing;
use bolide_table::{BlockCache, FileSource, TableReader, read_identity};

const RECORDS_PER_VALUE: u64 = 25;
const ROUNDS: usize = 3;

fn corruption() -> Error {
    Error::new(ErrorKind::Corruption, "a directory or the snapshot does not decode".to_owned())
}

fn fill(dir: &Path, records: u64, file_bytes: u64) -> Result<()> {
    let options = Options::default().memtable_bytes(file_bytes as usize * 4).sync(SyncMode::None);
    let db = Db::open(dir, options)?;
    let collection = CollectionOptions::json().target_file_bytes(file_bytes).index("a:next".parse()?);
    let collection = db.create_collection("records", collection)?;
    for number in 0..records {
        let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (records / RECORDS_PER_VALUE).max(1);
        let record = format!(r#"{{"a":{value},"pad":"{number:0>100}"}}"#);
        collection.put(&number.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes(), record.as_bytes())?;
    }
    db.compact()
}

fn sstables(dir: &Path) -> Result<Vec<PathBuf>> {
    let names = DiskVfs::new().list(dir)?;
    let mut paths: Vec<PathBuf> =
        names.iter().filter(|name| name.ends_with(".sst")).map(|name| dir.join(name)).collect();
    paths.sort();
    Ok(paths)
}

fn open(path: &Path, cache: &Arc<BlockCache>) -> Result<TableReader> {
    let source = FileSource::direct(path.display().to_string(), DiskVfs::new().open(path)?);
    let identity = read_identity(&source)?;
    TableReader::open(source, identity, cache.clone())
}

/// The name of the directory in an sstable.
fn directory_name(reader: &TableReader) -> Option<String> {
    let mut names = reader.meta_block_names();
    names.find(|name| name.strip_prefix("next/").is_some_and(|rest| !rest.contains('/'))).map(str::to_owned)
}

fn add(packing: &mut Packing, reader: &TableReader) -> Result<()> {
    let Some(name) = directory_name(reader) else { return Ok(()) };
    let directory = reader.meta_block(&name)?.ok_or_else(corruption)?;
    let number = |block: usize| reader.meta_block_number(&format!("{name}/{block}"));
    if packing.add(&directory, number) { Ok(()) } else { Err(corruption()) }
}

#[inline(never)]
fn from_sstables(paths: &[PathBuf]) -> Result<(usize, usize)> {
    let mut packing = Packing::default();
    let cache = BlockCache::new(0);
    for path in paths {
        add(&mut packing, &open(path, &cache)?)?;
    }
    Ok(packing.pack())
}

#[inline(never)]
fn from_directories(readers: &[TableReader]) -> Result<(usize, usize)> {
    let mut packing = Packing::default();
    readers.iter().try_for_each(|reader| add(&mut packing, reader))?;
    Ok(packing.pack())
}

/// Writes a checksum, then for each sstable the length of its directory and the directory.
#[inline(never)]
fn write_snapshot(readers: &[TableReader], path: &Path) -> Result<usize> {
    let mut out = vec![0; 8];
    for reader in readers {
        let Some(name) = directory_name(reader) else { continue };
        let directory = reader.meta_block(&name)?.ok_or_else(corruption)?;
        out.extend_from_slice(&(directory.len() as u32).to_le_bytes());
        out.extend_from_slice(&directory);
    }
    let checksum = hash_key(out.get(8..).unwrap_or_default());
    out.splice(..8, checksum.to_le_bytes());
    let vfs = DiskVfs::new();
    if vfs.exists(path)? {
        vfs.remove(path)?;
    }
    let file = vfs.create(path)?;
    file.append(&out)?;
    file.sync()?;
    Ok(out.len())
}

#[inline(never)]
fn from_snapshot(path: &Path) -> Result<(usize, usize)> {
    let file = DiskVfs::new().open(path)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_exact_at(0, &mut bytes)?;
    let (checksum, mut rest) = bytes.split_first_chunk::<8>().ok_or_else(corruption)?;
    if hash_key(rest) != u64::from_le_bytes(*checksum) {
        return Err(corruption());
    }
    let mut packing = Packing::default();
    while let Some((length, remainder)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (directory, remainder) = remainder.split_at_checked(length).ok_or_else(corruption)?;
        // A production format would also store the numbers of the meta blocks.
        if !packing.add(directory, |block| u32::try_from(block).ok()) {
            return Err(corruption());
        }
        rest = remainder;
    }
    Ok(packing.pack())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(dir) = arguments.first().map(Path::new) else {
        return Err(Error::invalid_input("usage: global_index_recovery DIR [RECORDS [FILE_KIB] | untimed]"));
    };
    let number =
        |at: usize, default: u64| arguments.get(at).and_then(|it| it.parse().ok()).unwrap_or(default);
    let is_timed = arguments.get(1).is_none_or(|word| word != "untimed");
    if is_timed {
        fill(dir, number(1, 500_000), number(2, 1024) << 10)?;
    }
    let paths = sstables(dir)?;
    let cache = BlockCache::new(0);
    let readers = paths.iter().map(|path| open(path, &cache)).collect::<Result<Vec<_>>>()?;
    let snapshot = dir.join("global-index");
    let bytes = write_snapshot(&readers, &snapshot)?;
    let (ranges, packed) = from_directories(&readers)?;
    let table: u64 = readers.iter().map(|reader| reader.source().len()).sum::<Result<u64>>()?;
    println!(
        "{} sstables, {table} bytes; {ranges} ranges, {packed} bytes packed; a snapshot of {bytes} bytes",
        readers.len()
    );
    let runtime = SystemRuntime::new();
    let now = || if is_timed { runtime.thread_cpu_micros() } else { 0 };
    for _ in 0..ROUNDS {
        let mut summary = Vec::new();
        let mut measure = |what: &str, work: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let start = now();
            work()?;
            summary.push(format!("{what} {} µs", now() - start));
            Ok(())
        };
        let same = |made: (usize, usize)| if made.0 == ranges { Ok(()) } else { Err(corruption()) };
        measure("from_sstables", &mut || from_sstables(&paths).and_then(same))?;
        measure("from_directories", &mut || from_directories(&readers).and_then(same))?;
        measure("from_snapshot", &mut || from_snapshot(&snapshot).and_then(same))?;
        measure("write_snapshot", &mut || write_snapshot(&readers, &snapshot).map(drop))?;
        println!("{}", summary.join(", "));
    }
    DiskVfs::new().remove(&snapshot)
}
