//! One thread of a plain-store row: it draws operations, runs them and checks the answers.

use super::rows::{Popularity, Ranks, Row, SCAN_RECORDS, YCSB_SCAN_RECORDS, Ycsb};
use crate::data::keys::{self, FIRST_ABSENT, KEY_BYTES, VALUE_BYTES, ValueBuffer};
use crate::data::random::Random;
use crate::data::zipf::Zipf;
use crate::engine::Session;
use crate::error::Result;

/// The shared state of the threads of a row.
#[derive(Debug)]
pub struct RowContext {
    /// The row.
    pub row: Row,
    /// The number of records at the start of the row, or at the end of [`Row::Load`]: their numbers are `0..population`.
    pub population: u64,
    /// Threads that run the row.
    pub threads: u64,
    /// Ranks for [`Popularity::Zipf`].
    pub zipf: Zipf,
    /// Ranks for [`Popularity::Latest`].
    pub latest: Zipf,
    /// A scan from a key below this must return its full length. Keys are evenly distributed, so a distance of ten times the
    /// longest scan from the end of the key space is sufficient.
    pub last_full_start: [u8; KEY_BYTES],
}

impl RowContext {
    /// A row over records `0..population`.
    pub fn new(row: Row, population: u64, threads: u64, ranks: Ranks) -> Self {
        let zipf = match row {
            Row::Ycsb(_) if ranks == Ranks::Ycsb => Zipf::scrambled(),
            _ if row.popularity() == Popularity::Zipf => Zipf::new(population),
            _ => Zipf::new(2),
        };
        let latest = if row.popularity() == Popularity::Latest { population } else { 2 };
        let tail = u64::MAX / population.max(1);
        let end = u64::MAX.saturating_sub(tail.saturating_mul(10 * u64::from(YCSB_SCAN_RECORDS)));
        Self {
            row,
            population,
            threads,
            zipf,
            latest: Zipf::new(latest),
            last_full_start: keys::hexadecimal(end),
        }
    }
}

/// A drawn operation.
#[derive(Debug, Clone, Copy)]
struct Operation {
    /// The number of its record.
    number: u64,
    kind: OperationKind,
}

#[derive(Debug, Clone, Copy)]
enum OperationKind {
    Insert,
    Update,
    Modify,
    Get,
    Missing,
    /// A scan of so many records.
    Scan(u32),
}

/// One thread of a row.
///
/// Operations are drawn outside the measured time: a rank of a Zipf distribution costs some 50 ns.
pub struct Worker<'s> {
    context: &'s RowContext,
    thread: u64,
    random: Random,
    drawn: Vec<Operation>,
    /// The number of drawn operations that have been run.
    run: usize,
    value: ValueBuffer,
    done: u64,
    inserted: u64,
    puts: u64,
    checksum: u64,
}

impl<'s> Worker<'s> {
    /// Thread number `thread`; its operations depend on `seed`, the row and the thread alone.
    pub fn new(context: &'s RowContext, thread: u64, seed: u64) -> Self {
        let row_seed = context.row.name().bytes().fold(seed, |hash, byte| hash * 31 + u64::from(byte));
        Self {
            context,
            thread,
            random: Random::new(row_seed + (thread << 32)),
            drawn: Vec::new(),
            run: 0,
            value: ValueBuffer::new(),
            done: 0,
            inserted: 0,
            puts: 0,
            checksum: 0,
        }
    }

    /// Records inserted by the drawn operations so far; their numbers are `population + k * threads + thread`.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Bytes of all keys and values that this thread put.
    pub fn user_bytes(&self) -> u64 {
        self.puts * (KEY_BYTES + VALUE_BYTES) as u64
    }

    /// A hash of all answers so far.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Draws the next `count` operations. All earlier ones must have been run.
    pub fn draw(&mut self, count: u64) {
        self.run = 0;
        self.drawn.clear();
        for _ in 0..count {
            let operation = self.next_operation();
            self.drawn.push(operation);
        }
    }

    fn next_operation(&mut self) -> Operation {
        match self.context.row {
            Row::Load => self.insertion(0),
            Row::Get(_) => self.on_existing(OperationKind::Get),
            Row::MissingGet => Operation {
                number: FIRST_ABSENT + self.random.below(FIRST_ABSENT),
                kind: OperationKind::Missing,
            },
            Row::Seek(_) => self.on_existing(OperationKind::Scan(1)),
            Row::Scan(_) => self.on_existing(OperationKind::Scan(SCAN_RECORDS)),
            Row::Ycsb(ycsb) => self.ycsb(ycsb),
        }
    }

    fn ycsb(&mut self, ycsb: Ycsb) -> Operation {
        let percent = self.random.below(100);
        match ycsb {
            Ycsb::A if percent < 50 => self.on_existing(OperationKind::Update),
            Ycsb::B if percent < 5 => self.on_existing(OperationKind::Update),
            Ycsb::D | Ycsb::E if percent < 5 => self.insertion(self.context.population),
            Ycsb::E => {
                let records = 1 + self.random.below(u64::from(YCSB_SCAN_RECORDS)) as u32;
                self.on_existing(OperationKind::Scan(records))
            }
            Ycsb::F if percent < 50 => self.on_existing(OperationKind::Modify),
            _ => self.on_existing(OperationKind::Get),
        }
    }

    /// An operation of this kind on an existing record.
    fn on_existing(&mut self, kind: OperationKind) -> Operation {
        let RowContext { population, threads, .. } = *self.context;
        let number = match self.context.row.popularity() {
            Popularity::Uniform => self.random.below(population),
            Popularity::Zipf => self.context.zipf.scattered(&mut self.random, population),
            Popularity::Latest => {
                // The newest records are those of this thread; those of other threads may not exist yet.
                let rank = self.context.latest.rank(&mut self.random);
                if rank < self.inserted {
                    population + (self.inserted - 1 - rank) * threads + self.thread
                } else {
                    population - 1 - (rank - self.inserted).min(population - 1)
                }
            }
        };
        Operation { number, kind }
    }

    fn insertion(&mut self, first: u64) -> Operation {
        let number = first + self.inserted * self.context.threads + self.thread;
        self.inserted += 1;
        Operation { number, kind: OperationKind::Insert }
    }

    /// Runs the next `count` drawn operations, or the remaining ones if they are fewer. A wrong answer is an error.
    pub fn run(&mut self, session: &mut dyn Session, count: u64) -> Result<()> {
        let until = self.drawn.len().min(self.run + count as usize);
        while self.run < until {
            self.step(session, self.drawn[self.run])?;
            self.run += 1;
        }
        Ok(())
    }

    /// True if all drawn operations have been run.
    pub fn is_done(&self) -> bool {
        self.run == self.drawn.len()
    }

    #[inline]
    fn step(&mut self, session: &mut dyn Session, operation: Operation) -> Result<()> {
        let Operation { number, kind } = operation;
        self.done += 1;
        match kind {
            OperationKind::Insert => self.put(session, number, 0),
            OperationKind::Update => self.put(session, number, self.done),
            OperationKind::Modify => {
                let version = read_record(session, number)?;
                self.checksum = fold(self.checksum, version);
                self.put(session, number, version + 1)
            }
            OperationKind::Get => {
                let version = read_record(session, number)?;
                self.checksum = fold(self.checksum, number ^ version);
                Ok(())
            }
            OperationKind::Missing if session.get(&keys::key(number), &mut |_| ())? => {
                Err(format!("record {number} was never put, but was found").into())
            }
            OperationKind::Missing => Ok(()),
            OperationKind::Scan(records) => self.scan(session, number, records as usize),
        }
    }

    fn put(&mut self, session: &mut dyn Session, number: u64, version: u64) -> Result<()> {
        self.puts += 1;
        session.put(&keys::key(number), self.value.fill(number, version))
    }

    /// Reads `limit` records from the existing record `number` on. Checks that it is the first, that keys ascend, that each
    /// value is complete, and that there are `limit` records unless the key space ends.
    fn scan(&mut self, session: &mut dyn Session, number: u64, limit: usize) -> Result<()> {
        let start = keys::key(number);
        let mut last = [0; KEY_BYTES];
        let (mut wrong, mut first) = (false, true);
        let mut checksum = self.checksum;
        let count = session.scan(&start, limit, &mut |key, value| {
            wrong |= if first { key != start } else { key <= &last[..] };
            first = false;
            match (keys::read_value(value), <[u8; KEY_BYTES]>::try_from(key)) {
                (Some((number, version)), Ok(key)) => {
                    checksum = fold(checksum, number ^ version);
                    last = key;
                }
                _ => wrong = true,
            }
        })?;
        self.checksum = checksum;
        let short = count < limit && start < self.context.last_full_start;
        if wrong || first || count > limit || short {
            return Err(format!(
                "a scan of {limit} from record {number} returned {count} records, or wrong ones"
            )
            .into());
        }
        Ok(())
    }
}

#[inline]
fn read_record(session: &mut dyn Session, number: u64) -> Result<u64> {
    let mut answer = None;
    let found = session.get(&keys::key(number), &mut |value| answer = keys::read_value(value))?;
    match answer {
        Some((read, version)) if found && read == number => Ok(version),
        _ => Err(format!("record {number} is missing or incomplete").into()),
    }
}

#[inline]
fn fold(checksum: u64, answer: u64) -> u64 {
    (checksum.rotate_left(5) ^ answer).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
