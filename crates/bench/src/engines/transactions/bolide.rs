//! Bolide: collections of bytes, one of them with an index.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bolide::{
    Collection, CollectionOptions, Components, Compression, Db, FindOptions, Isolation, Options,
    PreparedQuery, Query, SyncMode, Transaction, TransactionOptions, Value,
};

use crate::engine::{CACHE_BYTES, MEMTABLE_BYTES};
use crate::engines::SecondaryKey;
use crate::error::{Error, Result};
use crate::transaction_engine::{
    Body, TableName, TransactionConnection, TransactionEngine, TransactionSession,
};

const GROUP: &str = "group";

struct Store {
    db: Db,
    options: TransactionOptions,
    tables: Vec<Collection>,
}

impl Store {
    fn table(&self, table: TableName) -> &Collection {
        &self.tables[table as usize]
    }
}

/// Opens the store.
pub fn open(path: &Path, isolation: Isolation) -> Result<Box<dyn TransactionEngine>> {
    let components = Components::system().extractor(TableName::Tasks.name(), Arc::new(SecondaryKey));
    let options =
        Options::default().cache_bytes(CACHE_BYTES).memtable_bytes(MEMTABLE_BYTES).sync(SyncMode::None);
    let db = Db::open_with(path, options, components)?;
    let mut tables = Vec::new();
    for table in TableName::ALL {
        let mut options = CollectionOptions::bytes().compression(Compression::None);
        if table == TableName::Tasks {
            options = options.index(GROUP.parse()?);
        }
        tables.push(db.create_collection(table.name(), options)?);
    }
    let options = TransactionOptions::default().isolation(isolation).retries(u32::MAX);
    Ok(Box::new(Store { db, options, tables }))
}

impl TransactionEngine for Store {
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>> {
        Ok(Box::new(Connection { store: self, prepared: Vec::new() }))
    }

    fn visit(&self, table: TableName, each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        for record in self.table(table).iter()? {
            let (key, record) = record?;
            each(&key, &record)?;
        }
        Ok(())
    }
}

struct Connection<'s> {
    store: &'s Store,
    /// Queries with their limits, prepared at their first run.
    prepared: Vec<(usize, PreparedQuery)>,
}

struct Session<'t> {
    store: &'t Store,
    tx: &'t Transaction,
    prepared: &'t mut Vec<(usize, PreparedQuery)>,
}

impl TransactionConnection for Connection<'_> {
    fn transact(&mut self, body: Body<'_>) -> Result<u64> {
        let Self { store, prepared } = self;
        let (mut runs, mut failure) = (0, None::<Error>);
        let result = store.db.transaction_with(&store.options, |tx| {
            runs += 1;
            body(&mut Session { store, tx, prepared }).map_err(|error| {
                let text = error.to_string();
                failure = Some(error);
                bolide::Error::invalid_input(text)
            })
        });
        match (result, failure) {
            (_, Some(failure)) => Err(failure),
            (result, None) => {
                result?;
                Ok(runs - 1)
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.store.table(TableName::Accounts).get(key)?)
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()> {
        Ok(self.store.table(TableName::Accounts).put(key, record)?)
    }

    fn beside_transaction(
        &mut self,
        body: &mut dyn FnMut(&mut dyn TransactionConnection) -> Result<()>,
    ) -> Result<bool> {
        let tx = self.store.db.begin(self.store.options.clone())?;
        tx.get(self.store.table(TableName::Accounts), b"none")?;
        body(self)?;
        tx.rollback();
        Ok(true)
    }
}

impl TransactionSession for Session<'_> {
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tx.get(self.store.table(table), key)?)
    }

    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()> {
        Ok(self.tx.put(self.store.table(table), key, record)?)
    }

    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let known = self.prepared.iter().position(|(of, _)| *of == limit);
        let at = match known {
            Some(at) => at,
            None => {
                let query = Query::new().eq(GROUP, 0_u64).limit(limit).keys_only();
                let tasks = self.store.table(TableName::Tasks);
                self.prepared.push((limit, tasks.prepare(query, FindOptions::default())?));
                self.prepared.len() - 1
            }
        };
        let mut keys = Vec::new();
        self.tx.visit(&mut self.prepared[at].1, &Value::Uint(group), |answer| {
            keys.push(answer.key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(keys)
    }
}
