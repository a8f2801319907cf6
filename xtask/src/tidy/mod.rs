//! The house rules, one file each, over one [`Workspace`] that was read once.

mod cycles;
mod diagrams;
mod homonyms;
mod imports;
mod layers;
mod method_circles;
mod methods;
mod names;
mod size;
mod source;
mod tokens;
mod unfinished;
mod words;

pub(crate) use source::Workspace;

use source::Violation;

/// Every rule over `workspace`; violations are sorted by file and line.
pub(crate) fn run(workspace: &Workspace) -> Vec<Violation> {
    let rules = [
        size::check,
        names::check,
        words::check,
        homonyms::check,
        methods::check,
        method_circles::check,
        unfinished::check,
        layers::check,
        cycles::check,
        diagrams::check,
    ];
    let mut violations: Vec<Violation> = rules.iter().flat_map(|rule| rule(workspace)).collect();
    violations.sort();
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_has_the_crates_the_layers_name() {
        let workspace = Workspace::load(&crate::workspace_root()).unwrap();
        for layer in layers::LAYERS {
            let manifest = format!("crates/{}/Cargo.toml", layer.folder);
            assert!(workspace.manifest(&manifest).is_some(), "{manifest} is missing");
        }
    }

    #[test]
    fn an_orderly_workspace_has_no_violation() {
        let workspace = Workspace::of(&[
            ("crates/base/src/lib.rs", "//! Base.\npub mod error;\npub use error::Error;\n"),
            ("crates/base/src/error.rs", "//! Errors.\npub struct Error;\n"),
            ("crates/lsm/src/lib.rs", "//! Trees.\nuse bolide_base::Error;\n"),
        ]);
        assert_eq!(run(&workspace), Vec::new());
    }
}
