//! No unfinished code, and no call of the operating system outside the one crate that may.
//!
//! The clock, random numbers, threads and files go through `storage`, so that a simulated run sees
//! all of them. Programs (`cli`, `bench`, `testkit`, `xtask`) and tests are free.

use super::source::{Source, Violation, Workspace};
use super::tokens::{Token, tokens};

/// Macros that mark code as unfinished or under inspection.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// Crates whose every access to the outside goes through `storage`.
const INSIDE: [&str; 5] = ["base", "table", "lsm", "index", "bolide"];
/// Paths into the standard library that touch the outside.
const OUTSIDE: [&[&str]; 7] = [
    &["std", "fs"],
    &["std", "net"],
    &["thread", "spawn"],
    &["thread", "sleep"],
    &["thread", "Builder"],
    &["Instant", "now"],
    &["SystemTime", "now"],
];

/// Every unfinished macro, and every direct use of the operating system in the inner crates.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in workspace.sources() {
        for pair in tokens(&source.code).windows(2) {
            if MACROS.contains(&pair[0].text) && pair[1].text == "!" {
                let message = format!("`{}!` must not stay in the code", pair[0].text);
                violations.push(Violation::new(&source.path, pair[0].line, message));
            }
        }
        if source.crate_folder().is_some_and(|folder| INSIDE.contains(&folder)) {
            violations.extend(outside_calls(source));
        }
    }
    violations
}

fn outside_calls(source: &Source) -> Vec<Violation> {
    let tokens = tokens(&source.product_code);
    let mut violations = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        for path in OUTSIDE {
            if starts_with_path(&tokens[at..], path) {
                let message = format!("`{}` belongs behind the traits of the storage crate", path.join("::"));
                violations.push(Violation::new(&source.path, token.line, message));
            }
        }
    }
    violations
}

fn starts_with_path(tokens: &[Token<'_>], path: &[&str]) -> bool {
    let mut expected = path.iter().flat_map(|part| ["::", part]).skip(1);
    let mut found = tokens.iter();
    expected.all(|part| found.next().is_some_and(|token| token.text == part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_macros_are_seen_in_code_only() {
        let text = "// todo!()\nfn a() { todo!() }\nfn b() { dbg!(1); unimplemented!() }\nfn todo() {}\n";
        let violations = check(&Workspace::of(&[("crates/cli/src/main.rs", text)]));
        assert_eq!(violations.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 3, 3]);
    }

    #[test]
    fn the_clock_belongs_to_storage() {
        let text = "fn a() { let t = std::time::Instant::now(); }\nuse std::fs::File;\n\
                    #[cfg(test)]\nmod tests { use std::fs; }\n";
        let inside = check(&Workspace::of(&[("crates/lsm/src/a.rs", text)]));
        assert_eq!(inside.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 2]);
        for free in ["crates/storage/src/a.rs", "crates/cli/src/a.rs", "crates/lsm/tests/a.rs"] {
            assert_eq!(check(&Workspace::of(&[(free, text)])), Vec::new(), "{free}");
        }
    }
}
