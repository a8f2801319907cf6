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

mod operations;
mod verification;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::operations::{Drawn, GROUP_TASKS, START, TransactionRow, draw, operate};
use self::verification::{Expected, verify};
use crate::data::keys;
use crate::engines;
use crate::error::Result;
use crate::measure;
use crate::report::RowFigures;
use crate::transaction_engine::{RECORD_BYTES, TableName, TransactionConnection, TransactionEngine, record};

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
