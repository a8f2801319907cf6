//! The `bolide` program: loads records, queries the newest ones by any attribute, maintains databases.

// They panic if the reader of the output is gone: `output` writes.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod failure;
mod field_edit;
mod input;
mod output;
mod progress;
mod row;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to standard output with status 0, errors to standard error with status 2. If the output is
            // closed, there is no way to report it.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match verbs::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.has_message() {
                output::report!("{failure}");
            }
            failure.exit_code()
        }
    }
}
