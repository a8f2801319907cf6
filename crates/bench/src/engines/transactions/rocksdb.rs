//! RocksDB: `OptimisticTransactionDB`, Debian's library through the `rocksdb` crate.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DBCompressionType, ErrorKind, IteratorMode,
    OptimisticTransactionDB, Options, Transaction,
};

use super::{entry, group_of};
use crate::engine::{CACHE_BYTES, MEMTABLE_BYTES};
use crate::error::{Error, Result};
use crate::transaction_engine::{
    Body, TableName, TransactionConnection, TransactionEngine, TransactionSession,
};

const ENTRIES: &str = "entries";

struct Store {
    db: OptimisticTransactionDB,
}

impl Store {
    fn family(&self, name: &str) -> Result<&ColumnFamily> {
        self.db.cf_handle(name).ok_or_else(|| "a column family is missing".into())
    }
}

/// Opens the store.
pub fn open(path: &Path) -> Result<Box<dyn TransactionEngine>> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES)?);
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&blocks);
    let names = TableName::ALL.iter().map(|table| table.name()).chain([ENTRIES]);
    let families = names.map(|name| rocksdb::ColumnFamilyDescriptor::new(name, options.clone()));
    let db = OptimisticTransactionDB::open_cf_descriptors(&options, path, families)?;
    Ok(Box::new(Store { db }))
}

impl TransactionEngine for Store {
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>> {
        let tables = TableName::ALL.iter().map(|table| self.family(table.name())).collect::<Result<_>>()?;
        Ok(Box::new(Connection { db: &self.db, tables, entries: self.family(ENTRIES)? }))
    }

    fn visit(&self, table: TableName, each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        for record in self.db.iterator_cf(self.family(table.name())?, IteratorMode::Start) {
            let (key, record) = record?;
            each(&key, &record)?;
        }
        Ok(())
    }
}

struct Connection<'s> {
    db: &'s OptimisticTransactionDB,
    tables: Vec<&'s ColumnFamily>,
    entries: &'s ColumnFamily,
}

struct Session<'t, 's> {
    connection: &'t Connection<'s>,
    tx: Transaction<'s, OptimisticTransactionDB>,
}

/// Whether a transaction must run again.
fn is_conflict(error: &rocksdb::Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain)
}

impl TransactionConnection for Connection<'_> {
    fn transact(&mut self, body: Body<'_>) -> Result<u64> {
        let mut conflicts = 0;
        loop {
            let mut session = Session { connection: self, tx: self.db.transaction() };
            body(&mut session)?;
            match session.tx.commit() {
                Ok(()) => return Ok(conflicts),
                Err(error) if is_conflict(&error) => conflicts += 1,
                Err(error) => return Err(Error::from(error)),
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.db.get_cf(self.tables[TableName::Accounts as usize], key)?)
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()> {
        Ok(self.db.put_cf(self.tables[TableName::Accounts as usize], key, record)?)
    }

    fn beside_transaction(
        &mut self,
        body: &mut dyn FnMut(&mut dyn TransactionConnection) -> Result<()>,
    ) -> Result<bool> {
        let tx = self.db.transaction();
        tx.get_for_update_cf(self.tables[TableName::Accounts as usize], b"none", true)?;
        body(self)?;
        tx.rollback()?;
        Ok(true)
    }
}

impl TransactionSession for Session<'_, '_> {
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get_for_update_cf(self.connection.tables[table as usize], key, true)?)
    }

    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()> {
        let records = self.connection.tables[table as usize];
        if table == TableName::Tasks {
            if let Some(old) = self.tx.get_for_update_cf(records, key, true)? {
                self.tx.delete_cf(self.connection.entries, entry(group_of(&old)?, key))?;
            }
            self.tx.put_cf(self.connection.entries, entry(group_of(record)?, key), [])?;
        }
        Ok(self.tx.put_cf(records, key, record)?)
    }

    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let prefix = group.to_be_bytes();
        let mut cursor = self.tx.raw_iterator_cf(self.connection.entries);
        cursor.seek(prefix);
        let mut keys = Vec::new();
        while let Some(found) = cursor.key().filter(|found| found.starts_with(&prefix)) {
            keys.push(found[8..].to_vec());
            if keys.len() == limit {
                break;
            }
            cursor.next();
        }
        cursor.status()?;
        Ok(keys)
    }
}
