//! A module is named after its concept: drawers for odds and ends are refused.

use super::source::{Violation, Workspace};
use super::tokens::tokens;

/// Names without information about the content.
const FORBIDDEN: [&str; 8] = ["utils", "util", "common", "helpers", "helper", "misc", "stuff", "shared"];

/// Every module, by file, folder or inline declaration, with a forbidden name.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in workspace.sources() {
        let parts = source.path.trim_end_matches(".rs").split('/');
        for part in parts.filter(|part| FORBIDDEN.contains(part)) {
            violations.push(Violation::new(&source.path, 1, refusal(part)));
        }
        for pair in tokens(&source.code).windows(2) {
            if pair[0].text == "mod" && FORBIDDEN.contains(&pair[1].text) {
                violations.push(Violation::new(&source.path, pair[1].line, refusal(pair[1].text)));
            }
        }
    }
    violations
}

fn refusal(name: &str) -> String {
    format!("a module named `{name}` has no information: name it after its concept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_inline_modules_are_seen() {
        let workspace = Workspace::of(&[
            ("crates/lsm/src/utils.rs", ""),
            ("crates/lsm/src/misc/tree.rs", ""),
            ("crates/lsm/src/lib.rs", "mod a;\nmod helpers { }\n// mod common;\n"),
            ("crates/lsm/src/a.rs", "fn utils() {}\n"),
        ]);
        let violations = check(&workspace);
        assert_eq!(violations.len(), 3, "{violations:?}");
        assert!(violations.iter().any(|v| v.file.ends_with("lib.rs") && v.line == 2));
    }
}
