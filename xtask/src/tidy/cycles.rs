//! No circle among the modules of a crate: a reader of one module does not need the others.
//!
//! A module is a file. It depends on another one if it imports one of its items or names one by a
//! path. A re-export (`pub use`, of any width) is resolved to the file that declares the item. A module and the
//! modules inside it are one family: dependencies between them do not count, except on the crate root, which
//! has re-exports only. Tests are free.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::ModuleNames;
use super::source::{Source, Violation, Workspace};

/// A module path below its crate root; the root is empty.
type ModulePath = Vec<String>;

/// One crate: its modules by path.
#[derive(Default)]
struct Crate<'a> {
    modules: BTreeMap<ModulePath, Module<'a>>,
}

struct Module<'a> {
    file: &'a str,
    names: ModuleNames,
}

/// Longest chain of re-exports that is followed.
const MAX_HOPS: usize = 16;

/// Every circle of modules, once, at the place where one of its edges starts.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    for source in workspace.sources() {
        if let Some((name, path)) = module_path(source) {
            let names = ModuleNames::read(&source.product_code);
            crates.entry(name).or_default().modules.insert(path, Module { file: &source.path, names });
        }
    }
    crates.values().flat_map(Crate::circles).collect()
}

/// The crate's folder and the module path of a file below its `src/`; programs in `src/bin/` and
/// `main.rs` beside a `lib.rs` are left out: nothing can look at them.
fn module_path(source: &Source) -> Option<(&str, ModulePath)> {
    let below = source.below_src()?;
    let folder = source.path.strip_suffix(below)?;
    if below.starts_with("bin/") {
        return None;
    }
    let mut path: ModulePath = below.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    match path.last().map(String::as_str) {
        Some("lib" | "main") if path.len() == 1 => path.clear(),
        Some("mod") => {
            path.pop();
        }
        _ => {}
    }
    Some((folder, path))
}

impl Crate<'_> {
    /// Every strongly connected set of at least two modules, as one violation each.
    fn circles(&self) -> Vec<Violation> {
        let edges = self.edges();
        let mut reported: BTreeSet<&ModulePath> = BTreeSet::new();
        let mut violations = Vec::new();
        for start in self.modules.keys() {
            if reported.contains(start) {
                continue;
            }
            let Some(circle) = shortest_circle(&edges, start) else { continue };
            let mut steps = Vec::new();
            for pair in circle.windows(2) {
                let line = edges[&pair[0]][&pair[1]];
                steps.push(format!("{} line {line} looks at {}", show(&pair[0]), show(&pair[1])));
            }
            let (first, second) = (&circle[0], &circle[1]);
            let message = format!("modules in a circle: {}", steps.join("; "));
            violations.push(Violation::new(self.modules[first].file, edges[first][second], message));
            reported.extend(
                circle.iter().filter_map(|module| self.modules.get_key_value(module)).map(|(k, _)| k),
            );
        }
        violations
    }

    /// For each module the modules it looks at, with the line of the first look.
    fn edges(&self) -> BTreeMap<ModulePath, BTreeMap<ModulePath, usize>> {
        let mut edges: BTreeMap<ModulePath, BTreeMap<ModulePath, usize>> = BTreeMap::new();
        for (from, module) in &self.modules {
            let imported = module.names.imports.iter().filter(|import| !import.public);
            let looks = imported
                .map(|import| (&import.path, import.line))
                .chain(module.names.paths.iter().map(|(path, &line)| (path, line)));
            let targets = edges.entry(from.clone()).or_default();
            for (path, line) in looks {
                if let Some(target) = self.resolve(from, path, MAX_HOPS)
                    && !is_family(from, &target)
                {
                    targets.entry(target).or_insert(line);
                }
            }
        }
        edges
    }

    /// The module that declares what `path`, written in `from`, names; `None` outside this crate.
    fn resolve(&self, from: &ModulePath, path: &[String], hops: usize) -> Option<ModulePath> {
        let module = self.modules.get(from)?;
        let (first, mut rest) = path.split_first()?;
        let mut current = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.clone(),
            "super" => {
                let mut parent = from.clone();
                parent.pop();
                while let Some((next, further)) = rest.split_first().filter(|(next, _)| *next == "super") {
                    debug_assert_eq!(next, "super");
                    parent.pop();
                    rest = further;
                }
                parent
            }
            child if module.names.children.contains(child) => {
                rest = path;
                from.clone()
            }
            _ => return None,
        };
        while let Some((segment, further)) = rest.split_first() {
            let mut child = current.clone();
            child.push(segment.clone());
            if self.modules.contains_key(&child) {
                current = child;
                rest = further;
                continue;
            }
            return Some(self.follow(&current, segment, hops).unwrap_or(current));
        }
        Some(current)
    }

    /// The module where `name`, bound in `module` by a `use`, is declared.
    fn follow(&self, module: &ModulePath, name: &str, hops: usize) -> Option<ModulePath> {
        let names = &self.modules.get(module)?.names;
        if hops == 0 || names.items.contains(name) {
            return None;
        }
        if let Some(import) = names.imports.iter().find(|import| import.name == name && name != "*") {
            return self.resolve(module, &import.path, hops - 1);
        }
        let globs = names.imports.iter().filter(|import| import.name == "*");
        globs
            .filter_map(|glob| self.resolve(module, &glob.path[..glob.path.len() - 1], hops - 1))
            .find(|target| self.modules.get(target).is_some_and(|m| m.names.items.contains(name)))
    }
}

/// True for a module itself and for a module and one inside it, unless the outer one is the root.
fn is_family(one: &ModulePath, other: &ModulePath) -> bool {
    one == other || !one.is_empty() && !other.is_empty() && (one.starts_with(other) || other.starts_with(one))
}

/// The shortest walk from `start` back to `start`, both ends included.
fn shortest_circle(
    edges: &BTreeMap<ModulePath, BTreeMap<ModulePath, usize>>,
    start: &ModulePath,
) -> Option<Vec<ModulePath>> {
    let mut walks = std::collections::VecDeque::from([vec![start.clone()]]);
    let mut seen: BTreeSet<&ModulePath> = BTreeSet::new();
    while let Some(walk) = walks.pop_front() {
        for target in edges.get(walk.last()?)?.keys() {
            if target == start || (edges.contains_key(target) && seen.insert(target)) {
                let mut longer = walk.clone();
                longer.push(target.clone());
                if target == start {
                    return Some(longer);
                }
                walks.push_back(longer);
            }
        }
    }
    None
}

fn show(path: &ModulePath) -> String {
    if path.is_empty() { "crate root".to_owned() } else { format!("`{}`", path.join("::")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        check(&Workspace::of(files)).into_iter().map(|violation| violation.to_string()).collect()
    }

    #[test]
    fn two_modules_that_import_each_other_are_a_circle() {
        let found = circles(&[
            ("crates/lsm/src/lib.rs", "mod a;\nmod b;\n"),
            ("crates/lsm/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            ("crates/lsm/src/b.rs", "pub struct B;\nfn f() { super::a::g() }\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`a` line 1 looks at `b`; `b` line 2 looks at `a`"), "{found:?}");
    }

    #[test]
    fn a_long_circle_through_folders_is_found() {
        let found = circles(&[
            ("crates/lsm/src/lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("crates/lsm/src/a.rs", "use crate::b::deep::D;\npub struct A;\n"),
            ("crates/lsm/src/b/mod.rs", "mod deep;\n"),
            ("crates/lsm/src/b/deep.rs", "use crate::c;\npub struct D;\n"),
            ("crates/lsm/src/c.rs", "use super::a::A;\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn a_reexport_leads_to_the_declaring_module() {
        let root = "mod a;\nmod b;\npub use a::A;\npub use b::*;\n";
        let straight = [
            ("crates/lsm/src/lib.rs", root),
            ("crates/lsm/src/a.rs", "pub struct A;\n"),
            ("crates/lsm/src/b.rs", "use crate::A;\npub struct B;\n"),
        ];
        assert_eq!(circles(&straight), Vec::<String>::new());
        let bent = [straight[0], ("crates/lsm/src/a.rs", "use crate::B;\npub struct A;\n"), straight[2]];
        assert_eq!(circles(&bent).len(), 1);
    }

    #[test]
    fn a_module_and_its_parts_are_one_family() {
        let family = [
            ("crates/lsm/src/a/mod.rs", "mod part;\npub struct Shape;\nfn f() { part::draw(Shape) }\n"),
            ("crates/lsm/src/a/part.rs", "use super::Shape;\npub fn draw(_: Shape) {}\n"),
        ];
        assert_eq!(circles(&family), Vec::<String>::new());
        let with_root = [
            ("crates/lsm/src/lib.rs", "mod a;\npub struct Shape;\nfn f() { a::draw(Shape) }\n"),
            ("crates/lsm/src/a.rs", "use crate::Shape;\npub fn draw(_: Shape) {}\n"),
        ];
        assert_eq!(circles(&with_root).len(), 1);
        let siblings = [
            ("crates/lsm/src/a/mod.rs", "mod b;\nmod c;\n"),
            ("crates/lsm/src/a/b.rs", "use super::c::C;\npub struct B;\n"),
            ("crates/lsm/src/a/c.rs", "use super::b::B;\npub struct C;\n"),
        ];
        assert_eq!(circles(&siblings).len(), 1);
    }

    #[test]
    fn tests_and_programs_are_free() {
        let found = circles(&[
            ("crates/lsm/src/lib.rs", "mod a;\nmod b;\n"),
            ("crates/lsm/src/a.rs", "use crate::b::B;\npub struct A;\n"),
            ("crates/lsm/src/b.rs", "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n"),
            ("crates/lsm/src/bin/x.rs", "use crate::a;\n"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
