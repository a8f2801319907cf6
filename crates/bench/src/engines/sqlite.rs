//! SQLite, the library bundled with rusqlite. One connection a thread, each batch one transaction.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::{Connection as Sqlite, params};

use crate::data::indexed_record::{secondary_of, version_of};
use crate::engine::{
    Access, Batch, Connection, Engine, Fetch, IndexBatch, IndexConnection, IndexEngine, IndexSession,
    Session, StoreSettings, Visit,
};
use crate::error::Result;

const STORE_SCHEMA: &str = "CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID";

/// Secondary key and version are separate columns, as usual in SQL; the record is stored whole.
const INDEX_SCHEMA: &str = "
    CREATE TABLE records (key BLOB PRIMARY KEY, secondary INTEGER, version INTEGER, record BLOB) WITHOUT ROWID;
    CREATE INDEX newest ON records (secondary, version DESC)";

struct Store {
    file: PathBuf,
    cache_bytes: usize,
    /// Connections not in use: each has a page cache of its own, which must outlive a row.
    idle: Mutex<Vec<Sqlite>>,
}

impl Store {
    fn transactions(&self) -> Result<Transactions<'_>> {
        let idle = self.idle.lock().map_or(None, |mut idle| idle.pop());
        let sqlite = idle.map_or_else(|| connect(&self.file, self.cache_bytes), Ok)?;
        Ok(Transactions { store: self, sqlite: Some(sqlite) })
    }
}

fn connect(file: &Path, cache_bytes: usize) -> Result<Sqlite> {
    let connection = Sqlite::open(file)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    // Negative: kibibytes instead of pages.
    connection.pragma_update(None, "cache_size", -(cache_bytes as i64 / 1024))?;
    Ok(connection)
}

fn open(path: &Path, schema: &str, cache_bytes: usize) -> Result<Store> {
    let file = path.join("data.sqlite");
    connect(&file, cache_bytes)?.execute_batch(schema)?;
    Ok(Store { file, cache_bytes, idle: Mutex::default() })
}

/// Opens the plain store.
pub fn open_store(path: &Path, settings: &StoreSettings) -> Result<Box<dyn Engine>> {
    Ok(Box::new(open(path, STORE_SCHEMA, settings.cache_bytes)?))
}

/// Opens a table with an SQL index.
pub fn open_index(path: &Path, settings: &StoreSettings) -> Result<Box<dyn IndexEngine>> {
    Ok(Box::new(open(path, INDEX_SCHEMA, settings.cache_bytes)?))
}

impl Engine for Store {
    fn connect(&self) -> Result<Box<dyn Connection + '_>> {
        Ok(Box::new(self.transactions()?))
    }
}

impl IndexEngine for Store {
    fn connect(&self) -> Result<Box<dyn IndexConnection + '_>> {
        Ok(Box::new(self.transactions()?))
    }
}

struct Transactions<'e> {
    store: &'e Store,
    /// `None` only inside `drop`.
    sqlite: Option<Sqlite>,
}

impl Drop for Transactions<'_> {
    fn drop(&mut self) {
        if let Ok(mut idle) = self.store.idle.lock() {
            idle.extend(self.sqlite.take());
        }
    }
}

impl Transactions<'_> {
    fn run(&mut self, access: Access, body: &mut dyn FnMut(&mut Open<'_>) -> Result<()>) -> Result<()> {
        // A transaction that will write declares it at once; upgrading later can fail half-way.
        let begin = if access == Access::Write { "BEGIN IMMEDIATE" } else { "BEGIN" };
        let sqlite = self.sqlite.as_ref().ok_or("the connection was returned to the pool")?;
        sqlite.prepare_cached(begin)?.execute([])?;
        body(&mut Open { sqlite })?;
        sqlite.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Connection for Transactions<'_> {
    fn batch(&mut self, access: Access, body: Batch<'_>) -> Result<()> {
        self.run(access, &mut |open| body(open))
    }
}

impl IndexConnection for Transactions<'_> {
    fn batch(&mut self, access: Access, body: IndexBatch<'_>) -> Result<()> {
        self.run(access, &mut |open| body(open))
    }
}

struct Open<'t> {
    sqlite: &'t Sqlite,
}

impl Session for Open<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let sql =
            "INSERT INTO records VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.sqlite.prepare_cached(sql)?.execute(params![key, value])?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut statement = self.sqlite.prepare_cached("SELECT value FROM records WHERE key = ?1")?;
        let mut rows = statement.query([key])?;
        let Some(row) = rows.next()? else { return Ok(false) };
        read(row.get_ref(0)?.as_blob()?);
        Ok(true)
    }

    fn scan(&mut self, start: &[u8], limit: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let sql = "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2";
        let mut statement = self.sqlite.prepare_cached(sql)?;
        let mut rows = statement.query(params![start, limit as i64])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
            count += 1;
        }
        Ok(count)
    }
}

impl IndexSession for Open<'_> {
    fn put(&mut self, primary: &[u8], record: &[u8]) -> Result<()> {
        let sql = "INSERT INTO records VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE
            SET secondary = excluded.secondary, version = excluded.version, record = excluded.record";
        let (secondary, version) = (secondary_of(record) as i64, version_of(record) as i64);
        self.sqlite.prepare_cached(sql)?.execute(params![primary, secondary, version, record])?;
        Ok(())
    }

    fn newest(&mut self, secondary: u64, limit: usize, fetch: Fetch, visit: Visit<'_>) -> Result<usize> {
        let sql = match fetch {
            Fetch::Keys => "SELECT key FROM records WHERE secondary = ?1 ORDER BY version DESC LIMIT ?2",
            Fetch::Records => {
                "SELECT key, record FROM records WHERE secondary = ?1 ORDER BY version DESC LIMIT ?2"
            }
        };
        let mut statement = self.sqlite.prepare_cached(sql)?;
        let mut rows = statement.query(params![secondary as i64, limit as i64])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let record = (fetch == Fetch::Records)
                .then(|| row.get_ref(1)?.as_blob().map_err(crate::error::Error::from));
            visit(row.get_ref(0)?.as_blob()?, record.transpose()?);
            count += 1;
        }
        Ok(count)
    }
}
