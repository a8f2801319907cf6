//! The tasks of a running job, which idle threads share.

use std::fmt;

use crate::options::StoreOptions;
use crate::store::files::StoreFiles;
use crate::store::tree::Tree;

/// The parts of a store that shared tasks use. Each thread that takes tasks has its own.
#[derive(Clone, Copy)]
pub(in crate::store) struct TaskEnvironment<'s> {
    /// New files.
    pub(in crate::store) files: &'s StoreFiles,
    pub(in crate::store) options: &'s StoreOptions,
    /// True if work on a tree should end early.
    pub(in crate::store) is_abandoned: &'s dyn Fn(&Tree) -> bool,
}

/// The tasks of a running job, which idle threads share.
pub(in crate::store) trait SharedTasks: Send + Sync + fmt::Debug {
    /// True while tasks wait.
    fn has_tasks(&self) -> bool;

    /// Runs tasks until none waits. The thread that runs the job receives their errors.
    fn run_tasks(&self, env: TaskEnvironment<'_>);
}
