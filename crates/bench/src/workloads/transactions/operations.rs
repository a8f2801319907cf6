//! The transactions of each row: the accounts and tasks that they draw, and what they do with them.

use super::TransactionsPlan;
use crate::data::keys;
use crate::data::random::Random;
use crate::data::zipf::Zipf;
use crate::error::Result;
use crate::transaction_engine::{TableName, TransactionConnection, read_record, record};

/// Accounts of the row with few of them.
const FEW: u64 = 10_000;
/// The amount of each account at the start.
pub(super) const START: u64 = 1_000_000_000;
/// Tasks of each group at the start.
pub(super) const GROUP_TASKS: u64 = 10;
/// Tasks that a query reads.
const QUERY_TASKS: usize = 10;

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionRow {
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
    pub(super) const ALL: [Self; 9] = [
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

    pub(super) fn name(self) -> &'static str {
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
    pub(super) fn puts(self) -> u64 {
        if matches!(self, Self::TransferFew | Self::TransferAll) { 2 } else { 1 }
    }
}

/// Two numbers of one drawn operation.
pub(super) type Drawn = (u64, u64);

/// The operations of a thread, which depend on the seed, the row and the thread alone.
pub(super) fn draw(row: TransactionRow, plan: &TransactionsPlan, thread: u64) -> Vec<Drawn> {
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

/// Runs one operation. Returns the number of conflicts, and what it added.
pub(super) fn operate(
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
