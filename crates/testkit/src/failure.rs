//! Failures of steps of a history.

use std::fmt;

/// The failure of a step.
#[derive(Debug)]
pub enum StepFailure {
    /// The database reported an error.
    Refused(bolide::Error),
    /// The database returned an answer that differs from the model.
    Wrong(String),
}

impl From<bolide::Error> for StepFailure {
    fn from(error: bolide::Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "error: {error:?}"),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}
