//! Runs the program and checks its output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A temporary folder for one test, with a database that may be created in it.
pub(crate) struct Place {
    folder: TempDir,
}

/// The result of one run of the program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The path of the database, or of another file in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file in the temporary folder");
        path
    }

    /// Runs `bolide` in the folder; blanks separate the arguments of `line`.
    pub(crate) fn run(&self, line: &str) -> Run {
        self.run_with(line, &[], "")
    }

    /// As [`Place::run`], with further arguments that contain blanks, and with standard input.
    pub(crate) fn run_with(&self, line: &str, further: &[&str], input: &str) -> Run {
        let mut child = self
            .command()
            .args(line.split_whitespace())
            .args(further)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        // The program may stop reading early.
        let feeder = std::thread::spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = child.wait_with_output().expect("the program ends");
        feeder.join().expect("the feeder ends");
        Run {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    /// The program, to be started by the caller.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bolide"));
        command.current_dir(self.folder.path());
        command
    }

    /// Runs a command that must succeed.
    pub(crate) fn ok(&self, line: &str) -> Run {
        self.run(line).expect_status(0, line)
    }

    /// Imports NDJSON text into the collection `c` of `db` with the key `id`.
    pub(crate) fn import(&self, text: &str, options: &str) -> Run {
        let line = format!("import db c - --key id {options}");
        self.run_with(&line, &[], text).expect_status(0, &line)
    }

    /// The keys that `find` on `db c` returns, as JSON texts.
    pub(crate) fn found(&self, options: &str) -> Vec<String> {
        self.ok(&format!("find db c {options} --format ndjson")).keys()
    }

    /// The first file of the database whose name contains this.
    pub(crate) fn database_file(&self, part: &str) -> PathBuf {
        let found = self.database_files(part);
        found.first().unwrap_or_else(|| panic!("no {part} in the database")).clone()
    }

    /// The files of the database whose names contain this, by name.
    pub(crate) fn database_files(&self, part: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("db")).expect("the database");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| name_of(path).contains(part));
        paths.sort();
        paths
    }
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Run {
    #[track_caller]
    pub(crate) fn expect_status(self, status: i32, line: &str) -> Self {
        assert_eq!(self.status, status, "bolide {line}\n{}\n{}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "bolide {line}\n{}", self.stderr);
        self
    }

    /// Standard output as JSON, one value a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The keys of the lines of standard output.
    #[track_caller]
    pub(crate) fn keys(&self) -> Vec<String> {
        self.json().iter().map(|line| line["key"].to_string()).collect()
    }
}
