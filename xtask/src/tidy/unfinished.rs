//! No unfinished code: a macro that marks a gap or an inspection must not stay.

use super::source::{Violation, Workspace};
use super::tokens::tokens;

/// Macros that mark code as unfinished or under inspection.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Every unfinished macro, tests included.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in workspace.sources() {
        for pair in tokens(&source.code).windows(2) {
            if MACROS.contains(&pair[0].text) && pair[1].text == "!" {
                let message = format!("`{}!` must not stay in the code", pair[0].text);
                violations.push(Violation::new(&source.path, pair[0].line, message));
            }
        }
    }
    violations
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
}
