//! SQLite, the library bundled with rusqlite: `BEGIN IMMEDIATE`, one writer at a time, one connection a thread.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection as Sqlite, OptionalExtension, params};

use crate::engine::CACHE_BYTES;
use crate::error::Result;
use crate::transaction_engine::{
    Body, TableName, TransactionConnection, TransactionEngine, TransactionSession, read_record,
};

const SCHEMA: &str = "
    CREATE TABLE accounts (key BLOB PRIMARY KEY, record BLOB) WITHOUT ROWID;
    CREATE TABLE users (key BLOB PRIMARY KEY, record BLOB) WITHOUT ROWID;
    CREATE TABLE tasks (key BLOB PRIMARY KEY, grp INTEGER, record BLOB) WITHOUT ROWID;
    CREATE INDEX groups ON tasks (grp)";

const PUT_ACCOUNT: &str =
    "INSERT INTO accounts VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET record = excluded.record";
const PUT_USER: &str =
    "INSERT INTO users VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET record = excluded.record";
const PUT_TASK: &str = "INSERT INTO tasks VALUES (?1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET grp = excluded.grp, record = excluded.record";

struct Store {
    file: PathBuf,
}

fn connect(file: &Path) -> Result<Sqlite> {
    let connection = Sqlite::open(file)?;
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    // Negative: kibibytes instead of pages.
    connection.pragma_update(None, "cache_size", -(CACHE_BYTES as i64 / 1024))?;
    Ok(connection)
}

/// Opens the store.
pub fn open(path: &Path) -> Result<Box<dyn TransactionEngine>> {
    let file = path.join("data.sqlite");
    connect(&file)?.execute_batch(SCHEMA)?;
    Ok(Box::new(Store { file }))
}

impl TransactionEngine for Store {
    fn connect(&self) -> Result<Box<dyn TransactionConnection + '_>> {
        Ok(Box::new(Connection { sqlite: connect(&self.file)? }))
    }

    fn visit(&self, table: TableName, each: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let sqlite = connect(&self.file)?;
        let mut statement = sqlite.prepare(&format!("SELECT key, record FROM {}", table.name()))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            each(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?)?;
        }
        Ok(())
    }
}

struct Connection {
    sqlite: Sqlite,
}

struct Session<'t> {
    sqlite: &'t Sqlite,
}

fn get(sqlite: &Sqlite, sql: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(sqlite.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()?)
}

const GET_ACCOUNT: &str = "SELECT record FROM accounts WHERE key = ?1";

impl TransactionConnection for Connection {
    fn transact(&mut self, body: Body<'_>) -> Result<u64> {
        self.sqlite.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        body(&mut Session { sqlite: &self.sqlite })?;
        self.sqlite.prepare_cached("COMMIT")?.execute([])?;
        Ok(0)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        get(&self.sqlite, GET_ACCOUNT, key)
    }

    fn put(&mut self, key: &[u8], record: &[u8]) -> Result<()> {
        self.sqlite.prepare_cached(PUT_ACCOUNT)?.execute(params![key, record])?;
        Ok(())
    }
}

impl TransactionSession for Session<'_> {
    fn get(&mut self, table: TableName, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let sql = match table {
            TableName::Accounts => GET_ACCOUNT,
            TableName::Users => "SELECT record FROM users WHERE key = ?1",
            TableName::Tasks => "SELECT record FROM tasks WHERE key = ?1",
        };
        get(self.sqlite, sql, key)
    }

    fn put(&mut self, table: TableName, key: &[u8], record: &[u8]) -> Result<()> {
        let plain =
            |sql| -> Result<usize> { Ok(self.sqlite.prepare_cached(sql)?.execute(params![key, record])?) };
        match table {
            TableName::Accounts => plain(PUT_ACCOUNT)?,
            TableName::Users => plain(PUT_USER)?,
            TableName::Tasks => {
                let group = read_record(record)?.0 as i64;
                self.sqlite.prepare_cached(PUT_TASK)?.execute(params![key, group, record])?
            }
        };
        Ok(())
    }

    fn tasks_of(&mut self, group: u64, limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut statement = self.sqlite.prepare_cached("SELECT key FROM tasks WHERE grp = ?1 LIMIT ?2")?;
        let keys = statement.query_map(params![group as i64, limit as i64], |row| row.get(0))?;
        Ok(keys.collect::<rusqlite::Result<_>>()?)
    }
}
