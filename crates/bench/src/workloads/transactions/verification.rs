//! The verification of the tables after each row.

use std::collections::HashSet;

use super::TransactionsPlan;
use super::operations::START;
use crate::data::keys;
use crate::error::Result;
use crate::transaction_engine::{TableName, TransactionEngine, read_record, record};

/// The state of the tables that the transactions so far lead to.
pub(super) struct Expected {
    /// `None` after puts, which set amounts.
    pub(super) accounts_sum: Option<u64>,
    /// The accounts that were put: their group is 1 and their amount [`START`].
    pub(super) put: HashSet<u64>,
    pub(super) users: u64,
    pub(super) tasks_sum: u64,
}

/// Compares the tables with what the transactions must have led to.
pub(super) fn verify(
    engine: &dyn TransactionEngine,
    plan: &TransactionsPlan,
    expected: &Expected,
) -> Result<()> {
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
