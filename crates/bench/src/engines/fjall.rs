//! fjall.

use std::path::Path;

use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions};

use super::handmade::{entry, primary_of};
use crate::engine::{
    Access, Batch, Connection, Engine, Fetch, IndexBatch, IndexConnection, IndexEngine, IndexSession,
    Session, StoreSettings, Visit,
};
use crate::error::Result;

fn open(path: &Path, cache_bytes: usize) -> Result<Database> {
    Ok(Database::builder(path).cache_size(cache_bytes as u64).open()?)
}

fn keyspace(db: &Database, name: &str, memtable_bytes: usize) -> Result<Keyspace> {
    let options = || {
        KeyspaceCreateOptions::default()
            .max_memtable_size(memtable_bytes as u64)
            .data_block_compression_policy(CompressionPolicy::disabled())
    };
    Ok(db.keyspace(name, options)?)
}

struct Store {
    // The database runs the flushes and compactions of its keyspaces: it must outlive them.
    _db: Database,
    records: Keyspace,
}

/// Opens the plain store.
pub fn open_store(path: &Path, settings: &StoreSettings) -> Result<Box<dyn Engine>> {
    let db = open(path, settings.cache_bytes)?;
    let records = keyspace(&db, "records", settings.memtable_bytes)?;
    Ok(Box::new(Store { _db: db, records }))
}

impl Engine for Store {
    fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        Ok(Box::new(Direct { records: &self.records }))
    }
}

struct Direct<'e> {
    records: &'e Keyspace,
}

impl Connection for Direct<'_> {
    fn batch(&mut self, _: Access, body: Batch<'_>) -> Result<()> {
        body(self)
    }
}

impl Session for Direct<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.records.insert(key, value)?)
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.records.get(key)?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut count = 0;
        for guard in self.records.range(start..).take(limit) {
            let (key, value) = guard.into_inner()?;
            visit(&key, &value);
            count += 1;
        }
        Ok(count)
    }
}

struct Indexed {
    db: Database,
    records: Keyspace,
    entries: Keyspace,
}

/// Opens records and index entries as two keyspaces of one database.
pub fn open_index(path: &Path, settings: &StoreSettings) -> Result<Box<dyn IndexEngine>> {
    let db = open(path, settings.cache_bytes)?;
    let keyspace = |name| keyspace(&db, name, settings.memtable_bytes);
    let (records, entries) = (keyspace("records")?, keyspace("entries")?);
    Ok(Box::new(Indexed { db, records, entries }))
}

impl IndexEngine for Indexed {
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>> {
        Ok(Box::new(IndexedDirect { engine: self }))
    }
}

struct IndexedDirect<'e> {
    engine: &'e Indexed,
}

impl IndexConnection for IndexedDirect<'_> {
    fn batch(&mut self, _: Access, body: IndexBatch<'_>) -> Result<()> {
        body(self)
    }
}

impl IndexSession for IndexedDirect<'_> {
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()> {
        let Indexed { db, records, entries } = self.engine;
        let mut batch = db.batch();
        if let Some(old) = records.get(primary)? {
            batch.remove(entries, entry(primary, &old));
        }
        batch.insert(entries, entry(primary, record), []);
        batch.insert(records, primary, record);
        Ok(batch.commit()?)
    }

    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize> {
        let mut count = 0;
        for guard in self.engine.entries.prefix(secondary.to_be_bytes()).take(limit) {
            let found = guard.key()?;
            let primary = primary_of(&found);
            if fetch == Fetch::Keys {
                visit(primary, None);
            } else {
                let record = self.engine.records.get(primary)?.ok_or("an entry without its record")?;
                visit(primary, Some(&record));
            }
            count += 1;
        }
        Ok(count)
    }
}
