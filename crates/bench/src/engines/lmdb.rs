//! LMDB through heed. Each batch is one transaction.
// Opening an LMDB environment is `unsafe` in heed: no other program may change the mapped file.
#![allow(unsafe_code)]

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, RwTxn};

use super::handmade::{entry, primary_of};
use crate::engine::{
    Access, Batch, Connection, Engine, Fetch, IndexBatch, IndexConnection, IndexEngine, IndexSession,
    MAP_BYTES, Session, Visit,
};
use crate::error::Result;

type Tree = Database<Bytes, Bytes>;

struct Store {
    env: Env,
    records: Tree,
    entries: Tree,
}

fn open(path: &Path) -> Result<Store> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(2);
    // SAFETY: the directory is private to this process and opened once; NO_SYNC gives up
    // durability after a power cut, which is what every engine here is configured for.
    let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(path)? };
    let mut transaction = env.write_txn()?;
    let records = env.create_database(&mut transaction, Some("records"))?;
    let entries = env.create_database(&mut transaction, Some("entries"))?;
    transaction.commit()?;
    Ok(Store { env, records, entries })
}

/// Opens the plain store.
pub fn open_store(path: &Path) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open(path)?))
}

/// Opens records and index entries as two databases of one environment.
pub fn open_index(path: &Path) -> Result<Box<dyn IndexEngine>> {
    Ok(Box::new(open(path)?))
}

impl Engine for Store {
    fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        Ok(Box::new(Transactions { store: self }))
    }
}

impl IndexEngine for Store {
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>> {
        Ok(Box::new(Transactions { store: self }))
    }
}

struct Transactions<'e> {
    store: &'e Store,
}

/// A read or write transaction; LMDB reads through both.
enum Transaction<'t> {
    Read(RoTxn<'t>),
    Write(RwTxn<'t>),
}

impl<'t> Transaction<'t> {
    fn reader(&self) -> &RoTxn<'t> {
        match self {
            Self::Read(transaction) => transaction,
            Self::Write(transaction) => transaction,
        }
    }

    fn writer(&mut self) -> Result<&mut RwTxn<'t>> {
        match self {
            Self::Read(_) => Err("a write in a batch of reads".into()),
            Self::Write(transaction) => Ok(transaction),
        }
    }
}

struct Open<'t> {
    records: Tree,
    entries: Tree,
    transaction: Transaction<'t>,
}

impl<'e> Transactions<'e> {
    fn begin(&self, access: Access) -> Result<Open<'e>> {
        let transaction = match access {
            Access::Read => Transaction::Read(self.store.env.read_txn()?),
            Access::Write => Transaction::Write(self.store.env.write_txn()?),
        };
        Ok(Open { records: self.store.records, entries: self.store.entries, transaction })
    }
}

impl Open<'_> {
    fn end(self) -> Result<()> {
        match self.transaction {
            Transaction::Read(transaction) => Ok(transaction.commit()?),
            Transaction::Write(transaction) => Ok(transaction.commit()?),
        }
    }
}

impl Connection for Transactions<'_> {
    fn batch(&mut self, access: Access, body: Batch<'_>) -> Result<()> {
        let mut open = self.begin(access)?;
        body(&mut open)?;
        open.end()
    }
}

impl IndexConnection for Transactions<'_> {
    fn batch(&mut self, access: Access, body: IndexBatch<'_>) -> Result<()> {
        let mut open = self.begin(access)?;
        body(&mut open)?;
        open.end()
    }
}

impl Session for Open<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.records.put(self.transaction.writer()?, key, value)?)
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.records.get(self.transaction.reader(), key)?.map(read).is_some())
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let range = (Bound::Included(start), Bound::Unbounded);
        let mut count = 0;
        for record in self.records.range(self.transaction.reader(), &range)?.take(limit) {
            let (key, value) = record?;
            visit(key, value);
            count += 1;
        }
        Ok(count)
    }
}

impl IndexSession for Open<'_> {
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()> {
        let transaction = self.transaction.writer()?;
        let old = self.records.get(transaction, primary)?.map(|old| entry(primary, old));
        if let Some(old) = old {
            self.entries.delete(transaction, &old)?;
        }
        self.entries.put(transaction, &entry(primary, record), &[])?;
        Ok(self.records.put(transaction, primary, record)?)
    }

    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize> {
        let transaction = self.transaction.reader();
        let mut count = 0;
        for found in self.entries.prefix_iter(transaction, &secondary.to_be_bytes())?.take(limit) {
            let primary = primary_of(found?.0);
            if fetch == Fetch::Keys {
                visit(primary, None);
            } else {
                let record = self.records.get(transaction, primary)?.ok_or("an entry without its record")?;
                visit(primary, Some(record));
            }
            count += 1;
        }
        Ok(count)
    }
}
