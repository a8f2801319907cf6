//! The failure of a verb, and the exit status of the program.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// A failure that ends a verb early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong: exit status 2.
    Usage(String),
    /// An error of the store, a file or the data: exit status 1.
    Operation {
        /// What went wrong, and where.
        message: String,
        /// Advice for the user.
        advice: String,
        /// The kind of the store's error, if it is one.
        kind: Option<bolide::ErrorKind>,
    },
    /// The failure was reported already; only the exit status 1 remains.
    Reported,
    /// The reader of standard output is gone: nothing remains to be done or reported.
    OutputClosed,
}

impl Failure {
    /// A wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// A failed operation: what went wrong and where, and advice.
    pub(crate) fn operation(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Operation { message: message.into(), advice: advice.into(), kind: None }
    }

    /// A file that cannot be read, or not to its end.
    pub(crate) fn reading(name: &str, error: &io::Error) -> Self {
        Self::operation(format!("cannot read {name}: {error}"), "check that the file is whole and readable")
    }

    /// As [`reading`](Self::reading), of rows, after this line; or contents that are not of the format of the rows.
    pub(crate) fn reading_rows(name: &str, after_line: u64, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::InvalidData {
            let advice = "fix the file, or its options --format, --separator and --type";
            return Self::operation(format!("{name}: {error}"), advice);
        }
        match after_line {
            0 => Self::reading(name, error),
            line => Self::reading(&format!("{name}, after line {line}"), error),
        }
    }

    /// The exit status of the program.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::OutputClosed => ExitCode::SUCCESS,
            Self::Operation { .. } | Self::Reported => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
        }
    }

    /// Whether there is a message for standard error.
    pub(crate) fn has_message(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Operation { .. })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => write!(f, "error: {message}"),
            Self::Operation { message, advice, .. } => write!(f, "error: {message}\n  what to do: {advice}"),
            Self::Reported | Self::OutputClosed => Ok(()),
        }
    }
}

impl From<bolide::Error> for Failure {
    fn from(error: bolide::Error) -> Self {
        let (message, advice) = (error.message().into(), error.advice().into());
        Self::Operation { message, advice, kind: Some(error.kind()) }
    }
}

/// Errors of standard output; errors of files contain their name before this conversion.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::operation(format!("cannot write the answer: {error}"), "check where standard output goes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_by_the_memory_budget_is_no_full_disk() {
        let refused = Failure::from(bolide::Error::memory_refused("c.group does not fit", 4_096)).to_string();
        assert!(refused.contains("what to do: raise the memory budget"), "{refused}");
        assert!(refused.contains("--memory") && !refused.contains("disk"), "{refused}");
        let full = Failure::from(bolide::Error::new(bolide::ErrorKind::NoSpace, "write 000001.wal"));
        assert!(full.to_string().contains("free space on the disk"), "{full}");
    }
}
