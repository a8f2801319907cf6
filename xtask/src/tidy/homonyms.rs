//! One name, one thing: no two types of the product have the same name.

use std::collections::BTreeMap;

use super::source::{Source, Violation, Workspace};
use super::tokens::{Token, tokens};

/// The crates of the product; figures and proofs repeat names such as `Row` for each of their programs.
const CRATES: [&str; 8] = ["base", "memory", "storage", "table", "lsm", "index", "bolide", "cli"];

/// Every type whose name another module of the product declares too. Tests, and the associated types of traits, are free.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    let product = workspace.sources().iter().filter(|source| is_product(source));
    for source in product {
        for (name, line) in declared_types(&tokens(&source.product_code)) {
            places.entry(name).or_default().push((&source.path, line));
        }
    }
    let mut violations = Vec::new();
    for (name, places) in places {
        for (number, &(path, line)) in places.iter().enumerate() {
            let other =
                places.iter().enumerate().find(|&(other, &(file, _))| other != number && file != path);
            if let Some((_, (file, _))) = other {
                let message = format!("`{name}` is also a type in {file}: give each thing a name of its own");
                violations.push(Violation::new(path, line, message));
            }
        }
    }
    violations
}

fn is_product(source: &Source) -> bool {
    source.crate_folder().is_some_and(|folder| CRATES.contains(&folder)) && !is_test(&source.path)
}

/// Whether the file belongs to tests, or is a `sync.rs`, which takes types of this name from a model checker or from the standard library.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        part == "tests"
            || part == "tests.rs"
            || part == "sync.rs"
            || part.ends_with("_tests.rs")
            || part.ends_with("_tests")
    })
}

/// The structs, enums, unions, traits and aliases at the level of modules and functions, with their lines.
fn declared_types<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize)> {
    let mut types = Vec::new();
    // For each open brace, whether it is the body of a trait or an implementation.
    let mut bodies = Vec::new();
    let mut next_is_body = false;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "impl" | "trait" if starts_item(tokens, at) => next_is_body = true,
            "{" => bodies.push(std::mem::take(&mut next_is_body)),
            "}" => {
                bodies.pop();
            }
            ";" => next_is_body = false,
            _ => {}
        }
        let declares =
            ["struct", "enum", "union", "trait", "type"].contains(&token.text) && starts_item(tokens, at);
        if declares
            && bodies.last() != Some(&true)
            && let Some(name) =
                tokens.get(at + 1).filter(|name| name.text.starts_with(|c: char| c.is_ascii_uppercase()))
        {
            types.push((name.text, token.line));
        }
    }
    types
}

/// Whether the token at `at` can begin an item: what stands before it ends one, or belongs to its head.
fn starts_item(tokens: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| tokens[before].text);
    before.is_none_or(|text| ["}", ";", "{", "]", ")", "pub", "unsafe", "default"].contains(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, &str)]) -> usize {
        check(&Workspace::of(files)).len()
    }

    #[test]
    fn types_of_one_name_are_refused_in_both_files() {
        let files = [
            ("crates/lsm/src/a.rs", "pub(crate) struct Lead<'a> { a: &'a u8 }\n"),
            ("crates/index/src/b.rs", "fn f() { struct Lead; }\n"),
        ];
        assert_eq!(count(&files), 2);
    }

    #[test]
    fn associated_types_and_tests_are_free() {
        let files = [
            ("crates/lsm/src/a.rs", "trait A { type Item; }\nimpl A for u8 { type Item = u8; }\n"),
            (
                "crates/index/src/b.rs",
                "impl<T: A> A for B<T> where T: A { type Item = u8; fn f() -> impl A { 0 } }\n",
            ),
            ("crates/index/src/c_tests.rs", "struct Model;\n"),
            ("crates/index/src/d.rs", "#[cfg(test)]\nmod tests { struct Model; }\nstruct Model;\n"),
            ("crates/lsm/tests/e.rs", "struct Model;\n"),
        ];
        assert_eq!(count(&files), 0);
    }
}
