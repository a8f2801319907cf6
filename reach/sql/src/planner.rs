//! Queries of a session: planned and executed by DataFusion, over the tables of its catalog.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SessionState, SessionStateBuilder, TaskContext};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;

use crate::catalog::{BolideCatalog, CATALOG, PUBLIC};
use crate::error::{Result, SqlError, SqlState};
use crate::pushdown::MAX_IN_LIST;
use crate::rules::{CountByIndex, ExtremeByIndex};
use crate::session_options::SessionOptions;
use crate::session_state::SessionShared;
use crate::sql_rows::SqlRows;
use crate::token_cursor::check_chains;

/// Bytes of the keys of a join that are passed to its probe side.
const MAX_PROBE_BYTES: usize = 4 << 20;
/// Memory for sorts, joins and aggregates by default, in bytes.
const MEMORY_BYTES: usize = 256 << 20;
/// Memory of a transaction for its reads and writes by default, in bytes.
const TRANSACTION_BYTES: usize = 256 << 20;
/// Nesting of expressions and queries that is parsed.
const MAX_NESTING: usize = 100;

/// Plans and executes queries.
pub(crate) struct Planner {
    shared: Arc<SessionShared>,
    context: SessionContext,
    /// Memory of a transaction for its reads and writes, in bytes.
    pub(crate) max_bytes: usize,
}

impl Planner {
    /// # Errors
    /// For a directory of temporary files that cannot be used.
    pub(crate) fn new(shared: Arc<SessionShared>, options: &SessionOptions) -> Result<Self> {
        let context = SessionContext::new_with_state(state_of(options)?);
        context.register_catalog(CATALOG, Arc::new(BolideCatalog::new(&shared)));
        Ok(Self { shared, context, max_bytes: TRANSACTION_BYTES })
    }

    pub(crate) fn shared(&self) -> &Arc<SessionShared> {
        &self.shared
    }

    /// What the execution of a plan uses.
    pub(crate) fn task_context(&self) -> Arc<TaskContext> {
        self.context.task_ctx()
    }

    /// The rows of a query, as far as they are read. Its scans read what is set as the point.
    pub(crate) async fn rows_of(&self, statement: ParsedStatement) -> Result<SqlRows> {
        let state = self.context.state();
        let is_setting = is_setting(&statement);
        let plan = state.statement_to_plan(statement).await?;
        // Only the statements of this module write.
        let read_only =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(is_setting);
        read_only.verify_plan(&plan)?;
        let frame = self.context.execute_logical_plan(plan).await?;
        let context = Arc::new(frame.task_ctx());
        let physical = frame.create_physical_plan().await?;
        Ok(SqlRows::of_stream(execute_stream(physical, context)?))
    }

    /// All rows of a query, if they are within the memory of a transaction.
    pub(crate) async fn collected(&self, statement: ParsedStatement) -> Result<Vec<RecordBatch>> {
        let mut rows = self.rows_of(statement).await?;
        let (mut batches, mut bytes) = (Vec::new(), 0);
        while let Some(batch) = rows.next().await? {
            bytes += batch.get_array_memory_size();
            if bytes > self.max_bytes {
                return Err(SqlError::new(
                    SqlState::LimitExceeded,
                    format!("the statement writes more than {} bytes", self.max_bytes),
                )
                .with_hint("write fewer rows at a time, or set a higher bolide.transaction_bytes"));
            }
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// Whether the statement changes a setting of DataFusion.
pub(crate) fn is_setting(statement: &ParsedStatement) -> bool {
    match statement {
        ParsedStatement::Reset(_) => true,
        ParsedStatement::Statement(parsed) => matches!(&**parsed, Statement::Set(_)),
        _ => false,
    }
}

/// The only statement of `text`.
///
/// # Errors
/// For text that is no statement, or several.
pub(crate) fn parse(text: &str) -> Result<ParsedStatement> {
    check_chains(text)?;
    let parser =
        DFParserBuilder::new(text).with_dialect(&PostgreSqlDialect {}).with_recursion_limit(MAX_NESTING);
    let mut statements = parser.build()?.parse_statements()?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(SqlError::syntax("there is no statement")),
        (Some(_), false) => Err(SqlError::syntax("there are several statements; run one at a time")),
    }
}

fn state_of(options: &SessionOptions) -> Result<SessionState> {
    let partitions = match options.partitions {
        Some(partitions) => partitions,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let mut config = SessionConfig::new()
        .with_create_default_catalog_and_schema(false)
        .with_default_catalog_and_schema(CATALOG, PUBLIC)
        .with_information_schema(true)
        .with_target_partitions(partitions);
    let settings = config.options_mut();
    settings.optimizer.hash_join_inlist_pushdown_max_distinct_values = MAX_IN_LIST;
    settings.optimizer.hash_join_inlist_pushdown_max_size = MAX_PROBE_BYTES;
    settings.sql_parser.map_string_types_to_utf8view = false;
    let memory = options.memory_bytes.unwrap_or(MEMORY_BYTES);
    // A sort reserves this for merging its files.
    settings.execution.sort_spill_reservation_bytes =
        settings.execution.sort_spill_reservation_bytes.min(memory / 16);
    let pool = FairSpillPool::new(memory);
    let mut disk = DiskManagerBuilder::default();
    if let Some(dir) = &options.temp_dir {
        disk.set_mode(DiskManagerMode::Directories(vec![dir.clone()]));
    }
    let runtime =
        RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool)).with_disk_manager_builder(disk).build()?;
    Ok(SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(Arc::new(runtime))
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(ExtremeByIndex))
        .with_physical_optimizer_rule(Arc::new(CountByIndex))
        .build())
}
