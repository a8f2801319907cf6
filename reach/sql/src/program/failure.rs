//! The failure of the program, and its exit status.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use bolide_sql::SqlError;

/// A failure that ends the program.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A failed statement.
    Statement(SqlError),
    /// Another failure, and what to do.
    Operation(String, Option<String>),
    /// The reader of standard output is gone: nothing remains to be done or reported.
    OutputClosed,
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::OutputClosed => ExitCode::SUCCESS,
            _ => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, hint) = match self {
            Self::Statement(error) => (format!("{error} ({})", error.state().code()), error.hint()),
            Self::Operation(message, hint) => (message.clone(), hint.as_deref()),
            Self::OutputClosed => return Ok(()),
        };
        write!(f, "error: {message}")?;
        match hint {
            Some(hint) => write!(f, "\n  what to do: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Statement(error)
    }
}

impl From<bolide::Error> for Failure {
    fn from(error: bolide::Error) -> Self {
        Self::Statement(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Operation(format!("cannot write the output: {error}"), None),
        }
    }
}

/// Writes a line to standard error.
pub(crate) fn report(line: fmt::Arguments<'_>) {
    // Without standard error there is no place for it.
    let _ = writeln!(io::stderr().lock(), "{line}");
}
