//! Narrow types: a type has a limited number of methods, over all files of its crate.

use std::collections::BTreeMap;

use super::source::{Violation, Workspace};
use super::tokens::{Token, tokens};

/// Most methods of a type, in inherent implementations; those of traits do not count.
const LIMIT: usize = 60;

/// Every type with too many methods.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((_, name), (methods, path, line)) in &count(workspace) {
        if *methods > LIMIT {
            let message =
                format!("`{name}` has {methods} methods; the limit is {LIMIT}: divide it into components");
            violations.push(Violation::new(path, *line, message));
        }
    }
    violations
}

/// For each type of a crate: its methods, and the file and line of its first implementation.
fn count(workspace: &Workspace) -> BTreeMap<(&str, &str), (usize, &str, usize)> {
    let mut counts: BTreeMap<(&str, &str), (usize, &str, usize)> = BTreeMap::new();
    for source in workspace.sources() {
        let Some(folder) = source.crate_folder() else { continue };
        for one in implementations(&tokens(&source.product_code)) {
            counts.entry((folder, one.name)).or_insert((0, &source.path, one.line)).0 +=
                one.methods().count();
        }
    }
    counts
}

/// An inherent implementation.
pub(super) struct Implementation<'t, 'a> {
    /// The type.
    pub(super) name: &'a str,
    /// The tokens of its block, with the braces.
    pub(super) body: &'t [Token<'a>],
    /// The line of the word `impl`.
    pub(super) line: usize,
}

impl<'a> Implementation<'_, 'a> {
    /// The names of the functions directly in the block.
    pub(super) fn methods(&self) -> impl Iterator<Item = &'a str> {
        let mut depth = 0_usize;
        self.body.windows(2).filter_map(move |pair| {
            match pair[0].text {
                "{" => depth += 1,
                "}" => depth -= 1,
                "fn" if depth == 1 => return Some(pair[1].text),
                _ => {}
            }
            None
        })
    }
}

/// The inherent implementations in a file.
pub(super) fn implementations<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<Implementation<'t, 'a>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let starts = tokens[at].text == "impl"
            && at
                .checked_sub(1)
                .is_none_or(|before| ["}", ";", "{", "]", "unsafe"].contains(&tokens[before].text));
        let body = tokens[at..].iter().position(|token| token.text == "{").map(|length| at + length);
        let (true, Some(body)) = (starts, body) else {
            at += 1;
            continue;
        };
        let end = end_of_block(tokens, body);
        if let Some(name) = implemented_type(&tokens[at + 1..body]) {
            found.push(Implementation { name, body: &tokens[body..end], line: tokens[at].line });
        }
        at = end;
    }
    found
}

/// The name of the type in the head of an inherent implementation; nothing for one of a trait.
fn implemented_type<'a>(head: &[Token<'a>]) -> Option<&'a str> {
    let mut depth = 0_usize;
    let mut name = None;
    for (at, token) in head.iter().enumerate() {
        let is_arrow = at > 0 && head[at - 1].text == "-";
        match token.text {
            "<" => depth += 1,
            ">" if !is_arrow => depth = depth.saturating_sub(1),
            "for" if depth == 0 => return None,
            "where" if depth == 0 => break,
            text if depth == 0 && text.starts_with(|c: char| c.is_ascii_uppercase()) => name = Some(text),
            _ => {}
        }
    }
    name
}

/// The position behind the block that opens at `start`.
fn end_of_block(tokens: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_all_files_are_added_and_those_of_traits_are_not() {
        let workspace = Workspace::of(&[
            (
                "crates/lsm/src/a.rs",
                "impl<T: Fn() -> u8> A<T> { pub fn b(&self) { fn c() {} } const fn d() {} }\n",
            ),
            (
                "crates/lsm/src/b.rs",
                "impl A<u8> where u8: Copy { fn e() {} }\nimpl Drop for A<u8> { fn drop(&mut self) {} }\n",
            ),
            ("crates/index/src/c.rs", "fn f() -> impl Copy { 1 }\nimpl super::A { fn g() {} }\n"),
        ]);
        let counts = count(&workspace);
        let methods = |folder, name| counts.get(&(folder, name)).map(|found| found.0);
        assert_eq!((methods("lsm", "A"), methods("index", "A")), (Some(3), Some(1)));
        assert_eq!(counts.len(), 2);
    }

    #[test]
    fn a_wide_type_is_refused() {
        let methods: String = (0..=LIMIT).map(|number| format!("fn m{number}() {{}} ")).collect();
        let workspace = Workspace::of(&[("crates/lsm/src/a.rs", &format!("impl Wide {{ {methods} }}\n"))]);
        assert_eq!(check(&workspace).len(), 1);
    }
}
