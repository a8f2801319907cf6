//! INSERT, UPDATE and DELETE.
//!
//! The rows to write come from a query, which DataFusion plans like any other: a condition that its planner of DML loses would
//! delete every row. The writes go to a transaction of the engine, together with the reads.
//!
//! | file | concept |
//! |---|---|
//! | `mod` | the statements, and the queries of their rows |
//! | `template` | queries from parts of statements |
//! | `insert` | new rows, and those whose key exists |
//! | `change` | changed and deleted rows |
//! | `returning` | the rows of RETURNING |

mod change;
mod insert;
mod returning;
mod template;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    Delete, Expr, FromTable, Ident, Insert, SelectItem, Statement, TableFactor, TableObject, TableWithJoins,
    Update, UpdateTableFromKind,
};

use self::insert::{OnExisting, conflict_column, source_of};
use self::returning::of_table;
use self::template::{Assignments, RowQuery};
use crate::error::{Result, SqlError};
use crate::identifiers::{plain_name, quoted};
use crate::planner::Planner;
use crate::read_point::SharedTransaction;
use crate::sql_rows::{SqlResult, SqlRows};
use crate::table_schema::TableSchema;

/// A statement that writes.
#[derive(Debug, Clone)]
pub(crate) struct Dml {
    pub(crate) table: String,
    work: Work,
    returning: Option<Vec<SelectItem>>,
}

#[derive(Debug, Clone)]
enum Work {
    Insert {
        columns: Vec<String>,
        /// The query of the new rows.
        source: Box<ParsedStatement>,
        on_existing: OnExisting,
        conflict_column: Option<String>,
    },
    Update {
        rows: RowQuery,
        assignments: Assignments,
    },
    Delete {
        rows: RowQuery,
    },
}

/// What a statement has written.
#[derive(Debug)]
pub(crate) struct WrittenRows {
    command: &'static str,
    count: u64,
    returned: Option<(SchemaRef, Vec<RecordBatch>)>,
}

impl WrittenRows {
    pub(crate) fn into_result(self) -> SqlResult {
        match self.returned {
            Some((schema, batches)) => SqlResult::Rows(SqlRows::of_batches(schema, batches)),
            None => SqlResult::written(self.command, self.count),
        }
    }
}

impl Dml {
    /// The statement, if it writes.
    ///
    /// # Errors
    /// For a clause that is not supported.
    pub(crate) fn of(statement: &Statement) -> Result<Option<Self>> {
        match statement {
            Statement::Insert(insert) => Self::insert(insert).map(Some),
            Statement::Update(update) => Self::update(update).map(Some),
            Statement::Delete(delete) => Self::delete(delete).map(Some),
            Statement::Merge(_) | Statement::Truncate(_) => Err(SqlError::unsupported(
                "MERGE and TRUNCATE are not supported: write INSERT … ON CONFLICT, or DELETE",
            )),
            _ => Ok(None),
        }
    }

    /// Inserts the rows of a query into all columns of a table.
    ///
    /// # Errors
    /// None is expected.
    pub(crate) fn insert_of_query(table: &str, query: ParsedStatement) -> Result<Self> {
        let work = Work::Insert {
            columns: Vec::new(),
            source: Box::new(query),
            on_existing: OnExisting::Fail,
            conflict_column: None,
        };
        Ok(Self { table: table.to_owned(), work, returning: None })
    }

    fn insert(insert: &Insert) -> Result<Self> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::unsupported("INSERT into something else than a table is not supported"));
        };
        refuse(insert.overwrite, "INSERT OVERWRITE")?;
        refuse(insert.ignore || insert.or.is_some(), "INSERT OR and INSERT IGNORE")?;
        refuse(insert.partitioned.is_some() || !insert.after_columns.is_empty(), "PARTITION")?;
        refuse(!insert.assignments.is_empty(), "INSERT … SET")?;
        refuse(insert.output.is_some(), "OUTPUT")?;
        refuse(insert.table_alias.is_some(), "an alias of the table of INSERT")?;
        let columns = insert.columns.iter().map(plain_name).collect::<Result<Vec<_>>>()?;
        let table = plain_name(name)?;
        let on_existing = OnExisting::of(insert, &table)?;
        Ok(Self {
            table,
            work: Work::Insert {
                columns,
                source: Box::new(source_of(insert)?),
                on_existing,
                conflict_column: conflict_column(insert),
            },
            returning: insert.returning.clone(),
        })
    }

    fn update(update: &Update) -> Result<Self> {
        refuse(update.or.is_some(), "UPDATE OR")?;
        refuse(update.output.is_some(), "OUTPUT")?;
        refuse(!update.order_by.is_empty() || update.limit.is_some(), "ORDER BY and LIMIT of UPDATE")?;
        let others = match &update.from {
            None => Vec::new(),
            Some(UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables)) => {
                tables.clone()
            }
        };
        let (table, alias) = target(&update.table)?;
        let assignments = Assignments::of(&update.assignments, &alias)?;
        let returning = update.returning.as_deref().map(|items| of_table(items, &alias, &table));
        let rows =
            RowQuery::new(Expr::Identifier(alias), update.table.clone(), others, update.selection.clone());
        Ok(Self { table, work: Work::Update { rows, assignments }, returning })
    }

    fn delete(delete: &Delete) -> Result<Self> {
        refuse(!delete.order_by.is_empty() || delete.limit.is_some(), "ORDER BY and LIMIT of DELETE")?;
        refuse(delete.output.is_some(), "OUTPUT")?;
        refuse(!delete.tables.is_empty(), "DELETE from several tables")?;
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
        let [from] = &tables[..] else {
            return Err(SqlError::unsupported("DELETE from several tables is not supported"));
        };
        let (table, alias) = target(from)?;
        let others = delete.using.clone().unwrap_or_default();
        let returning = delete.returning.as_deref().map(|items| of_table(items, &alias, &table));
        let rows = RowQuery::new(Expr::Identifier(alias), from.clone(), others, delete.selection.clone());
        Ok(Self { table, work: Work::Delete { rows }, returning })
    }

    /// The query of the rows that the statement writes.
    ///
    /// # Errors
    /// For a column that the table does not have.
    pub(crate) fn rows_query(&self, schema: &TableSchema) -> Result<ParsedStatement> {
        match &self.work {
            Work::Insert { source, .. } => Ok((**source).clone()),
            Work::Update { rows, assignments } => rows.statement(schema, assignments.values()),
            Work::Delete { rows } => rows.statement(schema, &[]),
        }
    }

    /// Writes the rows in the transaction.
    ///
    /// # Errors
    /// Those of the query and of the writes. Some rows may be written then: the caller rolls back.
    pub(crate) async fn apply(
        &self,
        planner: &Planner,
        transaction: &SharedTransaction,
    ) -> Result<WrittenRows> {
        let (shared, table) = (planner.shared().clone(), self.table.clone());
        let source = crate::blocking(move || shared.source(&table)).await??;
        let returning = self.returning.as_deref();
        let query = self.rows_query(&source.schema)?;
        match &self.work {
            Work::Insert { columns, on_existing, conflict_column, .. } => {
                let conflict_column = conflict_column.as_deref();
                let new = insert::NewRows { columns, query, on_existing, conflict_column, returning };
                insert::apply(planner, transaction, source, new).await
            }
            Work::Update { assignments, .. } => {
                change::update(planner, transaction, source, query, assignments, returning).await
            }
            Work::Delete { .. } => change::delete(planner, transaction, source, query, returning).await,
        }
    }
}

fn refuse(is_present: bool, clause: &str) -> Result<()> {
    if is_present { Err(SqlError::unsupported(format!("{clause} is not supported"))) } else { Ok(()) }
}

/// The name of the table that is changed, and the name that its columns are qualified with.
fn target(table: &TableWithJoins) -> Result<(String, Ident)> {
    let TableFactor::Table { name, alias, .. } = &table.relation else {
        return Err(SqlError::unsupported("only a table can be changed"));
    };
    refuse(!table.joins.is_empty(), "a join in the changed table: write FROM or USING after it")?;
    let plain = plain_name(name)?;
    let qualifier = match alias {
        Some(alias) => alias.name.clone(),
        None => quoted(&plain),
    };
    Ok((plain, qualifier))
}
