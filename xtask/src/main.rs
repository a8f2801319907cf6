//! Checks that keep the layers, the names and the file sizes in order.
//!
//! `cargo xtask tidy` reads every Rust source, crate manifest, document and script of the workspace and fails
//! when one of the house rules is broken. It takes well under a second and needs no network.

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask tidy [ROOT]

  tidy   check layers, module cycles, file lengths, module names, rejected words,
         type names used twice, methods of a type and circles of their calls,
         unfinished code and byte-layout diagrams
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("tidy"), root, None) => run_tidy(root.map_or_else(workspace_root, PathBuf::from)),
        (Some("--help" | "-h" | "help"), _, _) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy(root: PathBuf) -> ExitCode {
    let workspace = match tidy::Workspace::load(&root) {
        Ok(workspace) => workspace,
        Err(error) => {
            eprintln!("tidy: {}: {error}", root.display());
            return ExitCode::from(2);
        }
    };
    let violations = tidy::run(&workspace);
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {} files in order", workspace.file_count());
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {} violations", violations.len());
        ExitCode::FAILURE
    }
}

/// The folder above this crate. Cargo sets the variable when it runs the program; the value at compile time may name another
/// clone that shares the target folder.
fn workspace_root() -> PathBuf {
    let crate_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    crate_dir.parent().map_or_else(|| crate_dir.clone(), PathBuf::from)
}
