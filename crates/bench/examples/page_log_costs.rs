//! The cost of checkpoints of a region, and of loading them.
//!
//! `cargo run --release -p bolide-bench --example page_log_costs -- DIRECTORY`
//!
//! The directory must not exist; it is removed at the end.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that prints and takes time")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bolide_base::{Error, FileIdentity, Result};
use bolide_lsm::file_name::FileName;
use bolide_lsm::page_log::PageLog;
use bolide_storage::pmem::{Place, Region, RegionOptions};
use bolide_storage::{DiskVfs, SimRng, Vfs};

/// Blocks of 4096 bytes, most of them one page each.
const BLOCKS: u64 = 65_536;

/// The CPU time of this thread in nanoseconds: comparable on a busy machine.
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

struct Bench {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    region: Region,
    log: PageLog,
    file: u64,
    sequence: u64,
}

impl Bench {
    fn checkpoint(&mut self, what: &str) -> Result<()> {
        let (start, cpu) = (Instant::now(), cpu_nanos());
        let (mut checkpoint, fixed) = self.region.checkpoint_with(|| start.elapsed())?;
        let pages = checkpoint.pages();
        self.sequence += 1;
        let file = &mut self.file;
        let pending = self.log.append_checkpoint(&mut checkpoint, self.sequence, &mut || {
            *file += 1;
            Ok(FileIdentity { file_number: *file, tag: *file })
        })?;
        let bytes = pending.appended_bytes();
        for number in self.log.install(pending) {
            self.vfs.remove(&FileName::Region(number).path(&self.dir))?;
        }
        checkpoint.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let (cpu, fixed) = ((cpu_nanos() - cpu) as f64 / 1e6, fixed.as_secs_f64() * 1e6);
        println!(
            "{what}: {pages} pages, {bytes} bytes in {:.1} ms ({cpu:.1} ms of CPU), writers waited {fixed:.0} us",
            seconds * 1e3
        );
        Ok(())
    }
}

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).map(PathBuf::from);
    let dir =
        dir.ok_or_else(|| Error::invalid_input("the argument must be a directory that does not exist"))?;
    let vfs: Arc<dyn Vfs> = Arc::new(DiskVfs::new());
    if vfs.exists(&dir)? {
        return Err(Error::invalid_input("the directory exists"));
    }
    vfs.create_dir_all(&dir)?;
    let result = run(&vfs, &dir);
    for name in vfs.list(&dir)? {
        vfs.remove(&dir.join(name))?;
    }
    vfs.remove_dir(&dir)?;
    result
}

fn run(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<()> {
    let mut bench = Bench {
        vfs: Arc::clone(vfs),
        dir: dir.into(),
        region: Region::in_memory(RegionOptions::new())?,
        log: PageLog::create(Arc::clone(vfs), dir, 0),
        file: 0,
        sequence: 0,
    };
    let mut rng = SimRng::new(1);
    let mut offsets: Vec<Place> = Vec::new();
    for _ in 0..BLOCKS {
        let writer = bench.region.writer();
        let at = writer.allocate(4096)?;
        let bytes: Vec<u8> = (0..512).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        writer.write(at, &bytes)?;
        offsets.push(at);
    }
    bench.checkpoint("everything")?;
    for round in 0..30 {
        for _ in 0..BLOCKS / 50 {
            let at = offsets[rng.below(BLOCKS) as usize];
            bench.region.writer().store(at, rng.next_u64())?;
        }
        bench.checkpoint(&format!("a fiftieth of the blocks, round {round}"))?;
    }
    println!("{:?}", bench.log.stats());
    let root = bench.log.root().ok_or_else(|| Error::internal("no root"))?;
    for _ in 0..3 {
        let (start, cpu) = (Instant::now(), cpu_nanos());
        let loaded = PageLog::load(Arc::clone(vfs), dir, root, RegionOptions::new())?;
        let millis = start.elapsed().as_secs_f64() * 1e3;
        let cpu = (cpu_nanos() - cpu) as f64 / 1e6;
        println!(
            "loaded {} bytes in {millis:.1} ms ({cpu:.1} ms of CPU)",
            loaded.region.stats().high_water_bytes
        );
    }
    Ok(())
}
