//! redb: one writer at a time.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{entry, group_of};
use crate::engine::CACHE_BYTES;
use crate::error::Result;
use crate::transaction_engine::{
    Body, TableName, TransactionConnection, TransactionEngine, TransactionSession,
};

const ENTRIES: TableDefinition<'static, &[u8], ()> = TableDefinition::new("entries");

/// Commits between two durable ones. Pages freed by the others are reusable only after a durable commit.
const COMMITS_PER_SYNC: u64 = 1_000;

fn definition(table: TableName) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

struct Store {
    db: Database,
    commits: AtomicU64,
}

/// Opens the store.
pub fn open(path: &Path) -> Result<Box<dyn TransactionEngine>> {
    let db = Database::builder().set_cache_size(CACHE_BYTES).create(path.join("data.redb"))?;
    let tx = db.begin_write()?;
    for table in TableName::ALL {
        tx.open_table(definition(table))?;
    }
    tx.open_table(ENTRIES)?;
    tx.commit()?;
    Ok(Box::new(Store { db, commits: AtomicU64::new(0) }))
}

impl Store {
    fn begin(&self) -> Result<WriteTransaction> {
        let mut tx = self.db.begin_write()?;
        if !(self.commits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(COMMITS_PER_SYNC) {
            tx.set_durability(Durability::None)?;
        }
        Ok(tx)
    }
}

impl TransactionEngine for Store {
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>> {
        Ok(Box::new(Connection { store: self }))
    }

    fn visit(&self, table: TableName, each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        for record in self.db.begin_read()?.open_table(definition(table))?.iter()? {
            let (key, record) = record?;
            each(key.value(), record.value())?;
        }
        Ok(())
    }
}

struct Connection<'s> {
    store: &'s Store,
}

struct Session<'t> {
    tx: &'t WriteTransaction,
}

impl TransactionConnection for Connection<'_> {
    fn transact(&mut self, body: Body<'_>) -> Result<u64> {
        let tx = self.store.begin()?;
        body(&mut Session { tx: &tx })?;
        tx.commit()?;
        Ok(0)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = self.store.db.begin_read()?.open_table(definition(TableName::Accounts))?;
        Ok(table.get(key)?.map(|record| record.value().to_vec()))
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()> {
        let tx = self.store.begin()?;
        tx.open_table(definition(TableName::Accounts))?.insert(key, record)?;
        Ok(tx.commit()?)
    }
}

impl TransactionSession for Session<'_> {
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = self.tx.open_table(definition(table))?;
        let found = table.get(key)?.map(|record| record.value().to_vec());
        Ok(found)
    }

    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()> {
        let mut records = self.tx.open_table(definition(table))?;
        let old = records.insert(key, record)?.map(|old| old.value().to_vec());
        if table == TableName::Tasks {
            let mut entries = self.tx.open_table(ENTRIES)?;
            if let Some(old) = old {
                entries.remove(&entry(group_of(&old)?, key)[..])?;
            }
            entries.insert(&entry(group_of(record)?, key)[..], ())?;
        }
        Ok(())
    }

    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let entries = self.tx.open_table(ENTRIES)?;
        let (first, behind) = (group.to_be_bytes(), (group + 1).to_be_bytes());
        let found = entries.range::<&[u8]>(&first[..]..&behind[..])?.take(limit);
        found.map(|entry| Ok(entry?.0.value()[8..].to_vec())).collect()
    }
}
