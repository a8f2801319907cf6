//! `sql`: runs the program `bolide-sql`, which has SQL and its libraries, as `git` and `cargo` run their subcommands.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;

use crate::arguments::{Arguments, Sql};
use crate::failure::Failure;

/// The name of the program.
const PROGRAM: &str = "bolide-sql";

/// Runs `bolide-sql` in place of this program, with the same arguments.
///
/// # Errors
/// If there is no such program, and if it cannot be started.
pub(super) fn run(sql: &Sql, memory_bytes: Option<usize>) -> Result<(), Failure> {
    let own_folder = std::env::current_exe().ok().and_then(|own| own.parent().map(Path::to_owned));
    let Some(program) = find(own_folder, std::env::var_os("PATH")) else {
        return without_program(sql);
    };
    let mut command = Command::new(&program);
    if let Some(bytes) = memory_bytes {
        command.arg("--engine-memory").arg(bytes.to_string());
    }
    command.args(&sql.arguments);
    start(command, &program)
}

/// Prints the help of the verb if the arguments are an option of help.
fn without_program(sql: &Sql) -> Result<(), Failure> {
    let is_help = sql.arguments.first().is_some_and(|first| first == "--help" || first == "-h");
    if is_help && let Some(verb) = Arguments::command().find_subcommand_mut("sql") {
        let cannot_print =
            |error| Failure::operation(format!("cannot print the help: {error}"), "check the output");
        return verb.print_help().map_err(cannot_print);
    }
    Err(Failure::operation(
        format!("the program `{PROGRAM}` is neither beside `bolide` nor in PATH"),
        "install it from the source of Bolide with `cargo install --path reach/sql`, or build it with `cargo build \
         --release --manifest-path reach/Cargo.toml` and copy reach/target/release/bolide-sql beside `bolide`",
    ))
}

/// The program in the folder, or in the first folder of the path that has it.
fn find(own_folder: Option<PathBuf>, path: Option<OsString>) -> Option<PathBuf> {
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    let folders = path.iter().flat_map(std::env::split_paths).collect::<Vec<_>>();
    own_folder.into_iter().chain(folders).map(|folder| folder.join(&name)).find(|program| program.is_file())
}

fn cannot_start(program: &Path, error: &std::io::Error) -> Failure {
    Failure::operation(
        format!("cannot start {}: {error}", program.display()),
        "check that it is an executable program",
    )
}

#[cfg(unix)]
fn start(mut command: Command, program: &Path) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;

    // Returns only if it fails: else the other program has taken the place of this one.
    Err(cannot_start(program, &command.exec()))
}

#[cfg(not(unix))]
fn start(mut command: Command, program: &Path) -> Result<(), Failure> {
    let status = command.status().map_err(|error| cannot_start(program, &error))?;
    // It has reported its failure.
    if status.success() { Ok(()) } else { Err(Failure::Reported) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_beside_this_one_comes_first() {
        let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([other.path()]).unwrap();
        let find = || find(Some(own.path().to_owned()), Some(path.clone()));
        assert_eq!(find(), None);
        let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
        std::fs::write(other.path().join(&name), "").unwrap();
        assert_eq!(find(), Some(other.path().join(&name)));
        std::fs::write(own.path().join(&name), "").unwrap();
        assert_eq!(find(), Some(own.path().join(&name)));
        // A folder is no program.
        std::fs::remove_file(own.path().join(&name)).unwrap();
        std::fs::create_dir(own.path().join(&name)).unwrap();
        assert_eq!(find(), Some(other.path().join(&name)));
    }
}
