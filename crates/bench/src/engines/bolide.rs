//! Bolide: a collection of bytes, with or without an index.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bolide::{
    AttributeExtractor, AttributePlan, AttributeValues, Collection, CollectionOptions, Components,
    Compression, Db, FindOptions, IterOptions, Options, Order, PreparedQuery, Query, SyncMode, Value,
};

use crate::data::indexed_record::secondary_of;
use crate::engine::{
    Access, Batch, Connection, Engine, Fetch, IndexBatch, IndexConnection, IndexEngine, IndexSession, Layout,
    Session, StoreSettings, Visit,
};
use crate::error::Result;

const RECORDS: &str = "records";
const ATTRIBUTE: &str = "secondary";

fn collection_options(layout: Layout) -> CollectionOptions {
    CollectionOptions::bytes().layout(layout).compression(Compression::None)
}

struct Store {
    /// Held open during the use of the collection.
    _db: Db,
    records: Collection,
}

/// Opens the plain store, or creates it.
pub fn open_store(path: &Path, settings: &StoreSettings) -> Result<Box<dyn Engine>> {
    let options = Options::default()
        .cache_bytes(settings.cache_bytes)
        .memtable_bytes(settings.memtable_bytes)
        .sorted_views(settings.arrangement.views.of_bolide())
        .view_delay_percent(settings.arrangement.view_delay_percent)
        .sync(SyncMode::None);
    let mut collection =
        collection_options(settings.arrangement.layout).view_tags(settings.arrangement.view_tags);
    if let Some(bytes) = settings.file_bytes {
        collection = collection.target_file_bytes(bytes);
    }
    let db = Db::open(path, options)?;
    let records = match db.collection(RECORDS) {
        Ok(existing) => existing,
        Err(_) => db.create_collection(RECORDS, collection)?,
    };
    Ok(Box::new(Store { _db: db, records }))
}

/// Opens a collection with an index of `kind`, options included, on the secondary key, or creates it.
pub fn open_index(path: &Path, settings: &StoreSettings, kind: &str) -> Result<Box<dyn IndexEngine>> {
    let components = Components::system().extractor(RECORDS, Arc::new(SecondaryKey));
    let options = Options::default()
        .cache_bytes(settings.cache_bytes)
        .memtable_bytes(settings.memtable_bytes)
        .sync(SyncMode::None);
    let db = Db::open_with(path, options, components)?;
    let index = format!("{ATTRIBUTE}:{kind}").parse()?;
    let collection = collection_options(settings.arrangement.layout).index(index);
    let records = match db.collection(RECORDS) {
        Ok(existing) => existing,
        Err(_) => db.create_collection(RECORDS, collection)?,
    };
    Ok(Box::new(Store { _db: db, records }))
}

/// The first eight bytes of a record as an unsigned integer.
#[derive(Debug)]
pub struct SecondaryKey;

impl AttributeExtractor for SecondaryKey {
    fn extract_into(
        &self,
        record: &[u8],
        plan: &AttributePlan,
        out: &mut AttributeValues,
    ) -> bolide::Result<()> {
        // There is one attribute, so there is at most one slot.
        if !plan.paths().is_empty() {
            out.push(0, &Value::Uint(secondary_of(record)))?;
        }
        Ok(())
    }

    /// A number is never too long.
    fn accepts(&self, _record: &[u8]) -> bolide::Result<bool> {
        Ok(true)
    }
}

impl Engine for Store {
    fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        Ok(Box::new(Direct { records: &self.records }))
    }
}

impl IndexEngine for Store {
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>> {
        Ok(Box::new(PreparedQueries { records: &self.records, prepared: Vec::new() }))
    }
}

struct Direct<'e> {
    records: &'e Collection,
}

/// Queries are prepared at their first run, as in a program that repeats them. Each run sees the newest
/// state.
struct PreparedQueries<'e> {
    records: &'e Collection,
    prepared: Vec<(usize, Fetch, PreparedQuery)>,
}

impl PreparedQueries<'_> {
    fn prepared(&mut self, limit: usize, fetch: Fetch) -> Result<&mut PreparedQuery> {
        let at = self.prepared.iter().position(|entry| (entry.0, entry.1) == (limit, fetch));
        let at = match at {
            Some(at) => at,
            None => {
                let query = Query::new().eq(ATTRIBUTE, 0_u64).order(Order::Newest).limit(limit);
                let query = if fetch == Fetch::Keys { query.keys_only() } else { query };
                self.prepared.push((limit, fetch, self.records.prepare(query, FindOptions::default())?));
                self.prepared.len() - 1
            }
        };
        Ok(&mut self.prepared[at].2)
    }
}

impl Connection for Direct<'_> {
    fn batch(&mut self, _: Access, body: Batch<'_>) -> Result<()> {
        body(self)
    }
}

impl IndexConnection for PreparedQueries<'_> {
    fn batch(&mut self, _: Access, body: IndexBatch<'_>) -> Result<()> {
        body(self)
    }
}

impl Session for Direct<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.records.put(key, value)?)
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.records.get_pinned(key)?.map(|(_, value)| read(&value)).is_some())
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut cursor = self.records.cursor(&IterOptions::default())?;
        cursor.seek(start)?;
        let mut count = 0;
        while cursor.valid() {
            visit(cursor.key(), cursor.value());
            count += 1;
            if count == limit {
                break;
            }
            cursor.next()?;
        }
        Ok(count)
    }
}

impl IndexSession for PreparedQueries<'_> {
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()> {
        Ok(self.records.put(primary, record)?)
    }

    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize> {
        let count = self.prepared(limit, fetch)?.visit(&Value::Uint(secondary), |answer| {
            visit(answer.key, answer.record);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(count as usize)
    }
}
