//! The shell: lines with history and completion, statements over several lines.

use std::path::PathBuf;

use bolide_sql::{is_complete, split_statements};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Config, Editor};

use super::commands;
use super::completion::{WordHelper, quoted};
use super::failure::{Failure, report};
use super::runner::Runner;

/// Statements that the history retains.
const MAX_HISTORY: usize = 2_000;

/// Reads and runs statements until the end of the input.
pub(crate) async fn run(runner: &mut Runner) -> Result<(), Failure> {
    let failed =
        |error: ReadlineError| Failure::Operation(format!("cannot read the terminal: {error}"), None);
    let config =
        Config::builder().max_history_size(MAX_HISTORY).map_err(failed)?.auto_add_history(false).build();
    let mut editor: Editor<WordHelper, DefaultHistory> = Editor::with_config(config).map_err(failed)?;
    let history = history_file();
    if let Some(history) = &history {
        // Without a history there is nothing to load.
        let _ = editor.load_history(history);
    }
    report(format_args!("statements end with a semicolon; \\? for help, \\q to end"));
    let mut text = String::new();
    loop {
        if text.is_empty() {
            editor.set_helper(Some(WordHelper { names: names(runner).await }));
        }
        let prompt = match (text.is_empty(), runner.session.is_in_transaction()) {
            (true, false) => "bolide> ",
            (true, true) => "bolide*> ",
            (false, _) => "     -> ",
        };
        match editor.readline(prompt) {
            Ok(line) if text.is_empty() && line.trim_start().starts_with('\\') => {
                let _ = editor.add_history_entry(line.trim());
                match commands::run(runner, line.trim()).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
                    Err(failure) => report(format_args!("{failure}")),
                }
            }
            Ok(line) => {
                text += &line;
                text.push('\n');
                if is_complete(&text) {
                    let whole = std::mem::take(&mut text);
                    let _ = editor.add_history_entry(whole.trim());
                    run_all(runner, &whole).await?;
                }
            }
            Err(ReadlineError::Interrupted) => text.clear(),
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if let Some(history) = &history
        && let Err(error) = editor.save_history(history)
    {
        report(format_args!("note: the history is not saved in {}: {error}", history.display()));
    }
    Ok(())
}

/// Runs the statements of `text` up to the first that fails, and reports the failure.
async fn run_all(runner: &mut Runner, text: &str) -> Result<(), Failure> {
    for statement in split_statements(text) {
        match runner.run(statement).await {
            Ok(()) => {}
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            Err(failure) => {
                report(format_args!("{failure}"));
                break;
            }
        }
    }
    Ok(())
}

/// The names of all tables and their columns.
async fn names(runner: &Runner) -> Vec<String> {
    let mut names = Vec::new();
    for table in runner.session.tables() {
        names.push(quoted(&table));
        if let Ok(columns) = runner.session.columns(&table).await {
            names.extend(columns.iter().map(|(name, _)| quoted(name)));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// The file of the history: `BOLIDE_SQL_HISTORY`, or one in the home directory.
fn history_file() -> Option<PathBuf> {
    match std::env::var_os("BOLIDE_SQL_HISTORY") {
        Some(file) if file.is_empty() => None,
        Some(file) => Some(file.into()),
        None => std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".bolide_sql_history")),
    }
}
