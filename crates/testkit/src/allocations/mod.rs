//! Allocations that fail.
//!
//! Rust aborts the process where an allocation fails that has no error to return. So two rules must hold:
//!
//! 1. Memory for a size that comes from a file or from a caller is bounded by what is there, or taken in a way that can
//!    fail: no damaged file, no record with a good checksum and wrong contents, and no option has one allocation of more
//!    than [`LIMIT_BYTES`] made. See [`sizes`].
//! 2. A process that aborts because the n-th allocation failed, anywhere, leaves a database that opens and has every
//!    acknowledged write. A call that returns an error instead did its work in full or not at all. See [`aborts`].
//!
//! Both run in child processes of the program that calls: [`run_as_child`] is to be the first thing that it does, and its
//! global allocator calls [`plan::admits`].

pub mod aborts;
pub mod plan;
pub mod sizes;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::seeds::{Counts, Outcome};

/// The most bytes that one allocation may have. The largest value that is stored has as many.
pub const LIMIT_BYTES: usize = 64 << 20;

/// The variable that makes a process a child, with its task: `aborts SEED STEPS AT PLANTED DIRECTORY` or
/// `sizes SEED STRIDE PLANTED DIRECTORY`, where `PLANTED` is `true` or `false`.
const CHILD_TASK_VARIABLE: &str = "BOLIDE_ALLOCATION_CHILD";

/// How the proof runs.
#[derive(Debug, Clone, Copy)]
pub struct AllocationOptions {
    /// Steps of a history.
    pub steps: usize,
    /// How many allocations of a history fail, each in a run of its own. They are spread over all.
    pub failures: u64,
    /// Out of this many positions of a file, one is damaged.
    pub stride: usize,
    /// A mistake that the proof must find.
    pub planted: Option<PlantedAllocation>,
}

impl Default for AllocationOptions {
    fn default() -> Self {
        Self { steps: 60, failures: 60, stride: 7, planted: None }
    }
}

/// A mistake that the proof has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedAllocation {
    /// For each damaged file the child itself requests the memory that the damaged length names, up to 1 GiB. It shows that such
    /// a request is noticed, not that each decoder is reached.
    TrustsLength,
    /// A write is acknowledged before it is in the log.
    AcknowledgesEarly,
}

/// How a child process of the calling program is started.
#[derive(Debug, Clone)]
pub struct Child {
    program: PathBuf,
    arguments: Vec<String>,
}

impl Child {
    /// The running program with these arguments.
    ///
    /// # Errors
    /// In words, if the path of the program cannot be found.
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
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Ok((output.status, words))
    }
}

/// Does the work of a child if the process is one. Returns whether it is.
pub fn run_as_child() -> bool {
    let Ok(task) = std::env::var(CHILD_TASK_VARIABLE) else { return false };
    let words: Vec<&str> = task.splitn(6, ' ').collect();
    let outcome = match words[..] {
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

/// A directory for the databases of a run, removed when it goes.
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
