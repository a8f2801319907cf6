//! The scan of a table: which records are read in which order, and how.
//!
//! | file | concept |
//! |---|---|
//! | `source` | the collection, its columns and the state that is read |
//! | `access` | the access path: keys, ranges of keys, or a query of the engine |
//! | `exec` | the node of the physical plan |
//! | `run` | the loop that decodes, checks and returns rows |
//! | `probe` | the keys that a join passes to its probe side |
//! | `count` | counting without records |

mod access;
mod count;
mod exec;
mod probe;
mod run;
mod source;

pub(crate) use count::CountExec;
pub(crate) use exec::{BolideScan, ScanColumns};
pub(crate) use source::{ScanPredicates, ScanSource};
