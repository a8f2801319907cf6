//! Why a step of a history did not go well.

use std::fmt;

/// Why a step did not go well.
#[derive(Debug)]
pub enum StepFailure {
    /// The database reported an error.
    Refused(bolide::Error),
    /// The database gave an answer that the model does not give.
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
