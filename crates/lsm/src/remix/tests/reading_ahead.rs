//! What a scan over blocks that are not cached reads ahead.

use std::cell::RefCell;
use std::collections::HashSet;

use bolide_base::MAX_SEQUENCE;

use super::*;

/// A read of one block, or of several adjacent ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Ahead { file: u64, offset: u64 },
    Read { file: u64, offset: u64 },
}

thread_local! {
    static ACCESSES: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

/// The accesses since the last call.
fn accesses() -> Vec<Access> {
    ACCESSES.take()
}

/// A file that records its reads.
#[derive(Debug)]
struct RecordedFile {
    number: u64,
    below: Arc<dyn File>,
}

impl File for RecordedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        ACCESSES.with_borrow_mut(|all| all.push(Access::Read { file: self.number, offset }));
        self.below.read_at(offset, buf)
    }

    fn read_ahead(&self, offset: u64, _: u64) {
        ACCESSES.with_borrow_mut(|all| all.push(Access::Ahead { file: self.number, offset }));
    }

    fn append(&self, bytes: &[u8]) -> Result<()> {
        self.below.append(bytes)
    }

    fn sync(&self) -> Result<()> {
        self.below.sync()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }
}

const RUNS: u64 = 8;
const KEYS: u64 = 4_000;

fn key_of(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// A view of [`RUNS`] runs over the keys below [`KEYS`], blocks of about eight entries.
fn view(rng: &mut SimRng, block_bytes: usize) -> Result<Arc<SortedView>> {
    let mut writer = Writer::new(64 << 20);
    writer.wrap = |number, below| Arc::new(RecordedFile { number, below });
    let mut runs = vec![Vec::new(); RUNS as usize];
    for number in 0..KEYS {
        let run = rng.below(RUNS) as usize;
        runs[run].push((key_of(number), Trailer::new(number + 1, EntryKind::Put), run, vec![b'v'; 100]));
    }
    let mut options = TableOptions::default().block_bytes(block_bytes);
    options.key_counts = true;
    options.index_partition_bytes = 64 << 20;
    let runs: Result<Vec<_>> =
        runs.iter().map(|entries| ViewRun::new(vec![writer.table(entries, &options)?])).collect();
    let view = SortedView::build(runs?, &RemixOptions::default())?;
    accesses();
    Ok(view)
}

/// A file and an offset in it.
type Location = (u64, u64);

/// The blocks that were read ahead, in order, and those that were read without that.
fn split(accesses: &[Access]) -> (Vec<Location>, Vec<Location>) {
    let (mut ahead, mut alone) = (Vec::new(), Vec::new());
    for access in accesses {
        match *access {
            Access::Ahead { file, offset } => ahead.push((file, offset)),
            Access::Read { file, offset } if !ahead.contains(&(file, offset)) => alone.push((file, offset)),
            Access::Read { .. } => {}
        }
    }
    (ahead, alone)
}

#[test]
fn a_scan_reads_the_blocks_of_all_runs_ahead_once_each() -> Result<()> {
    for seed in 0..20 {
        let mut rng = SimRng::new(seed);
        let view = view(&mut rng, 1_024)?;
        let mut cursor = view.cursor(true);
        let start = 100 + rng.below(KEYS / 2);
        cursor.seek(&key_of(start), MAX_SEQUENCE)?;
        let of_seek = accesses();
        assert!(
            matches!(of_seek[..], [Access::Read { .. }]),
            "seed {seed}: a seek reads one block and nothing ahead: {of_seek:?}"
        );
        for number in 1..=40 {
            cursor.next()?;
            assert_eq!(cursor.key(), key_of(start + number), "seed {seed}");
        }
        let of_scan = accesses();
        let (ahead, alone) = split(&of_scan);
        assert_eq!(alone, [], "seed {seed}: each block of the scan is read ahead");
        assert!(ahead.len() >= RUNS as usize - 1, "seed {seed}: {ahead:?}");
        let distinct: HashSet<_> = ahead.iter().collect();
        assert_eq!(distinct.len(), ahead.len(), "seed {seed}: no block is read ahead twice");
        // What was read ahead for the first 40 entries is used by the next 100.
        for _ in 0..100 {
            cursor.next()?;
        }
        let read: HashSet<_> = of_scan
            .into_iter()
            .chain(accesses())
            .filter_map(|access| match access {
                Access::Read { file, offset } => Some((file, offset)),
                Access::Ahead { .. } => None,
            })
            .collect();
        assert!(
            ahead.iter().all(|block| read.contains(block)),
            "seed {seed}: a block was read ahead in vain"
        );
    }
    Ok(())
}

#[test]
fn a_seek_reads_ahead_where_scans_are_expected() -> Result<()> {
    let mut rng = SimRng::new(1);
    let view = view(&mut rng, 1_024)?;
    let mut cursor = view.cursor(true);
    for start in [100, 500, 900] {
        cursor.seek(&key_of(start), MAX_SEQUENCE)?;
        for _ in 0..10 {
            cursor.next()?;
        }
    }
    accesses();
    cursor.seek(&key_of(2_000), MAX_SEQUENCE)?;
    let of_seek = accesses();
    assert!(matches!(of_seek.first(), Some(Access::Ahead { .. })), "{of_seek:?}");
    let (ahead, alone) = split(&of_seek);
    assert!(ahead.len() >= RUNS as usize - 1 && alone.is_empty(), "{of_seek:?}");
    // Everything is cached now: nothing is read ahead.
    for _ in 0..200 {
        cursor.next()?;
    }
    cursor.seek(&key_of(2_050), MAX_SEQUENCE)?;
    accesses();
    cursor.seek(&key_of(2_000), MAX_SEQUENCE)?;
    for _ in 0..50 {
        cursor.next()?;
    }
    assert_eq!(accesses(), []);
    Ok(())
}

#[test]
fn a_longer_scan_reads_further_ahead() -> Result<()> {
    let mut rng = SimRng::new(2);
    let view = view(&mut rng, 128)?;
    let mut cursor = view.cursor(true);
    cursor.seek(&key_of(0), MAX_SEQUENCE)?;
    accesses();
    // The largest number of blocks that the next `entries` entries read ahead together.
    let mut largest_of = |entries| {
        for _ in 0..entries {
            cursor.next()?;
        }
        let all = accesses();
        Ok(all.split(|access| matches!(access, Access::Read { .. })).map(<[_]>::len).max().unwrap_or(0))
    };
    let (first, later) = (largest_of(20)?, largest_of(1_000)?);
    assert!(later > 2 * first, "{first} blocks, later {later}");
    assert!(later <= 16 * 64, "the distance is bounded: {later}");
    Ok(())
}
