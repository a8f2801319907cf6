//! A file holds one concept: at most [`MAX_LINES`] lines of Rust.

use super::source::{Violation, Workspace};

/// Longest Rust file, in lines.
pub(crate) const MAX_LINES: usize = 600;

/// Every file over [`MAX_LINES`].
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let lengths = workspace.sources().iter().map(|source| (source, source.text.lines().count()));
    lengths
        .filter(|&(_, lines)| lines > MAX_LINES)
        .map(|(source, lines)| {
            let message = format!("{lines} lines; the limit is {MAX_LINES}: split it by concept");
            Violation::new(&source.path, MAX_LINES + 1, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_reach_the_limit_and_not_pass_it() {
        let at = "x\n".repeat(MAX_LINES);
        let over = "x\n".repeat(MAX_LINES + 1);
        let workspace = Workspace::of(&[("crates/base/src/at.rs", &at), ("crates/base/src/over.rs", &over)]);
        let violations = check(&workspace);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].file, "crates/base/src/over.rs");
    }
}
