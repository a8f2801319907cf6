//! What one module of a crate declares and names: child modules, items, `use` trees, inline paths.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{Token, tokens};

/// One binding of a `use` tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The path as written, `crate`, `self` and `super` included; a glob ends in `*`.
    pub(crate) path: Vec<String>,
    /// The name it binds here: the alias or the last segment.
    pub(crate) name: String,
    /// True for `pub use` of any width: a re-export, not a use.
    pub(crate) public: bool,
    /// Line number from 1.
    pub(crate) line: usize,
}

/// The names of one module.
#[derive(Debug, Default)]
pub(crate) struct ModuleNames {
    /// Modules declared with `mod NAME;` or `mod NAME { … }`.
    pub(crate) children: BTreeSet<String>,
    /// Items declared here: functions, types, traits, constants.
    pub(crate) items: BTreeSet<String>,
    /// Every binding of every `use`.
    pub(crate) imports: Vec<Import>,
    /// Other paths in the code, with their first line.
    pub(crate) paths: BTreeMap<Vec<String>, usize>,
}

impl ModuleNames {
    /// Reads `code`, in which comments, literals and tests are blank.
    pub(crate) fn read(code: &str) -> Self {
        let tokens = tokens(code);
        let mut names = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            at = names.read_at(&tokens, at);
        }
        names
    }

    /// Reads what starts at `at` and returns the position behind it.
    fn read_at(&mut self, tokens: &[Token<'_>], at: usize) -> usize {
        let token = tokens[at];
        let next = tokens.get(at + 1).map_or("", |token| token.text);
        match token.text {
            "mod" => {
                self.children.insert(next.to_owned());
                at + 2
            }
            "use" => {
                let public = at > 0 && (tokens[at - 1].text == "pub" || tokens[at - 1].text == ")");
                let mut tree = UseTree { tokens, at: at + 1, public, imports: &mut self.imports };
                tree.read(&mut Vec::new());
                tree.at
            }
            "struct" | "enum" | "trait" | "fn" | "type" | "union" | "static" | "const" | "macro_rules" => {
                if is_identifier(next) {
                    self.items.insert(next.to_owned());
                }
                at + 1
            }
            _ if is_identifier(token.text) && next == "::" => self.read_path(tokens, at),
            _ => at + 1,
        }
    }

    fn read_path(&mut self, tokens: &[Token<'_>], start: usize) -> usize {
        let mut path = vec![tokens[start].text.to_owned()];
        let mut at = start + 1;
        while tokens.get(at).is_some_and(|token| token.text == "::")
            && let Some(segment) = tokens.get(at + 1).filter(|token| is_identifier(token.text))
        {
            path.push(segment.text.to_owned());
            at += 2;
        }
        self.paths.entry(path).or_insert(tokens[start].line);
        at.max(start + 1)
    }
}

struct UseTree<'t, 'a> {
    tokens: &'t [Token<'a>],
    at: usize,
    public: bool,
    imports: &'t mut Vec<Import>,
}

impl UseTree<'_, '_> {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or(";", |token| token.text)
    }

    /// Reads one tree below `prefix`: a path, perhaps with `{…}`, `*` or `as NAME` at its end.
    fn read(&mut self, prefix: &mut Vec<String>) {
        let depth = prefix.len();
        loop {
            match self.peek() {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.peek(), "}" | ";") {
                        self.read(prefix);
                        if self.peek() == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    break;
                }
                segment if segment == "*" || is_identifier(segment) => {
                    prefix.push(segment.to_owned());
                    self.at += 1;
                    if self.peek() != "::" {
                        self.bind(prefix);
                        break;
                    }
                }
                _ => {
                    self.at += 1;
                    break;
                }
            }
        }
        prefix.truncate(depth);
    }

    fn bind(&mut self, path: &[String]) {
        let line = self.tokens.get(self.at.saturating_sub(1)).map_or(1, |token| token.line);
        let mut path = path.to_vec();
        // `use a::b::{self}` binds `b`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let mut name = path.last().cloned().unwrap_or_default();
        if self.peek() == "as" {
            name = self.tokens.get(self.at + 1).map_or_else(String::new, |token| token.text.to_owned());
            self.at += 2;
        }
        self.imports.push(Import { path, name, public: self.public, line });
    }
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(code: &str) -> Vec<(String, String, bool)> {
        let names = ModuleNames::read(code);
        names.imports.into_iter().map(|i| (i.path.join("::"), i.name, i.public)).collect()
    }

    fn import(path: &str, name: &str, public: bool) -> (String, String, bool) {
        (path.to_owned(), name.to_owned(), public)
    }

    #[test]
    fn use_trees_are_flattened() {
        let code = "use crate::a::{self, b::{C, D as E}, f::*};\npub(crate) use super::g;\npub use h::I;";
        let expected = [
            import("crate::a", "a", false),
            import("crate::a::b::C", "C", false),
            import("crate::a::b::D", "E", false),
            import("crate::a::f::*", "*", false),
            import("super::g", "g", true),
            import("h::I", "I", true),
        ];
        assert_eq!(imports(code), expected);
    }

    #[test]
    fn items_children_and_paths_are_seen() {
        let code = "mod a;\npub struct B<T>(T);\nfn c() { crate::d::e(); a::F::new() }";
        let names = ModuleNames::read(code);
        assert!(names.children.contains("a"));
        assert!(names.items.contains("B") && names.items.contains("c"));
        let paths: Vec<String> = names.paths.keys().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["a::F::new", "crate::d::e"]);
    }

    #[test]
    fn broken_code_ends() {
        for code in ["use", "use {", "use a::{b", "mod", "a::", "use a as"] {
            ModuleNames::read(code);
        }
    }
}
