//! The program `bolide-sql`: statements on a database, from the command line, a file, or a shell.

// They panic if the reader of the output is gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod program;

use std::process::ExitCode;

fn main() -> ExitCode {
    program::run()
}
