//! LMDB through heed: one writer at a time.
// Opening an LMDB environment is `unsafe` in heed: no other program may change the mapped file.
#![allow(unsafe_code)]

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RwTxn};

use super::{entry, group_of};
use crate::engine::MAP_BYTES;
use crate::error::Result;
use crate::transaction_engine::{
    Body, TableName, TransactionConnection, TransactionEngine, TransactionSession,
};

type Tree = Database<Bytes, Bytes>;

struct Store {
    env: Env,
    tables: Vec<Tree>,
    entries: Tree,
}

/// Opens the store.
pub fn open(path: &Path) -> Result<Box<dyn TransactionEngine>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(4);
    // SAFETY: the directory is private to this process and opened once; NO_SYNC gives up durability after a power cut, which
    // is what every engine here is configured for.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(path)? };
    let mut tx = env.write_txn()?;
    let mut tables = Vec::new();
    for table in TableName::ALL {
        tables.push(env.create_database(&mut tx, Some(table.name()))?);
    }
    let entries = env.create_database(&mut tx, Some("entries"))?;
    tx.commit()?;
    Ok(Box::new(Store { env, tables, entries }))
}

impl TransactionEngine for Store {
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>> {
        Ok(Box::new(Connection { store: self }))
    }

    fn visit(&self, table: TableName, each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let tx = self.env.read_txn()?;
        for record in self.tables[table as usize].iter(&tx)? {
            let (key, record) = record?;
            each(key, record)?;
        }
        Ok(())
    }
}

struct Connection<'s> {
    store: &'s Store,
}

struct Session<'s> {
    store: &'s Store,
    tx: RwTxn<'s>,
}

impl TransactionConnection for Connection<'_> {
    fn transact(&mut self, body: Body<'_>) -> Result<u64> {
        let mut session = Session { store: self.store, tx: self.store.env.write_txn()? };
        body(&mut session)?;
        session.tx.commit()?;
        Ok(0)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let tx = self.store.env.read_txn()?;
        Ok(self.store.tables[TableName::Accounts as usize].get(&tx, key)?.map(<[u8]>::to_vec))
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()> {
        let mut tx = self.store.env.write_txn()?;
        self.store.tables[TableName::Accounts as usize].put(&mut tx, key, record)?;
        Ok(tx.commit()?)
    }
}

impl TransactionSession for Session<'_> {
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.store.tables[table as usize].get(&self.tx, key)?.map(<[u8]>::to_vec))
    }

    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()> {
        let Store { tables, entries, .. } = self.store;
        let records = &tables[table as usize];
        if table == TableName::Tasks {
            let old = records.get(&self.tx, key)?.map(|old| group_of(old).map(|group| entry(group, key)));
            if let Some(old) = old.transpose()? {
                entries.delete(&mut self.tx, &old)?;
            }
            entries.put(&mut self.tx, &entry(group_of(record)?, key), &[])?;
        }
        Ok(records.put(&mut self.tx, key, record)?)
    }

    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let found = self.store.entries.prefix_iter(&self.tx, &group.to_be_bytes())?.take(limit);
        found.map(|entry| Ok(entry?.0[8..].to_vec())).collect()
    }
}
