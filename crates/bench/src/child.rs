//! Runs one engine in a child process.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::measure::ControlGroup;
use crate::report::RowFigures;
use crate::workloads::index::{self, IndexPlan};
use crate::workloads::kinds::{self, KindsPlan};
use crate::workloads::next::{self, NextPlan};
use crate::workloads::next_windows;
use crate::workloads::store::{self, StorePlan};
use crate::workloads::transactions::{self, TransactionsPlan};

/// The workload of a child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Plan {
    /// The plain-store workload.
    Store(StorePlan),
    /// The index workload.
    Index(IndexPlan),
    /// The kinds of index.
    Kinds(KindsPlan),
    /// Index blocks inside sstables.
    Next(NextPlan),
    /// Index blocks of points inside sstables, queried by windows.
    NextWindows(NextPlan),
    /// Transactions.
    Transactions(TransactionsPlan),
}

/// Starts a child that runs `plan` in a fresh directory below `parent`, and reads its figures. The
/// directory is removed when the child has ended.
pub fn spawn(plan: &Plan, parent: Option<&Path>) -> Result<Vec<RowFigures>> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("bolide-bench-");
    let directory = match parent {
        Some(parent) => builder.tempdir_in(parent)?,
        None => builder.tempdir()?,
    };
    let child = Command::new(std::env::current_exe()?)
        .arg("child")
        .arg(serde_json::to_string(plan)?)
        .arg(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let pid = child.id();
    let output = child.wait_with_output()?;
    // A child that was killed leaves its group behind.
    ControlGroup::remove_of(pid);
    if !output.status.success() {
        let cold = plan.cold_mib().map(|mib| format!(" in {mib} MiB")).unwrap_or_default();
        return Err(format!("the run of {}{cold} ended with {}", plan.engine(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs a plan in the child process and prints the figures as JSON.
pub fn serve(plan: &str, directory: &Path) -> Result<()> {
    let figures = match serde_json::from_str(plan)? {
        Plan::Store(plan) => store::run(&plan, directory)?,
        Plan::Index(plan) => index::run(&plan, directory)?,
        Plan::Kinds(plan) => kinds::run(&plan, directory)?,
        Plan::Next(plan) => next::run(&plan, directory)?,
        Plan::NextWindows(plan) => next_windows::run(&plan, directory)?,
        Plan::Transactions(plan) => transactions::run(&plan, directory)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

impl Plan {
    /// The limit of the memory after the load, in MiB, if there is one.
    pub fn cold_mib(&self) -> Option<u64> {
        match self {
            Plan::Store(plan) => plan.cold_mib,
            Plan::Index(plan) => plan.cold_mib,
            _ => None,
        }
    }

    fn engine(&self) -> &str {
        match self {
            Plan::Store(plan) => &plan.engine,
            Plan::Index(plan) => &plan.engine,
            Plan::Kinds(plan) => &plan.engine,
            Plan::Next(plan) | Plan::NextWindows(plan) => &plan.engine,
            Plan::Transactions(plan) => &plan.engine,
        }
    }
}
