//! redb. Each batch is one transaction; tables are opened once in it.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::handmade::{ENTRY_BYTES, entry, primary_of};
use crate::engine::{
    Access, Batch, Connection, Engine, Fetch, IndexBatch, IndexConnection, IndexEngine, IndexSession,
    Session, StoreSettings, Visit,
};
use crate::error::Result;

const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("records");
const ENTRIES: TableDefinition<'static, &[u8], ()> = TableDefinition::new("entries");

/// Commits between two durable ones. Pages freed by the others are reusable only after a durable commit.
const COMMITS_PER_SYNC: u32 = 1_000;

struct Store {
    db: Database,
}

fn open(path: &Path, cache_bytes: usize) -> Result<Store> {
    let db = Database::builder().set_cache_size(cache_bytes).create(path.join("data.redb"))?;
    let transaction = db.begin_write()?;
    transaction.open_table(RECORDS)?;
    transaction.open_table(ENTRIES)?;
    transaction.commit()?;
    Ok(Store { db })
}

/// Opens the plain store.
pub fn open_store(path: &Path, settings: &StoreSettings) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open(path, settings.cache_bytes)?))
}

/// Opens records and index entries as two tables of one file.
pub fn open_index(path: &Path, settings: &StoreSettings) -> Result<Box<dyn IndexEngine>> {
    Ok(Box::new(open(path, settings.cache_bytes)?))
}

impl Engine for Store {
    fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        Ok(Box::new(Transactions { db: &self.db, commits: 0 }))
    }
}

impl IndexEngine for Store {
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>> {
        Ok(Box::new(Transactions { db: &self.db, commits: 0 }))
    }
}

struct Transactions<'e> {
    db: &'e Database,
    commits: u32,
}

impl Transactions<'_> {
    fn begin(&mut self) -> Result<redb::WriteTransaction> {
        let mut transaction = self.db.begin_write()?;
        self.commits += 1;
        if !self.commits.is_multiple_of(COMMITS_PER_SYNC) {
            transaction.set_durability(Durability::None)?;
        }
        Ok(transaction)
    }
}

impl Connection for Transactions<'_> {
    fn batch(&mut self, access: Access, body: Batch<'_>) -> Result<()> {
        if access == Access::Read {
            return body(&mut Reading { records: self.db.begin_read()?.open_table(RECORDS)? });
        }
        let transaction = self.begin()?;
        body(&mut Writing { records: transaction.open_table(RECORDS)? })?;
        Ok(transaction.commit()?)
    }
}

struct Reading {
    records: redb::ReadOnlyTable<&'static [u8], &'static [u8]>,
}

struct Writing<'t> {
    records: Table<'t, &'static [u8], &'static [u8]>,
}

fn get<T>(table: &T, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>
where
    T: ReadableTable<&'static [u8], &'static [u8]>,
{
    Ok(table.get(key)?.map(|value| read(value.value())).is_some())
}

fn scan<T>(table: &T, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>
where
    T: ReadableTable<&'static [u8], &'static [u8]>,
{
    let mut count = 0;
    for record in table.range(start..)?.take(limit) {
        let (key, value) = record?;
        visit(key.value(), value.value());
        count += 1;
    }
    Ok(count)
}

impl Session for Reading {
    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Err("a write in a batch of reads".into())
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.records, key, read)
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        scan(&self.records, start, limit, visit)
    }
}

impl Session for Writing<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.records.insert(key, value)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.records, key, read)
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        scan(&self.records, start, limit, visit)
    }
}

impl IndexConnection for Transactions<'_> {
    fn batch(&mut self, access: Access, body: IndexBatch<'_>) -> Result<()> {
        if access == Access::Read {
            let transaction = self.db.begin_read()?;
            let (records, entries) = (transaction.open_table(RECORDS)?, transaction.open_table(ENTRIES)?);
            return body(&mut IndexReading { records, entries });
        }
        let transaction = self.begin()?;
        {
            let (records, entries) = (transaction.open_table(RECORDS)?, transaction.open_table(ENTRIES)?);
            body(&mut IndexWriting { records, entries })?;
        }
        Ok(transaction.commit()?)
    }
}

struct IndexReading {
    records: redb::ReadOnlyTable<&'static [u8], &'static [u8]>,
    entries: redb::ReadOnlyTable<&'static [u8], ()>,
}

struct IndexWriting<'t> {
    records: Table<'t, &'static [u8], &'static [u8]>,
    entries: Table<'t, &'static [u8], ()>,
}

impl IndexSession for IndexReading {
    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Err("a write in a batch of reads".into())
    }

    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize> {
        let (mut first, mut last) = ([0; ENTRY_BYTES], [0xff; ENTRY_BYTES]);
        first[..8].copy_from_slice(&secondary.to_be_bytes());
        last[..8].copy_from_slice(&secondary.to_be_bytes());
        let mut count = 0;
        for found in self.entries.range::<&[u8]>(&first[..]..=&last[..])?.take(limit) {
            let (found, _) = found?;
            let primary = primary_of(found.value());
            if fetch == Fetch::Keys {
                visit(primary, None);
            } else {
                let record = self.records.get(primary)?.ok_or("an entry without its record")?;
                visit(primary, Some(record.value()));
            }
            count += 1;
        }
        Ok(count)
    }
}

impl IndexSession for IndexWriting<'_> {
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()> {
        if let Some(old) = self.records.insert(primary, record)? {
            self.entries.remove(&entry(primary, old.value())[..])?;
        }
        self.entries.insert(&entry(primary, record)[..], ())?;
        Ok(())
    }

    fn newest(&mut self, _: u64, _: usize, _: Fetch, _: Visit<'_>) -> Result<usize> {
        Err("a lookup in a batch of writes".into())
    }
}
