//! No circle of method calls among the files of one type: a file of a type with methods in several files is a component, which
//! the files that it calls do not call back.
//!
//! An edge is a call `self.m(..)` or `Self::m(..)` in an inherent implementation, of a method that another file implements.
//! Calls through other variables are not seen.

use std::collections::{BTreeMap, BTreeSet};

use super::methods::implementations;
use super::source::{Violation, Workspace};
use super::tokens::tokens;

/// Types with files in circles, and the number of these files. A number here may sink and must not rise.
const IN_CIRCLES: &[(&str, &str, usize)] = &[("index", "Execution", 3), ("index", "Rewrite", 2)];

/// The files of a type, by path.
type Files<'w> = BTreeMap<&'w str, FileMethods<'w>>;

/// The methods of a type in one file.
#[derive(Default)]
struct FileMethods<'w> {
    line: usize,
    declared: BTreeSet<&'w str>,
    called: BTreeSet<&'w str>,
}

/// Every type with files in circles, and every exception that is no longer needed or is above the count.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((folder, name), files) in types(workspace) {
        let in_circles = in_circles(&files);
        let allowed = IN_CIRCLES.iter().find(|(of, exception, _)| *of == folder && *exception == name);
        let limit = allowed.map_or(0, |&(.., limit)| limit);
        let count = in_circles.len();
        let Some(path) = in_circles.first().copied().or_else(|| files.keys().next().copied()) else {
            continue;
        };
        let message = if count > limit {
            let steps: Vec<String> = in_circles.iter().map(|path| show(&files, path)).collect();
            format!(
                "{count} files of `{name}` call each other\'s methods in circles, {limit} may: {}",
                steps.join("; ")
            )
        } else if count < limit {
            format!(
                "{count} files of `{name}` are in circles of method calls: lower its exception of {limit} in \
                 xtask/src/tidy/method_circles.rs"
            )
        } else {
            continue;
        };
        violations.push(Violation::new(path, files[path].line, message));
    }
    violations
}

/// The types of all crates, each with its files.
fn types(workspace: &Workspace) -> BTreeMap<(&str, &str), Files<'_>> {
    let mut types: BTreeMap<(&str, &str), Files<'_>> = BTreeMap::new();
    for source in workspace.sources() {
        // A file of tests has no `cfg(test)` of its own.
        let Some(folder) = source.crate_folder().filter(|_| !source.path.ends_with("tests.rs")) else {
            continue;
        };
        for one in implementations(&tokens(&source.product_code)) {
            let files = types.entry((folder, one.name)).or_default();
            let file = files.entry(&source.path).or_default();
            file.line = one.line;
            file.declared.extend(one.methods());
            for call in one.body.windows(4) {
                let is_call = match [call[0].text, call[1].text] {
                    ["self", "."] | ["Self", "::"] => ["(", "::"].contains(&call[3].text),
                    _ => false,
                };
                if is_call {
                    file.called.insert(call[2].text);
                }
            }
        }
    }
    types
}

/// The files that `path` calls.
fn callees<'f>(files: &'f Files<'_>, path: &'f str) -> impl Iterator<Item = &'f str> {
    let called = files.get(path).map(|file| &file.called);
    files.iter().filter_map(move |(other, file)| {
        (*other != path && called.is_some_and(|called| !called.is_disjoint(&file.declared))).then_some(*other)
    })
}

/// The files from which calls lead back to them.
fn in_circles<'f>(files: &'f Files<'_>) -> Vec<&'f str> {
    let is_in_circle = |start: &&str| {
        let (mut reached, mut rest) = (BTreeSet::new(), vec![*start]);
        while let Some(path) = rest.pop() {
            rest.extend(callees(files, path).filter(|callee| reached.insert(*callee)));
        }
        reached.contains(start)
    };
    files.keys().copied().filter(is_in_circle).collect()
}

/// A file and the files that it calls, by their names without folders.
fn show(files: &Files<'_>, path: &str) -> String {
    let name =
        |path: &str| path.split_once("/src/").map_or_else(|| path.to_owned(), |(_, rest)| rest.to_owned());
    let callees: Vec<String> = callees(files, path).map(name).collect();
    format!("{} -> {}", name(path), callees.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let workspace = Workspace::of(files);
        types(&workspace)
            .values()
            .flat_map(|files| in_circles(files).into_iter().map(str::to_owned))
            .collect()
    }

    #[test]
    fn files_that_call_each_other_are_in_a_circle() {
        let a = "impl<T> A<T> { fn a(&self) { self.b() } }\n";
        let b = "impl A<u8> { fn b(&self) { Self::c::<u8>(self) } }\n";
        let files = |c| [("crates/lsm/src/a.rs", a), ("crates/lsm/src/b.rs", b), ("crates/lsm/src/c.rs", c)];
        let straight = files(
            "impl A<u8> { fn c(&self) {} fn d(&self) { self.a } }\nimpl B { fn a(&self) { self.a() } }\n",
        );
        assert_eq!(circles(&straight), Vec::<String>::new());
        let bent = files("impl A<u8> { fn c(&self) { self.a() } }\n");
        assert_eq!(circles(&bent).len(), 3);
        assert_eq!(check(&Workspace::of(&bent)).len(), 1);
    }

    #[test]
    fn calls_within_a_file_and_in_tests_are_free() {
        let a = "impl A { fn a(&self) { self.b() } fn b(&self) { self.a() } fn c(&self) { self.d() } }\n";
        let d =
            "impl A { fn d(&self) {} }\n#[cfg(test)]\nmod tests { impl A { fn e(&self) { self.c() } } }\n";
        assert_eq!(circles(&[("crates/lsm/src/a.rs", a), ("crates/lsm/src/d.rs", d)]), Vec::<String>::new());
    }
}
