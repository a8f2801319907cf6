//! The command line of `bolide-sql`.

mod arguments;
mod commands;
mod completion;
mod failure;
mod output;
mod runner;
mod shell;

use std::io::{IsTerminal, Read};
use std::process::ExitCode;

use bolide::{Components, Db, ErrorKind, Options};
use bolide_sql::{SessionOptions, SqlSession, is_write, split_statements};
use clap::Parser;

use arguments::Arguments;
use failure::{Failure, report};
use output::OutputFormat;
use runner::Runner;

/// Runs the program.
pub(crate) fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to standard output, errors to standard error. If it is closed, there is no way to report it.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run_with(&arguments) {
        Ok(()) | Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(failure) => {
            report(format_args!("{failure}"));
            failure.exit_code()
        }
    }
}

fn run_with(arguments: &Arguments) -> Result<(), Failure> {
    let script = script_of(arguments)?;
    let db = open(arguments, script.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Operation(format!("cannot start threads: {error}"), None))?;
    let mut options = SessionOptions::default();
    options.memory_bytes = arguments.memory;
    options.temp_dir = arguments.temp.clone();
    let session = SqlSession::new(db.clone(), &options)?;
    let is_terminal = std::io::stdout().is_terminal();
    let format =
        arguments.format.unwrap_or(if is_terminal { OutputFormat::Table } else { OutputFormat::Ndjson });
    let mut runner = Runner::new(session, format, arguments.timing);
    let done = runtime.block_on(async {
        match &script {
            Some(script) => {
                for statement in split_statements(script) {
                    runner.run(statement).await?;
                }
                Ok(())
            }
            None => shell::run(&mut runner).await,
        }
    });
    drop(runner);
    // Scans that were cancelled hold the database until they notice.
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    if !db.is_read_only() {
        db.sync()?;
    }
    done
}

/// The statements of the command line, the file or standard input; `None` for a shell.
fn script_of(arguments: &Arguments) -> Result<Option<String>, Failure> {
    let unreadable = |name: &str, error: std::io::Error| {
        Failure::Operation(
            format!("cannot read {name}: {error}"),
            Some("check that it is a readable text".to_owned()),
        )
    };
    match (&arguments.statement[..], &arguments.file) {
        ([], Some(file)) if file.as_os_str() != "-" => {
            let name = file.display().to_string();
            std::fs::read_to_string(file).map(Some).map_err(|error| unreadable(&name, error))
        }
        ([], None) if std::io::stdin().is_terminal() => Ok(None),
        ([], _) => {
            let mut script = String::new();
            std::io::stdin()
                .read_to_string(&mut script)
                .map_err(|error| unreadable("standard input", error))?;
            Ok(Some(script))
        }
        (statements, _) => Ok(Some(joined(statements))),
    }
}

/// The statements of several arguments as one text. A comment at the end of one ends with its line.
fn joined(statements: &[String]) -> String {
    statements.join("\n;\n")
}

/// Opens the database for writing if a statement writes, and for a shell if no other process has it.
fn open(arguments: &Arguments, script: Option<&str>) -> Result<Db, Failure> {
    let mut options = Options::default().create_if_missing(arguments.create);
    if let Some(bytes) = arguments.engine_memory {
        options = options.memory_bytes(bytes);
    }
    let path = &arguments.db;
    let writes = script.is_none_or(|script| split_statements(script).into_iter().any(is_write));
    if !writes || arguments.read_only {
        return Db::open_read_only(path, options).map_err(|error| missing(arguments, error));
    }
    match Db::open(path, options.clone()) {
        Ok(db) => Ok(db),
        Err(error) if script.is_none() && error.kind() == ErrorKind::Locked => {
            report(format_args!(
                "note: another process has {} open for writing, so this shell reads its state of now",
                path.display()
            ));
            Ok(Db::open_read_only(path, options)?)
        }
        Err(error) => Err(missing(arguments, error)),
    }
}

fn missing(arguments: &Arguments, error: bolide::Error) -> Failure {
    if error.kind() != ErrorKind::NotFound {
        return error.into();
    }
    let has_writer = Db::has_writer(&arguments.db, &Components::system()).unwrap_or(false);
    let hint = match has_writer {
        true => "another process is creating it: try again",
        false => "check the path, or create a database with --create",
    };
    Failure::Operation(format!("there is no database in {}", arguments.db.display()), Some(hint.to_owned()))
}
