//! The workload of transactions: each row verifies its result, so a store that loses updates fails.
//!
//! | row | transaction | verified |
//! |---|---|---|
//! | `transfer-10k`, `transfer-all` | moves an amount between two of 10,000 accounts, or of all: two gets, two puts | the sum of all amounts |
//! | `modify-zipf` | adds 1 to an account by Zipf's distribution: a get, a put | the sum grows by the number of transactions |
//! | `insert-if-absent` | inserts a user unless it exists; half exist | the number of inserted users |
//! | `tasks` | finds 10 tasks of a group by the index, moves one to another group and adds 1: a query, a get, a put | number and sum of tasks, and their groups by the index |
//! | `get-put` | a get and a put of one account; each thread has accounts of its own | the sum |
//! | `get-put-without` | the same without a transaction | the sum |
//! | `put` | a put without a transaction; none is open | each record |
//! | `put-beside` | a put without a transaction while another one is open | each record |

use std::collections::HashSet;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::data::keys;
use crate::data::random::Random;
use crate::data::zipf::Zipf;
use crate::engines;
use crate::error::Result;
use crate::measure;
use crate::report::RowFigures;
use crate::transaction_engine::{
    RECORD_BYTES, TableName, TransactionConnection, TransactionEngine, read_record, record,
};

/// Accounts of the row with few of them.
const FEW: u64 = 10_000;
/// The amount of each account at the start.
const START: u64 = 1_000_000_000;
/// Tasks of each group at the start.
const GROUP_TASKS: u64 = 10;
/// Tasks that a query reads.
const QUERY_TASKS: usize = 10;
/// Records that a transaction of the load puts.
const LOAD_BATCH: u64 = 1_000;
/// Operations between two looks at the clock.
const LOOK: usize = 64;

/// The workload of one child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TransactionsPlan {
    /// Engine name.
    pub engine: String,
    /// Accounts to load; a tenth as many tasks.
    pub accounts: u64,
    /// Transactions of each row.
    pub transactions: u64,
    /// Threads of every row.
    pub threads: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// The time limit of a row in seconds; a row ends early at it.
    pub row_limit_seconds: u64,
}

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionRow {
    TransferFew,
    TransferAll,
    ModifyZipf,
    InsertIfAbsent,
    Tasks,
    GetPut,
    GetPutWithout,
    Put,
    PutBeside,
}

impl TransactionRow {
    const ALL: [Self; 9] = [
        Self::TransferFew,
        Self::TransferAll,
        Self::ModifyZipf,
        Self::InsertIfAbsent,
        Self::Tasks,
        Self::GetPut,
        Self::GetPutWithout,
        Self::Put,
        Self::PutBeside,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::TransferFew => "transfer-10k",
            Self::TransferAll => "transfer-all",
            Self::ModifyZipf => "modify-zipf",
            Self::InsertIfAbsent => "insert-if-absent",
            Self::Tasks => "tasks",
            Self::GetPut => "get-put",
            Self::GetPutWithout => "get-put-without",
            Self::Put => "put",
            Self::PutBeside => "put-beside",
        }
    }

    /// Records that a transaction puts.
    fn puts(self) -> u64 {
        if matches!(self, Self::TransferFew | Self::TransferAll) { 2 } else { 1 }
    }
}

/// The state of the tables that the transactions so far lead to.
struct Expected {
    /// `None` after puts, which set amounts.
    accounts_sum: Option<u64>,
    /// The accounts that were put: their group is 1 and their amount [`START`].
    put: HashSet<u64>,
    users: u64,
    tasks_sum: u64,
}

/// Two numbers of one drawn operation.
type Drawn = (u64, u64);

/// The result of one thread.
#[derive(Debug, Default)]
struct ThreadResult {
    operations: u64,
    conflicts: u64,
    /// What the transactions added: to the sum of a table, or users.
    added: u64,
    /// The accounts that were put without reading them.
    put: Vec<u64>,
    cpu: u64,
    wall: Duration,
}

/// Runs `plan` on a store in the empty directory `path`.
pub fn run(plan: &TransactionsPlan, path: &Path) -> Result<Vec<RowFigures>> {
    let engine = engines::open_transactions(&plan.engine, path)?;
    let tasks = plan.accounts / 10;
    load(&*engine, TableName::Accounts, plan.accounts, |_| record(0, START))?;
    load(&*engine, TableName::Tasks, tasks, |number| record(number / GROUP_TASKS, 0))?;
    measure::settle(Duration::from_secs(120));
    let accounts_sum = Some(plan.accounts * START);
    let mut expected = Expected { accounts_sum, put: HashSet::new(), users: 0, tasks_sum: 0 };
    let mut figures = Vec::new();
    for row in TransactionRow::ALL {
        if let Some(row_figures) = measure_row(&*engine, row, plan, path, &mut expected)? {
            verify(&*engine, plan, &expected).map_err(|error| format!("{}: {error}", row.name()))?;
            figures.push(row_figures);
        }
    }
    Ok(figures)
}

fn load(
    engine: &dyn TransactionEngine,
    table: TableName,
    records: u64,
    record: impl Fn(u64) -> [u8; RECORD_BYTES],
) -> Result<()> {
    let mut connection = engine.connect()?;
    for first in (0..records).step_by(LOAD_BATCH as usize) {
        connection.transact(&mut |session| {
            let mut numbers = first..records.min(first + LOAD_BATCH);
            numbers.try_for_each(|number| session.put(table, &keys::key(number), &record(number)))
        })?;
    }
    Ok(())
}

/// Measures one row; `None` if the store cannot run it.
fn measure_row(
    engine: &dyn TransactionEngine,
    row: TransactionRow,
    plan: &TransactionsPlan,
    path: &Path,
    expected: &mut Expected,
) -> Result<Option<RowFigures>> {
    if row == TransactionRow::PutBeside && !engine.connect()?.beside_transaction(&mut |_| Ok(()))? {
        return Ok(None);
    }
    let (written, read) = (measure::written_bytes(), measure::device_read_bytes());
    let process_cpu = measure::process_cpu_nanos();
    let barrier = Barrier::new(plan.threads as usize + 1);
    let (results, drawing) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || run_thread(engine, row, plan, thread, barrier))
            })
            .collect();
        // The operations are drawn before.
        barrier.wait();
        let drawing = measure::process_cpu_nanos() - process_cpu;
        let join = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked"));
        (join.collect::<Vec<_>>(), drawing)
    });
    let mut total = ThreadResult::default();
    for result in results {
        let one = result??;
        total.operations += one.operations;
        total.conflicts += one.conflicts;
        total.added += one.added;
        total.cpu += one.cpu;
        total.wall = total.wall.max(one.wall);
        expected.put.extend(one.put);
    }
    match row {
        TransactionRow::InsertIfAbsent => expected.users += total.added,
        TransactionRow::Tasks => expected.tasks_sum += total.added,
        TransactionRow::Put | TransactionRow::PutBeside => expected.accounts_sum = None,
        _ => expected.accounts_sum = expected.accounts_sum.map(|sum| sum + total.added),
    }
    let settled = measure::settle(Duration::from_secs(120));
    let process_cpu = (measure::process_cpu_nanos() - process_cpu).saturating_sub(drawing);
    let memory = measure::memory();
    let per_operation = |nanos: u64| nanos as f64 / 1_000.0 / total.operations.max(1) as f64;
    eprintln!("  {}: {} operations, {} conflicts", row.name(), total.operations, total.conflicts);
    Ok(Some(RowFigures {
        row: row.name().to_owned(),
        threads: plan.threads,
        operations: total.operations,
        thread_micros: per_operation(total.cpu),
        process_micros: per_operation(process_cpu),
        wall_micros: total.wall.as_secs_f64() * 1e6 / total.operations.max(1) as f64,
        settle_seconds: settled.as_secs_f64(),
        written_bytes: measure::written_bytes() - written,
        device_read_bytes: measure::device_read_bytes() - read,
        user_bytes: total.operations * row.puts() * (keys::KEY_BYTES + RECORD_BYTES) as u64,
        disk_bytes: measure::disk_bytes(path)?,
        peak_rss_bytes: memory.peak,
        anonymous_bytes: memory.anonymous,
        checksum: None,
        index_share: None,
    }))
}

fn run_thread(
    engine: &dyn TransactionEngine,
    row: TransactionRow,
    plan: &TransactionsPlan,
    thread: u64,
    barrier: &Barrier,
) -> Result<ThreadResult> {
    let drawn = draw(row, plan, thread);
    let connection = engine.connect();
    barrier.wait();
    let mut connection = connection?;
    let mut result = ThreadResult::default();
    let mut run = |connection: &mut dyn TransactionConnection| {
        result = run_operations(connection, row, plan, &drawn)?;
        Ok(())
    };
    match row {
        TransactionRow::PutBeside => connection.beside_transaction(&mut run).map(drop)?,
        _ => run(&mut *connection)?,
    }
    if matches!(row, TransactionRow::Put | TransactionRow::PutBeside) {
        result.put = drawn.iter().take(result.operations as usize).map(|(account, _)| *account).collect();
    }
    Ok(result)
}

/// The operations of a thread, which depend on the seed, the row and the thread alone.
fn draw(row: TransactionRow, plan: &TransactionsPlan, thread: u64) -> Vec<Drawn> {
    let row_seed =
        row.name().bytes().fold(plan.seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Random::new(row_seed.wrapping_add(thread << 32));
    let zipf = if row == TransactionRow::ModifyZipf { Zipf::new(plan.accounts) } else { Zipf::new(2) };
    let share = plan.transactions / plan.threads;
    let groups = (plan.accounts / 10 / GROUP_TASKS).max(1);
    let below = |random: &mut Random, accounts: u64| {
        let (from, to) = (random.below(accounts), random.below(accounts));
        (from, if to == from { (to + 1) % accounts } else { to })
    };
    let one = |_| match row {
        TransactionRow::TransferFew => below(&mut random, FEW.min(plan.accounts)),
        TransactionRow::TransferAll => below(&mut random, plan.accounts),
        TransactionRow::ModifyZipf => (zipf.scattered(&mut random, plan.accounts), 0),
        TransactionRow::InsertIfAbsent => (random.below(plan.transactions / 2), 0),
        TransactionRow::Tasks => (random.below(groups), random.below(groups)),
        // Accounts of this thread.
        _ => (random.below(plan.accounts / plan.threads) * plan.threads + thread, 0),
    };
    (0..share).map(one).collect()
}

fn run_operations(
    connection: &mut dyn TransactionConnection,
    row: TransactionRow,
    plan: &TransactionsPlan,
    drawn: &[Drawn],
) -> Result<ThreadResult> {
    let limit = Duration::from_secs(plan.row_limit_seconds);
    let (started, cpu) = (Instant::now(), measure::thread_cpu_nanos());
    let mut result = ThreadResult::default();
    for some in drawn.chunks(LOOK) {
        for operation in some {
            let (conflicts, added) = operate(connection, row, *operation)?;
            result.conflicts += conflicts;
            result.added += added;
        }
        result.operations += some.len() as u64;
        if started.elapsed() > limit {
            break;
        }
    }
    result.cpu = measure::thread_cpu_nanos() - cpu;
    result.wall = started.elapsed();
    Ok(result)
}

/// Runs one operation. Returns the number of conflicts, and what it added.
fn operate(
    connection: &mut dyn TransactionConnection,
    row: TransactionRow,
    (one, two): Drawn,
) -> Result<(u64, u64)> {
    let key = keys::key(one);
    match row {
        TransactionRow::TransferFew | TransactionRow::TransferAll => {
            transfer(connection, &key, &keys::key(two)).map(|conflicts| (conflicts, 0))
        }
        TransactionRow::ModifyZipf | TransactionRow::GetPut => {
            let conflicts = connection.transact(&mut |session| {
                let amount = amount_of(session.get(TableName::Accounts, &key)?)?;
                session.put(TableName::Accounts, &key, &record(0, amount + 1))
            })?;
            Ok((conflicts, 1))
        }
        TransactionRow::InsertIfAbsent => insert_if_absent(connection, &key),
        TransactionRow::Tasks => move_task(connection, one, two),
        TransactionRow::GetPutWithout => {
            let amount = amount_of(connection.get(&key)?)?;
            connection.put(&key, &record(0, amount + 1))?;
            Ok((0, 1))
        }
        TransactionRow::Put | TransactionRow::PutBeside => {
            connection.put(&key, &record(1, START))?;
            Ok((0, 0))
        }
    }
}

fn amount_of(found: Option<Vec<u8>>) -> Result<u64> {
    Ok(read_record(&found.ok_or("an account is missing")?)?.1)
}

/// Moves an amount that depends on what both accounts have.
fn transfer(connection: &mut dyn TransactionConnection, from: &[u8], to: &[u8]) -> Result<u64> {
    connection.transact(&mut |session| {
        let source = amount_of(session.get(TableName::Accounts, from)?)?;
        let target = amount_of(session.get(TableName::Accounts, to)?)?;
        let moved = (source / 1_000).min(100);
        session.put(TableName::Accounts, from, &record(0, source - moved))?;
        session.put(TableName::Accounts, to, &record(0, target + moved))
    })
}

fn insert_if_absent(connection: &mut dyn TransactionConnection, key: &[u8]) -> Result<(u64, u64)> {
    let mut inserted = 0;
    let conflicts = connection.transact(&mut |session| {
        inserted = 0;
        if session.get(TableName::Users, key)?.is_none() {
            session.put(TableName::Users, key, &record(0, 1))?;
            inserted = 1;
        }
        Ok(())
    })?;
    Ok((conflicts, inserted))
}

/// Moves a task of group `from` to group `to`, and adds 1 to it.
fn move_task(connection: &mut dyn TransactionConnection, from: u64, to: u64) -> Result<(u64, u64)> {
    let mut added = 0;
    let conflicts = connection.transact(&mut |session| {
        added = 0;
        let tasks = session.tasks_of(from, QUERY_TASKS)?;
        let Some(key) = tasks.last() else { return Ok(()) };
        let found = session.get(TableName::Tasks, key)?.ok_or("a task of the index is missing")?;
        let (group, amount) = read_record(&found)?;
        // A store that does not validate ranges may have found a task that has moved since.
        if group == from {
            session.put(TableName::Tasks, key, &record(to, amount + 1))?;
            added = 1;
        }
        Ok(())
    })?;
    Ok((conflicts, added))
}

/// Compares the tables with what the transactions must have led to.
fn verify(engine: &dyn TransactionEngine, plan: &TransactionsPlan, expected: &Expected) -> Result<()> {
    let count_and_sum = |table: TableName| {
        let (mut count, mut sum) = (0, 0);
        engine.visit(table, &mut |_, found| {
            count += 1;
            sum += read_record(found)?.1;
            Ok(())
        })?;
        Ok::<(u64, u64), crate::error::Error>((count, sum))
    };
    let compare = |what: &str, found: (u64, u64), want: (u64, u64)| match found == want {
        true => Ok(()),
        false => Err(format!("{what}: number and sum are {found:?} instead of {want:?}")),
    };
    let (accounts, sum) = count_and_sum(TableName::Accounts)?;
    compare("accounts", (accounts, sum), (plan.accounts, expected.accounts_sum.unwrap_or(sum)))?;
    compare("users", count_and_sum(TableName::Users)?, (expected.users, expected.users))?;
    compare("tasks", count_and_sum(TableName::Tasks)?, (plan.accounts / 10, expected.tasks_sum))?;
    let mut connection = engine.connect()?;
    for account in &expected.put {
        let found = connection.get(&keys::key(*account))?;
        if found.as_deref() != Some(&record(1, START)[..]) {
            return Err(format!("account {account} is not as it was put").into());
        }
    }
    verify_groups(engine)
}

/// Compares some groups of tasks by the index with the records.
fn verify_groups(engine: &dyn TransactionEngine) -> Result<()> {
    const GROUPS: u64 = 100;
    let mut want = vec![Vec::new(); GROUPS as usize];
    engine.visit(TableName::Tasks, &mut |key, found| {
        let group = read_record(found)?.0;
        if let Some(keys) = want.get_mut(group as usize) {
            keys.push(key.to_vec());
        }
        Ok(())
    })?;
    let mut connection = engine.connect()?;
    for (group, want) in (0..GROUPS).zip(&mut want) {
        let mut found = Vec::new();
        connection.transact(&mut |session| {
            found = session.tasks_of(group, 1_000_000)?;
            Ok(())
        })?;
        found.sort();
        want.sort();
        if found != *want {
            return Err(format!(
                "group {group}: the index has {} tasks instead of {}",
                found.len(),
                want.len()
            )
            .into());
        }
    }
    Ok(())
}
