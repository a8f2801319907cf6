//! Runs statements and writes their results.

use std::io::{self, Write};
use std::time::Instant;

use bolide_sql::{SqlError, SqlResult, SqlSession, SqlState};

use super::failure::{Failure, report};
use super::output::{OutputFormat, RowWriter};

/// A session and the form of its output.
pub(crate) struct Runner {
    pub(crate) session: SqlSession,
    pub(crate) format: OutputFormat,
    pub(crate) is_timed: bool,
}

impl Runner {
    pub(crate) fn new(session: SqlSession, format: OutputFormat, is_timed: bool) -> Self {
        Self { session, format, is_timed }
    }

    /// Runs one statement, until its end or an interrupt, and writes its rows.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        let done = tokio::select! {
            done = self.run_to_end(statement) => done,
            _ = tokio::signal::ctrl_c() => {
                Err(SqlError::new(SqlState::Cancelled, "the statement was cancelled").into())
            }
        };
        if self.is_timed && done.is_ok() {
            report(format_args!("time: {:.3} ms", begun.elapsed().as_secs_f64() * 1e3));
        }
        done
    }

    async fn run_to_end(&mut self, statement: &str) -> Result<(), Failure> {
        match self.session.execute(statement).await? {
            SqlResult::Rows(mut rows) => {
                let mut writer = RowWriter::new(self.format, rows.schema().clone())?;
                while let Some(batch) = rows.next().await? {
                    writer.write(batch)?;
                }
                writer.finish()?;
            }
            SqlResult::Done(tag) => match self.format {
                // The output has rows alone.
                OutputFormat::Table => writeln!(io::stdout().lock(), "{tag}")?,
                _ => report(format_args!("{tag}")),
            },
            other => report(format_args!("{other:?}")),
        }
        Ok(())
    }
}
