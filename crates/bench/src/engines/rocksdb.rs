//! RocksDB, Debian's library through the `rocksdb` crate.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, DB, DBCompressionType, Options, WriteBatch, WriteOptions,
};

use super::handmade::{Removal, entry, is_current, primary_of};
use crate::engine::{
    Access, Batch, Connection, Engine, Fetch, IndexBatch, IndexConnection, IndexEngine, IndexSession,
    Session, StoreSettings, Visit,
};
use crate::error::Result;

const RECORDS: &str = "records";
const ENTRIES: &str = "entries";

fn options(cache_bytes: usize, memtable_bytes: usize) -> Result<Options> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes)?);
    blocks.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_write_buffer_size(memtable_bytes);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&blocks);
    Ok(options)
}

struct Store {
    db: DB,
}

/// Opens the plain store.
pub fn open_store(path: &Path, settings: &StoreSettings) -> Result<Box<dyn Engine>> {
    let options = options(settings.cache_bytes, settings.memtable_bytes)?;
    Ok(Box::new(Store { db: DB::open(&options, path)? }))
}

impl Engine for Store {
    fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        Ok(Box::new(Direct { db: &self.db, write: WriteOptions::default() }))
    }
}

struct Direct<'e> {
    db: &'e DB,
    write: WriteOptions,
}

impl Connection for Direct<'_> {
    fn batch(&mut self, _: Access, body: Batch<'_>) -> Result<()> {
        body(self)
    }
}

impl Session for Direct<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get_pinned(key)?;
        Ok(value.map(|value| read(&value)).is_some())
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut cursor = self.db.raw_iterator();
        cursor.seek(start);
        let mut count = 0;
        while let Some((key, value)) = cursor.item() {
            visit(key, value);
            count += 1;
            if count == limit {
                return Ok(count);
            }
            cursor.next();
        }
        cursor.status()?;
        Ok(count)
    }
}

struct Indexed {
    db: DB,
    removal: Removal,
}

/// Opens records and index entries as two column families of one database.
pub fn open_index(path: &Path, settings: &StoreSettings, removal: Removal) -> Result<Box<dyn IndexEngine>> {
    let options = options(settings.cache_bytes, settings.memtable_bytes)?;
    let families = [(RECORDS, options.clone()), (ENTRIES, options.clone())];
    Ok(Box::new(Indexed { db: DB::open_cf_with_opts(&options, path, families)?, removal }))
}

impl IndexEngine for Indexed {
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>> {
        let family = |name| self.db.cf_handle(name).ok_or("a column family is missing");
        let (records, entries) = (family(RECORDS)?, family(ENTRIES)?);
        Ok(Box::new(IndexedDirect { db: &self.db, records, entries, removal: self.removal }))
    }
}

struct IndexedDirect<'e> {
    db: &'e DB,
    records: &'e ColumnFamily,
    entries: &'e ColumnFamily,
    removal: Removal,
}

impl IndexConnection for IndexedDirect<'_> {
    fn batch(&mut self, _: Access, body: IndexBatch<'_>) -> Result<()> {
        body(self)
    }
}

impl IndexSession for IndexedDirect<'_> {
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::default();
        if self.removal == Removal::Read
            && let Some(old) = self.db.get_pinned_cf(self.records, primary)?
        {
            batch.delete_cf(self.entries, entry(primary, &old));
        }
        batch.put_cf(self.entries, entry(primary, record), []);
        batch.put_cf(self.records, primary, record);
        Ok(self.db.write(batch)?)
    }

    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize> {
        let prefix = secondary.to_be_bytes();
        let mut cursor = self.db.raw_iterator_cf(self.entries);
        cursor.seek(prefix);
        let mut count = 0;
        while let Some(found) = cursor.key() {
            if count == limit || !found.starts_with(&prefix) {
                return Ok(count);
            }
            let primary = primary_of(found);
            if self.removal == Removal::Read && fetch == Fetch::Keys {
                visit(primary, None);
                count += 1;
            } else {
                let record = self.db.get_pinned_cf(self.records, primary)?;
                let current = record.as_ref().filter(|record| is_current(found, record));
                if let Some(record) = current {
                    visit(primary, (fetch == Fetch::Records).then_some(record));
                    count += 1;
                }
            }
            cursor.next();
        }
        cursor.status()?;
        Ok(count)
    }
}
