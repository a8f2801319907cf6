//! Sessions: statements one after the other, with settings and a transaction of their own.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use bolide::{Db, Isolation};
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;

use crate::blocking;
use crate::commands::{Command, TableDefinition, parse as parse_command};
use crate::ddl;
use crate::dml::{Dml, WrittenRows};
use crate::error::{Result, SqlError, SqlState};
use crate::fast_path::SimpleQuery;
use crate::planner::{Planner, is_setting, parse};
use crate::read_point::ReadPoint;
use crate::script::split_statements;
use crate::session_options::SessionOptions;
use crate::session_state::{SessionShared, table_hint};
use crate::shared_transaction::SharedTransaction;
use crate::sql_rows::{SqlResult, SqlRows};
use crate::transactions::{OpenTransaction, begin, commit};

/// Runs of a statement that conflicts with other commits.
const MAX_RUNS: usize = 8;
/// Longest text of a statement, in bytes.
const MAX_STATEMENT_BYTES: usize = 64 << 20;

/// Runs statements on a database. One statement runs at a time.
pub struct SqlSession {
    shared: Arc<SessionShared>,
    planner: Planner,
    transaction: Option<OpenTransaction>,
    /// Whether simple queries are executed without the planner.
    has_fast_path: bool,
}

/// Clears at the end of a statement what its tables depend on.
struct ClearOnDrop(Arc<SessionShared>);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.set_point(None);
        self.0.set_excluded(None);
    }
}

impl fmt::Debug for SqlSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSession").field("transaction", &self.transaction).finish_non_exhaustive()
    }
}

impl SqlSession {
    /// A session on `db`.
    ///
    /// # Errors
    /// For a directory of temporary files that cannot be used.
    pub fn new(db: Db, options: &SessionOptions) -> Result<Self> {
        let shared = Arc::new(SessionShared::new(db));
        let planner = Planner::new(shared.clone(), options)?;
        Ok(Self { shared, planner, transaction: None, has_fast_path: true })
    }

    /// Runs one statement, without a semicolon behind it.
    ///
    /// # Errors
    /// For an invalid statement, and those of its execution. Within a transaction the statement then has no effect, and the
    /// transaction goes on. The same holds if the execution is dropped before its end, unless the statement is a COMMIT.
    pub async fn execute(&mut self, statement: &str) -> Result<SqlResult> {
        if statement.len() > MAX_STATEMENT_BYTES {
            let message = format!(
                "a statement has at most {MAX_STATEMENT_BYTES} bytes; this one has {}",
                statement.len()
            );
            return Err(SqlError::new(SqlState::LimitExceeded, message));
        }
        // Also if the execution is dropped.
        let _clear = ClearOnDrop(self.shared.clone());
        let result = self.run(statement).await;
        result.map_err(|error| match (error.state(), error.hint()) {
            (SqlState::UndefinedTable, None) => error.with_hint(table_hint(&self.shared.tables())),
            _ => error,
        })
    }

    /// Runs all statements of `text`, and returns the rows of the last one.
    ///
    /// # Errors
    /// Those of the first statement that fails: those before it have run.
    pub async fn query(&mut self, text: &str) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        for statement in split_statements(text) {
            batches = match self.execute(statement).await? {
                SqlResult::Rows(rows) => rows.collect().await?,
                SqlResult::Done(_) => Vec::new(),
            };
        }
        Ok(batches)
    }

    /// The names of the tables.
    pub fn tables(&self) -> Vec<String> {
        self.shared.tables()
    }

    /// The names and types of the columns of a table.
    ///
    /// # Errors
    /// If there is no such table, and those of reading.
    pub async fn columns(&self, table: &str) -> Result<Vec<(String, String)>> {
        let (shared, table) = (self.shared.clone(), table.to_owned());
        let (_, schema) = blocking(move || shared.table(&table)).await??;
        Ok(schema.all().iter().map(|column| (column.name().to_owned(), column.type_name())).collect())
    }

    /// Whether a transaction is open.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    async fn run(&mut self, statement: &str) -> Result<SqlResult> {
        let command = parse_command(statement)?;
        if let Some(transaction) = &mut self.transaction
            && !matches!(command, Some(Command::Rollback))
        {
            // The execution of the statement before may have been dropped.
            transaction.undo().await?;
        }
        if let Some(command) = command {
            return self.run_command(command).await;
        }
        match parse(statement)? {
            ParsedStatement::Statement(parsed) if is_prepared(&parsed) => {
                Err(SqlError::unsupported("PREPARE, EXECUTE and DEALLOCATE are not supported")
                    .with_hint("run the statement itself"))
            }
            ParsedStatement::Statement(parsed) => match Dml::of(&parsed)? {
                Some(dml) => self.run_dml(&dml).await,
                None => self.run_query(ParsedStatement::Statement(parsed)).await,
            },
            ParsedStatement::Explain(mut explain) => {
                self.set_read_point();
                if let ParsedStatement::Statement(parsed) = &*explain.statement
                    && let Some(dml) = Dml::of(parsed)?
                {
                    let shared = self.shared.clone();
                    let table = dml.table.clone();
                    let (_, schema) = blocking(move || shared.table(&table)).await??;
                    *explain.statement = dml.rows_query(&schema)?;
                }
                if !explain.options.analyze
                    && let Some(rows) = self.explain_simple(&explain.statement).await?
                {
                    return Ok(SqlResult::Rows(rows));
                }
                self.planner.rows_of(ParsedStatement::Explain(explain)).await.map(SqlResult::Rows)
            }
            ParsedStatement::Reset(reset) => self.run_query(ParsedStatement::Reset(reset)).await,
            ParsedStatement::CreateExternalTable(_) => {
                Err(SqlError::unsupported("external tables are not supported")
                    .with_hint("load files with `bolide import`"))
            }
            ParsedStatement::CopyTo(_) => Err(SqlError::unsupported("COPY is not supported")
                .with_hint("write rows with bolide-sql --format csv, ndjson or arrow")),
        }
    }

    fn set_read_point(&self) {
        let point = match &self.transaction {
            Some(transaction) => ReadPoint::Transaction(transaction.shared.clone()),
            None => ReadPoint::Snapshot(self.shared.db.snapshot()),
        };
        self.shared.set_point(Some(point));
    }

    async fn run_query(&mut self, statement: ParsedStatement) -> Result<SqlResult> {
        self.set_read_point();
        if let Some(scan) = self.simple_scan(&statement).await? {
            let stream = execute_stream(scan, self.planner.task_context())?;
            return Ok(SqlResult::Rows(SqlRows::of_stream(stream)));
        }
        let is_setting = is_setting(&statement);
        let rows = self.planner.rows_of(statement).await?;
        Ok(if is_setting { SqlResult::Done("SET".to_owned()) } else { SqlResult::Rows(rows) })
    }

    /// The scan that answers a simple query.
    async fn simple_scan(&self, statement: &ParsedStatement) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let ParsedStatement::Statement(parsed) = statement else { return Ok(None) };
        let SqlStatement::Query(query) = &**parsed else { return Ok(None) };
        if !self.has_fast_path || SimpleQuery::of(query).is_none() {
            return Ok(None);
        }
        let (shared, query) = (self.shared.clone(), query.clone());
        blocking(move || {
            let simple = SimpleQuery::of(&query)?;
            // DataFusion reports what is wrong with the table.
            simple.scan(shared.source(&simple.table).ok()?)
        })
        .await
    }

    /// The plan of a simple query.
    async fn explain_simple(&self, statement: &ParsedStatement) -> Result<Option<SqlRows>> {
        let Some(scan) = self.simple_scan(statement).await? else { return Ok(None) };
        let plan = displayable(scan.as_ref()).indent(false).to_string();
        let texts = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
        let batch = RecordBatch::try_from_iter([
            ("plan_type", texts("physical_plan")),
            ("plan", texts(&format!("fast path\n{plan}"))),
        ])?;
        Ok(Some(SqlRows::of_batches(batch.schema(), vec![batch])))
    }

    /// Runs a statement that writes: in the open transaction, or in one of its own.
    async fn run_dml(&mut self, dml: &Dml) -> Result<SqlResult> {
        if let Some(transaction) = &mut self.transaction {
            let writer = transaction.begin_writer()?;
            let written = self.apply(dml, &writer).await;
            if let Some(transaction) = &mut self.transaction {
                match &written {
                    Ok(_) => transaction.keep(),
                    Err(_) => transaction.undo().await?,
                }
            }
            return written.map(WrittenRows::into_result);
        }
        let mut runs = 0;
        loop {
            let shared = self.begin(Isolation::Snapshot).await?;
            let written = match self.apply(dml, &shared).await {
                Ok(written) => blocking(move || commit(&shared)).await?.map(|()| written),
                Err(error) => Err(error),
            };
            runs += 1;
            match written {
                Ok(written) => return Ok(written.into_result()),
                Err(error) if error.state() == SqlState::SerializationFailure && runs < MAX_RUNS => {
                    // A commit of another writer: this one comes later.
                    tokio::task::yield_now().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin(&self, isolation: Isolation) -> Result<SharedTransaction> {
        let (db, max_bytes) = (self.shared.db.clone(), self.planner.max_bytes);
        blocking(move || begin(&db, isolation, max_bytes)).await?
    }

    async fn apply(&self, dml: &Dml, transaction: &SharedTransaction) -> Result<WrittenRows> {
        // Nothing waits for the writes of a statement whose execution is dropped.
        let _stop = transaction.stop_on_drop();
        self.shared.set_point(Some(ReadPoint::Transaction(transaction.clone())));
        dml.apply(&self.planner, transaction).await
    }

    async fn run_command(&mut self, command: Command) -> Result<SqlResult> {
        let done = |tag: &str| Ok(SqlResult::Done(tag.to_owned()));
        match command {
            Command::Begin(isolation) => {
                if self.transaction.is_some() {
                    return Err(SqlError::new(SqlState::ActiveTransaction, "a transaction is open already"));
                }
                let shared = self.begin(isolation).await?;
                self.transaction = Some(OpenTransaction::new(shared));
                done("BEGIN")
            }
            Command::Commit => {
                let transaction = self.transaction.take().ok_or_else(no_transaction)?;
                blocking(move || commit(&transaction.shared)).await??;
                done("COMMIT")
            }
            Command::Rollback => {
                let transaction = self.transaction.take().ok_or_else(no_transaction)?;
                blocking(move || transaction.shared.end().map(drop)).await??;
                done("ROLLBACK")
            }
            Command::Savepoint(name) => {
                self.transaction.as_mut().ok_or_else(no_transaction)?.add_savepoint(name)?;
                done("SAVEPOINT")
            }
            Command::RollbackTo(name) => {
                self.transaction.as_mut().ok_or_else(no_transaction)?.rollback_to(&name).await?;
                done("ROLLBACK")
            }
            Command::Release(name) => {
                self.transaction.as_mut().ok_or_else(no_transaction)?.release(&name)?;
                done("RELEASE")
            }
            Command::Set { name, value } => self.set(&name, &value),
            Command::CreateTable(table) => self.create_table(&table).await,
            other => {
                if self.transaction.is_some()
                    && !matches!(other, Command::CheckTable { .. } | Command::Advise { .. })
                {
                    return Err(no_ddl_in_transaction());
                }
                let shared = self.shared.clone();
                blocking(move || ddl::run(&shared, &other)).await?
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<SqlResult> {
        match (name, value.parse::<usize>()) {
            ("transaction_bytes", Ok(bytes)) if bytes > 0 => self.planner.max_bytes = bytes,
            ("transaction_bytes", _) => {
                return Err(SqlError::syntax(format!("`{value}` is no number of bytes")));
            }
            ("fast_path", _) if matches!(value, "on" | "off") => self.has_fast_path = value == "on",
            ("fast_path", _) => return Err(SqlError::syntax(format!("`{value}` is neither on nor off"))),
            _ => {
                return Err(SqlError::new(
                    SqlState::UndefinedObject,
                    format!("there is no setting bolide.{name}"),
                )
                .with_hint(
                    "the settings are bolide.transaction_bytes (a number) and bolide.fast_path (on or off)",
                ));
            }
        }
        Ok(SqlResult::Done("SET".to_owned()))
    }

    /// Creates a table, and fills it with the rows of its query.
    async fn create_table(&mut self, table: &TableDefinition) -> Result<SqlResult> {
        if self.transaction.is_some() {
            return Err(no_ddl_in_transaction());
        }
        let mut schema = None;
        if let Some(query) = &table.query {
            self.set_read_point();
            schema = Some(self.planner.rows_of(parse(query)?).await?.schema().clone());
        }
        let (shared, definition) = (self.shared.clone(), table.clone());
        let is_new = blocking(move || ddl::create_table(&shared, &definition, schema.as_deref())).await??;
        match &table.query {
            Some(query) if is_new => {
                let dml = Dml::insert_of_query(&table.name, parse(query)?)?;
                let filled = self.run_dml(&dml).await;
                if let Err(error) = filled {
                    // No half of a table remains.
                    let (shared, name) = (self.shared.clone(), table.name.clone());
                    let command = Command::DropTable { table: name, if_exists: true };
                    blocking(move || ddl::run(&shared, &command)).await??;
                    return Err(error);
                }
                Ok(SqlResult::Done("CREATE TABLE".to_owned()))
            }
            _ => Ok(SqlResult::Done("CREATE TABLE".to_owned())),
        }
    }
}

/// Whether the statement prepares another one, whose plan would read the state of that moment for ever, or runs such a plan.
fn is_prepared(statement: &SqlStatement) -> bool {
    matches!(
        statement,
        SqlStatement::Prepare { .. } | SqlStatement::Execute { .. } | SqlStatement::Deallocate { .. }
    )
}

fn no_transaction() -> SqlError {
    SqlError::new(SqlState::NoActiveTransaction, "no transaction is open").with_hint("begin one with BEGIN")
}

fn no_ddl_in_transaction() -> SqlError {
    SqlError::new(SqlState::ActiveTransaction, "tables and indexes cannot be changed within a transaction")
        .with_hint("COMMIT or ROLLBACK before")
}

#[cfg(test)]
mod tests {
    use bolide::{Collection, Components, Options};

    use super::*;

    const ROWS: usize = 30_000;
    /// Attempts to drop an execution before it ends.
    const ATTEMPTS: usize = 100;

    async fn session() -> SqlSession {
        let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
        let mut session = SqlSession::new(db, &SessionOptions::default().partitions(1)).unwrap();
        session.query("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)").await.unwrap();
        session.query("CREATE TABLE other (id BIGINT PRIMARY KEY, n BIGINT)").await.unwrap();
        let fill = format!("INSERT INTO other SELECT value, 1 FROM generate_series(1, {ROWS})");
        session.query(&fill).await.unwrap();
        session
    }

    async fn one(session: &mut SqlSession, query: &str) -> i64 {
        use arrow::array::AsArray;

        let batches = session.query(query).await.unwrap();
        batches[0].column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0)
    }

    /// Runs `statement` and drops its execution as soon as `is_reached`. False if it ended before.
    async fn dropped(session: &mut SqlSession, statement: &str, is_reached: impl Fn() -> bool) -> bool {
        tokio::select! {
            biased;
            () = async {
                while !is_reached() {
                    tokio::task::yield_now().await;
                }
            } => true,
            done = session.execute(statement) => done.map(|_| false).expect("no failure"),
        }
    }

    /// Whether a statement wrote the row 1 of one of the tables, as each does first.
    fn is_written(shared: &SharedTransaction, tables: &[Collection; 2]) -> bool {
        let key = bolide::key::encode_int(1);
        let rows = shared.read(|open| Ok([open.get(&tables[0], &key)?, open.get(&tables[1], &key)?]));
        rows.unwrap() != [None, Some(br#"{"n":1}"#.to_vec())]
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dropped_statement_leaves_no_writes() {
        let mut session = session().await;
        let all = ROWS as i64;
        for statement in [
            "INSERT INTO t SELECT id, 2 FROM other",
            "UPDATE other SET n = 2",
            "DELETE FROM other",
            "INSERT INTO other SELECT id, 5 FROM other ON CONFLICT (id) DO UPDATE SET n = 2",
        ] {
            let tables = ["t", "other"].map(|name| session.shared.db.collection(name).unwrap());
            let mut attempts = 0..ATTEMPTS;
            let shared = loop {
                attempts.next().expect("the statement ends before its execution is dropped, each time");
                session.query("BEGIN; INSERT INTO t VALUES (-1, 0); SAVEPOINT s").await.unwrap();
                let shared = session.transaction.as_ref().unwrap().shared.clone();
                if dropped(&mut session, statement, || is_written(&shared, &tables)).await {
                    break shared;
                }
                session.query("ROLLBACK").await.unwrap();
            };
            // No write is under way any more, and none follows.
            assert_eq!(one(&mut session, "SELECT count(*) FROM t").await, 1, "{statement}");
            assert!(!is_written(&shared, &tables), "{statement}");
            assert_eq!(one(&mut session, "SELECT sum(n) FROM other").await, all, "{statement}");
            session.query("UPDATE t SET n = n + 1").await.unwrap();
            session.query("RELEASE SAVEPOINT s; COMMIT").await.unwrap();
            assert_eq!(one(&mut session, "SELECT sum(n) FROM other").await, all, "{statement}");
            assert_eq!(one(&mut session, "SELECT sum(n) FROM t").await, 1, "{statement}");
            session.query("DELETE FROM t").await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_dropped_statement_leaves_no_table_of_its_new_rows() {
        let mut session = session().await;
        let shared = session.shared.clone();
        let update =
            "INSERT INTO other SELECT id, 5 FROM other ON CONFLICT (id) DO UPDATE SET n = excluded.n";
        let mut attempts = 0..ATTEMPTS;
        while !dropped(&mut session, update, || shared.excluded().is_some()).await {
            attempts.next().expect("the statement ends before its execution is dropped, each time");
            session.query("UPDATE other SET n = 1").await.unwrap();
        }
        let error = session.query("SELECT * FROM excluded").await.expect_err("the table remains");
        assert_eq!(error.state(), SqlState::UndefinedTable, "{error}");
        assert_eq!(one(&mut session, "SELECT max(n) FROM other").await, 1);
    }
}
