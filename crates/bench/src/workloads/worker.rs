//! One thread of a plain-store row: draws operations, runs them, checks the answers.

use super::rows::{Popularity, Ranks, Row, SCAN_RECORDS, YCSB_SCAN_RECORDS, Ycsb};
use crate::data::keys::{self, FIRST_ABSENT, KEY_BYTES, VALUE_BYTES, ValueBuffer};
use crate::data::random::Random;
use crate::data::zipf::Zipf;
use crate::engine::Session;
use crate::error::Result;

/// What a row's threads share.
#[derive(Debug)]
pub struct Shared {
    /// The row.
    pub row: Row,
    /// Records `0..population` are there when the row begins (at [`Row::Load`]: will be there).
    pub population: u64,
    /// Threads that run the row.
    pub threads: u64,
    /// Ranks for [`Popularity::Zipf`].
    pub zipf: Zipf,
    /// Ranks for [`Popularity::Latest`].
    pub latest: Zipf,
    /// From keys before this one a scan must find its full length. Keys are spread evenly, so
    /// ten times the longest scan from the end of the key space is far enough.
    pub last_full_start: [u8; KEY_BYTES],
}

impl Shared {
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

/// One operation, as it was drawn.
#[derive(Debug, Clone, Copy)]
struct Operation {
    /// The record it is about.
    number: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Insert,
    Update,
    Modify,
    Get,
    Missing,
    /// Of so many records.
    Scan(u32),
}

/// One thread of a row.
///
/// Operations are drawn before the clocks run: a rank of Zipf's law costs some 50 ns, which no store can do anything about.
pub struct Worker<'s> {
    shared: &'s Shared,
    thread: u64,
    random: Random,
    drawn: Vec<Operation>,
    /// How many of the drawn ones have been run.
    run: usize,
    value: ValueBuffer,
    done: u64,
    inserted: u64,
    puts: u64,
    checksum: u64,
}

impl<'s> Worker<'s> {
    /// Thread number `thread`; its operations depend on `seed`, the row and the thread alone.
    pub fn new(shared: &'s Shared, thread: u64, seed: u64) -> Self {
        let row_seed = shared.row.name().bytes().fold(seed, |hash, byte| hash * 31 + u64::from(byte));
        Self {
            shared,
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

    /// New records this thread has put, once it has run what was drawn: numbers `population + k * threads + thread`.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Bytes of all keys and values this thread has put.
    pub fn user_bytes(&self) -> u64 {
        self.puts * (KEY_BYTES + VALUE_BYTES) as u64
    }

    /// A hash of every answer so far.
    pub fn checksum(&self) -> u64 {
        self.checksum
    }

    /// Draws the next `count` operations. Those that were drawn before have been run.
    pub fn draw(&mut self, count: u64) {
        self.run = 0;
        self.drawn.clear();
        for _ in 0..count {
            let operation = self.next_operation();
            self.drawn.push(operation);
        }
    }

    fn next_operation(&mut self) -> Operation {
        match self.shared.row {
            Row::Load => self.insertion(0),
            Row::Get(_) => self.of_known(Kind::Get),
            Row::MissingGet => {
                Operation { number: FIRST_ABSENT + self.random.below(FIRST_ABSENT), kind: Kind::Missing }
            }
            Row::Seek(_) => self.of_known(Kind::Scan(1)),
            Row::Scan(_) => self.of_known(Kind::Scan(SCAN_RECORDS)),
            Row::Ycsb(ycsb) => self.ycsb(ycsb),
        }
    }

    fn ycsb(&mut self, ycsb: Ycsb) -> Operation {
        let percent = self.random.below(100);
        match ycsb {
            Ycsb::A if percent < 50 => self.of_known(Kind::Update),
            Ycsb::B if percent < 5 => self.of_known(Kind::Update),
            Ycsb::D | Ycsb::E if percent < 5 => self.insertion(self.shared.population),
            Ycsb::E => {
                let records = 1 + self.random.below(u64::from(YCSB_SCAN_RECORDS)) as u32;
                self.of_known(Kind::Scan(records))
            }
            Ycsb::F if percent < 50 => self.of_known(Kind::Modify),
            _ => self.of_known(Kind::Get),
        }
    }

    /// `kind` of a record that is there.
    fn of_known(&mut self, kind: Kind) -> Operation {
        let Shared { population, threads, .. } = *self.shared;
        let number = match self.shared.row.popularity() {
            Popularity::Uniform => self.random.below(population),
            Popularity::Zipf => self.shared.zipf.scattered(&mut self.random, population),
            Popularity::Latest => {
                // The newest are those this thread has put itself; another thread's may not be
                // there yet.
                let rank = self.shared.latest.rank(&mut self.random);
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
        let number = first + self.inserted * self.shared.threads + self.thread;
        self.inserted += 1;
        Operation { number, kind: Kind::Insert }
    }

    /// Runs the next `count` operations that were drawn, or as many as are left. An answer that cannot be right is an error.
    pub fn run(&mut self, session: &mut dyn Session, count: u64) -> Result<()> {
        let until = self.drawn.len().min(self.run + count as usize);
        while self.run < until {
            self.step(session, self.drawn[self.run])?;
            self.run += 1;
        }
        Ok(())
    }

    /// True where all that was drawn has been run.
    pub fn is_done(&self) -> bool {
        self.run == self.drawn.len()
    }

    #[inline]
    fn step(&mut self, session: &mut dyn Session, operation: Operation) -> Result<()> {
        let Operation { number, kind } = operation;
        self.done += 1;
        match kind {
            Kind::Insert => self.put(session, number, 0),
            Kind::Update => self.put(session, number, self.done),
            Kind::Modify => {
                let version = read_record(session, number)?;
                self.checksum = fold(self.checksum, version);
                self.put(session, number, version + 1)
            }
            Kind::Get => {
                let version = read_record(session, number)?;
                self.checksum = fold(self.checksum, number ^ version);
                Ok(())
            }
            Kind::Missing if session.get(&keys::key(number), &mut |_| ())? => {
                Err(format!("record {number} was never put, and is there").into())
            }
            Kind::Missing => Ok(()),
            Kind::Scan(records) => self.scan(session, number, records as usize),
        }
    }

    fn put(&mut self, session: &mut dyn Session, number: u64, version: u64) -> Result<()> {
        self.puts += 1;
        session.put(&keys::key(number), self.value.fill(number, version))
    }

    /// Reads `limit` records from `number`, one that is there, on: the first is that one, keys rise, each
    /// value is whole and has its own key, and there are `limit` unless the key space ends.
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
        let short = count < limit && start < self.shared.last_full_start;
        if wrong || first || count > limit || short {
            return Err(
                format!("a scan of {limit} from record {number} brought {count} that do not fit").into()
            );
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
        _ => Err(format!("record {number} is missing or not whole").into()),
    }
}

#[inline]
fn fold(checksum: u64, answer: u64) -> u64 {
    (checksum.rotate_left(5) ^ answer).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
