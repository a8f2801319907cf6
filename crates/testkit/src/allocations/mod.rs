//! Allocation failures.
//!
//! Rust aborts the process if an infallible allocation fails. So two rules must hold:
//!
//! 1. An allocation whose size comes from a file or a caller is bounded by the available data, or is fallible. No damaged
//!    file, no corrupt record with a valid checksum, and no option causes one allocation of more than [`LIMIT_BYTES`].
//!    See [`sizes`].
//! 2. A process that aborts at its n-th allocation leaves a database that opens and has every acknowledged write. A call
//!    that returns an error takes effect in full or not at all. See [`aborts`].
//!
//! Both parts run in child processes of the calling program. The program must call [`run_as_child`] first, and its global
//! allocator must call [`plan::admits`].

pub mod aborts;
pub mod plan;
pub mod sizes;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::seeds::{Counts, Outcome};

/// The maximum size of one allocation in bytes: the size of the largest value that can be stored.
pub const LIMIT_BYTES: usize = 64 << 20;

/// The environment variable that holds the task of a child process: `aborts SEED STEPS AT PLANTED DIRECTORY` or
/// `sizes SEED STRIDE PLANTED DIRECTORY`, where `PLANTED` is `true` or `false`.
const CHILD_TASK_VARIABLE: &str = "BOLIDE_ALLOCATION_CHILD";

/// Options of the proof.
#[derive(Debug, Clone, Copy)]
pub struct AllocationOptions {
    /// Number of steps of a history.
    pub steps: usize,
    /// Number of failing allocations per history, each in its own run, spread over all allocations.
    pub failures: u64,
    /// One of this many positions of a file is damaged.
    pub stride: usize,
    /// A planted bug that the proof must find.
    pub planted: Option<PlantedAllocation>,
}

impl Default for AllocationOptions {
    fn default() -> Self {
        Self { steps: 60, failures: 60, stride: 7, planted: None }
    }
}

/// A planted bug that the proof must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedAllocation {
    /// For each damaged file the child allocates the damaged length, up to 1 GiB. This proves that such a request is
    /// detected, not that each decoder is reached.
    TrustsLength,
    /// A write is acknowledged before it is in the log.
    AcknowledgesEarly,
}

/// The command line of a child process.
#[derive(Debug, Clone)]
pub struct Child {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Child {
    /// Creates the command line of the running program with these arguments.
    ///
    /// # Errors
    /// Fails if the path of the program is unknown.
    pub fn new(arguments: &[&str]) -> Outcome<Self> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(Self { program, arguments: arguments.iter().map(|&argument| argument.to_owned()).collect() })
    }

    fn run(&self, task: &str) -> Outcome<(ExitStatus, String)> {
        let output = Command::new(&self.program)
            .args(&self.arguments)
            .env(CHILD_TASK_VARIABLE, task)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((output.status, stderr))
    }
}

/// Runs the task of a child process. Returns whether this process is a child.
pub fn run_as_child() -> bool {
    let Ok(task) = std::env::var(CHILD_TASK_VARIABLE) else { return false };
    let fields: Vec<&str> = task.splitn(6, ' ').collect();
    let outcome = match fields[..] {
        ["aborts", seed, steps, at, planted, dir] => {
            let numbers = (seed.parse(), steps.parse(), at.parse());
            match numbers {
                (Ok(seed), Ok(steps), Ok(at)) => {
                    aborts::child(seed, steps, at, planted == "true", Path::new(dir))
                }
                _ => Err("wrong numbers".to_owned()),
            }
        }
        ["sizes", seed, stride, planted, dir] => match (seed.parse(), stride.parse()) {
            (Ok(seed), Ok(stride)) => sizes::child(seed, stride, planted == "true", Path::new(dir)),
            _ => Err("wrong numbers".to_owned()),
        },
        _ => Err(format!("no such task: {task}")),
    };
    if let Err(what) = outcome {
        eprintln!("{what}");
        std::process::exit(1);
    }
    true
}

/// Runs both parts of the proof with `seed`.
pub fn check(seed: u64, options: AllocationOptions, child: &Child) -> Outcome<Counts> {
    let mut counts = aborts::check(seed, options, child)?;
    counts.merge(&sizes::check(seed, options, child)?);
    Ok(counts)
}

/// A temporary directory for the databases of a run, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(seed: u64, name: &str) -> Outcome<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("bolide-allocations-{process}-{number}-{name}-{seed}"));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
