//! Layers: a crate names only crates below it, and the crates below `index` do not know its words.
//!
//! The compiler refuses a dependency circle; this rule refuses the edge that would start one, also
//! in manifests, and refuses the words of a higher layer in the code of a lower one.

use super::source::{Violation, Workspace};
use super::tokens::tokens;

/// One crate of the stack.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Its folder under `crates/`.
    pub(crate) folder: &'static str,
    /// Its name in Rust code.
    name: &'static str,
    /// Its height; crates of equal height do not name each other.
    height: u8,
}

const fn layer(folder: &'static str, name: &'static str, height: u8) -> Layer {
    Layer { folder, name, height }
}

/// The stack, lowest first.
pub(crate) const LAYERS: [Layer; 10] = [
    layer("base", "bolide_base", 0),
    layer("memory", "bolide_memory", 1),
    layer("storage", "bolide_storage", 2),
    layer("table", "bolide_table", 3),
    layer("lsm", "bolide_lsm", 4),
    layer("index", "bolide_index", 5),
    layer("bolide", "bolide", 6),
    layer("testkit", "bolide_testkit", 7),
    layer("bench", "bolide_bench", 8),
    layer("cli", "bolide_cli", 8),
];

/// Words of the index layer that `base`, `memory`, `storage`, `table` and `lsm` do not know.
const INDEX_WORDS: [&str; 12] = [
    "SecondaryIndex",
    "CandidateCursor",
    "AttributeExtractor",
    "CompositeIndex",
    "IndexSpec",
    "IndexKind",
    "secondary_index",
    "secondary_key",
    "SecondaryKey",
    "PsTree",
    "VersionTable",
    "UpdateMemo",
];

/// Every upward name in code, every upward dependency, every word of a higher layer.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in workspace.sources() {
        let Some(own) = source.crate_folder().and_then(find) else { continue };
        let tokens = tokens(&source.code);
        for (at, token) in tokens.iter().enumerate() {
            // A path of the crate `bolide` shows by its `::`; the bare word may be a variable.
            let names_crate = |higher: &&Layer| {
                token.text == higher.name && (higher.name != "bolide" || is_path(&tokens, at))
            };
            let above = LAYERS.iter().filter(|other| forbidden(own, other));
            for higher in above.filter(names_crate) {
                let message = format!("`{}` must not know the higher crate `{}`", own.folder, higher.folder);
                violations.push(Violation::new(&source.path, token.line, message));
            }
            if own.height <= 4 && INDEX_WORDS.contains(&token.text) {
                let message =
                    format!("`{}` is a word of the index layer, above `{}`", token.text, own.folder);
                violations.push(Violation::new(&source.path, token.line, message));
            }
        }
    }
    for (path, text) in workspace.manifests() {
        violations.extend(check_manifest(path, text));
    }
    violations
}

fn is_path(tokens: &[super::tokens::Token<'_>], at: usize) -> bool {
    let starts = at == 0 || tokens[at - 1].text != "::";
    starts && (tokens.get(at + 1).is_some_and(|next| next.text == "::") || follows_use(tokens, at))
}

fn follows_use(tokens: &[super::tokens::Token<'_>], at: usize) -> bool {
    at > 0 && tokens[at - 1].text == "use"
}

fn find(folder: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.folder == folder)
}

/// True where `own` may not name `other`.
fn forbidden(own: &Layer, other: &Layer) -> bool {
    own.folder != other.folder && other.height >= own.height
}

/// Upward lines of one `crates/FOLDER/Cargo.toml`, and a missing `[lints] workspace = true`.
fn check_manifest(path: &str, text: &str) -> Vec<Violation> {
    let folder = path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"));
    let Some(own) = folder.and_then(find) else { return Vec::new() };
    let mut violations = Vec::new();
    let mut section = "";
    let mut lints = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
        }
        lints |= section == "[lints]" && line.replace(' ', "") == "workspace=true";
        if !section.contains("dependencies") || section.contains("dev-dependencies") {
            continue;
        }
        let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default().replace('-', "_");
        for higher in LAYERS.iter().filter(|other| forbidden(own, other) && other.name == dependency) {
            let message = format!("`{}` must not depend on the higher `{}`", own.folder, higher.folder);
            violations.push(Violation::new(path, number + 1, message));
        }
    }
    if !lints {
        violations.push(Violation::new(path, 1, "add `[lints]` with `workspace = true`"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Workspace::of(&[(path, text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_lower_crate_does_not_name_a_higher_one() {
        let text = "// bolide_index\nuse bolide_base::Error;\nuse bolide_index::Query;\nfn a() { bolide::Db::open() }\n";
        assert_eq!(lines("crates/lsm/src/a.rs", text), [3, 4]);
        assert_eq!(lines("crates/bolide/src/a.rs", "use bolide_index::Query;\nuse bolide_cli::a;\n"), [2]);
        assert_eq!(lines("crates/cli/src/a.rs", "use bolide::Db;\nuse bolide_lsm::Store;\n"), []);
    }

    #[test]
    fn a_variable_named_like_the_facade_is_no_path() {
        assert_eq!(lines("crates/lsm/src/a.rs", "fn a(bolide: u8) { b::bolide(bolide) }\n"), []);
    }

    #[test]
    fn the_trees_do_not_know_that_indexes_exist() {
        assert_eq!(lines("crates/lsm/src/a.rs", "fn a(\n  x: &dyn SecondaryIndex) {}\n"), [2]);
        assert_eq!(lines("crates/index/src/a.rs", "fn a(x: &dyn SecondaryIndex) {}\n"), []);
    }

    #[test]
    fn a_manifest_does_not_depend_upwards() {
        let text = "[lints]\nworkspace = true\n[dependencies]\nbolide-base.workspace = true\n\
                    bolide-index = { path = \"../index\" }\n[dev-dependencies]\nbolide-testkit.workspace = true\n";
        assert_eq!(lines("crates/table/Cargo.toml", text), [5]);
        assert_eq!(lines("crates/index/Cargo.toml", "[lints]\nworkspace = true\n"), []);
        assert_eq!(lines("crates/index/Cargo.toml", "[dependencies]\n"), [1]);
    }
}
