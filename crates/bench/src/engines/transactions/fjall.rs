//! fjall: optimistic transactions over keyspaces.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, OptimisticWriteTx, Readable};

use super::{entry, group_of};
use crate::engine::{CACHE_BYTES, MEMTABLE_BYTES};
use crate::error::Result;
use crate::transaction_engine::{
    Body, TableName, TransactionConnection, TransactionEngine, TransactionSession,
};

struct Store {
    db: OptimisticTxDatabase,
    tables: Vec<OptimisticTxKeyspace>,
    entries: OptimisticTxKeyspace,
}

impl Store {
    fn table(&self, table: TableName) -> &OptimisticTxKeyspace {
        &self.tables[table as usize]
    }
}

/// Opens the store.
pub fn open(path: &Path) -> Result<Box<dyn TransactionEngine>> {
    let db = OptimisticTxDatabase::builder(path).cache_size(CACHE_BYTES as u64).open()?;
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(MEMTABLE_BYTES as u64)
            .data_block_compression_policy(CompressionPolicy::disabled())
    };
    let tables = TableName::ALL.iter().map(|table| db.keyspace(table.name(), options));
    let tables = tables.collect::<fjall::Result<_>>()?;
    let entries = db.keyspace("entries", options)?;
    Ok(Box::new(Store { db, tables, entries }))
}

impl TransactionEngine for Store {
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>> {
        Ok(Box::new(Connection { store: self }))
    }

    fn visit(&self, table: TableName, each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        for guard in self.db.read_tx().iter(self.table(table)) {
            let (key, record) = guard.into_inner()?;
            each(&key, &record)?;
        }
        Ok(())
    }
}

struct Connection<'s> {
    store: &'s Store,
}

struct Session<'s> {
    store: &'s Store,
    tx: OptimisticWriteTx,
}

impl TransactionConnection for Connection<'_> {
    fn transact(&mut self, body: Body<'_>) -> Result<u64> {
        let mut conflicts = 0;
        loop {
            let mut session = Session { store: self.store, tx: self.store.db.write_tx()? };
            body(&mut session)?;
            if session.tx.commit()?.is_ok() {
                return Ok(conflicts);
            }
            conflicts += 1;
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.store.table(TableName::Accounts).get(key)?.map(|record| record.to_vec()))
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()> {
        Ok(self.store.table(TableName::Accounts).insert(key, record)?)
    }

    fn beside_transaction(
        &mut self,
        body: &mut dyn FnMut(&mut dyn TransactionConnection) -> Result<()>,
    ) -> Result<bool> {
        let tx = self.store.db.write_tx()?;
        tx.get(self.store.table(TableName::Accounts), b"none")?;
        body(self)?;
        tx.rollback();
        Ok(true)
    }
}

impl TransactionSession for Session<'_> {
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get(self.store.table(table), key)?.map(|record| record.to_vec()))
    }

    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()> {
        if table == TableName::Tasks {
            if let Some(old) = self.tx.get(self.store.table(table), key)? {
                self.tx.remove(&self.store.entries, entry(group_of(&old)?, key));
            }
            self.tx.insert(&self.store.entries, entry(group_of(record)?, key), "");
        }
        self.tx.insert(self.store.table(table), key, record);
        Ok(())
    }

    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let found = self.tx.prefix(&self.store.entries, group.to_be_bytes()).take(limit);
        found.map(|guard| Ok(guard.key()?[8..].to_vec())).collect()
    }
}
