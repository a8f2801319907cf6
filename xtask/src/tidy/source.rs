//! The files that the rules read: Rust sources, crate manifests, documents and scripts, with paths relative to the root.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::tokens::{blank_comments_and_strings, blank_tests};

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Path relative to the root of the workspace.
    pub(crate) file: String,
    /// Line number from 1.
    pub(crate) line: usize,
    /// Which rule, and what to do.
    pub(crate) message: String,
}

impl Violation {
    /// A violation in `file` at `line` (from 1).
    pub(crate) fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// One Rust source file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path relative to the root, with `/` between folders.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The file with comments and the contents of literals blanked; lines stay where they are.
    pub(crate) code: String,
    /// As `code`, with items under `#[cfg(test)]` blanked too.
    pub(crate) product_code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let code = blank_comments_and_strings(text);
        let product_code = blank_tests(&code);
        Self { path: path.to_owned(), text: text.to_owned(), code, product_code }
    }

    /// The folder of the crate under `crates/`, for files below its `src/`.
    pub(crate) fn crate_folder(&self) -> Option<&str> {
        let (folder, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        rest.starts_with("src/").then_some(folder)
    }

    /// The path below `src/`, for files of a crate's library or program.
    pub(crate) fn below_src(&self) -> Option<&str> {
        self.path.split_once("/src/").map(|(_, rest)| rest)
    }
}

/// All files that the rules read below one root.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    sources: Vec<Source>,
    manifests: Vec<(String, String)>,
    documents: Vec<(String, String)>,
}

impl Workspace {
    /// Reads the workspace at `root`; skips `target*`, hidden folders, and fuzz corpora.
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let mut workspace = Self::default();
        workspace.walk(root, "")?;
        workspace.sources.sort_by(|a, b| a.path.cmp(&b.path));
        workspace.manifests.sort();
        workspace.documents.sort();
        Ok(workspace)
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let relative = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            if entry.file_type()?.is_dir() {
                let skip = name.starts_with("target") || name.starts_with('.');
                if !skip && !["corpus", "artifacts"].contains(&name.as_str()) {
                    self.walk(&entry.path(), &relative)?;
                }
            } else if name.ends_with(".rs") {
                self.sources.push(Source::new(&relative, &fs::read_to_string(entry.path())?));
            } else if name == "Cargo.toml" {
                self.manifests.push((relative, fs::read_to_string(entry.path())?));
            } else if is_document(&name) {
                self.documents.push((relative, fs::read_to_string(entry.path())?));
            }
        }
        Ok(())
    }

    /// A workspace of these (path, text) pairs, for the tests of the rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut workspace = Self::default();
        for (path, text) in files {
            if path.ends_with(".toml") {
                workspace.manifests.push(((*path).to_owned(), (*text).to_owned()));
            } else if is_document(path) {
                workspace.documents.push(((*path).to_owned(), (*text).to_owned()));
            } else {
                workspace.sources.push(Source::new(path, text));
            }
        }
        workspace
    }

    /// Every Rust source, by path.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Every `Cargo.toml` as (path, text), by path.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.manifests.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Every document and script as (path, text), by path.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (&str, &str)> {
        self.documents.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one manifest.
    #[cfg(test)]
    pub(crate) fn manifest(&self, path: &str) -> Option<&str> {
        self.manifests().find(|(candidate, _)| *candidate == path).map(|(_, text)| text)
    }

    /// How many files were read.
    pub(crate) fn file_count(&self) -> usize {
        self.sources.len() + self.manifests.len() + self.documents.len()
    }
}

fn is_document(name: &str) -> bool {
    name.ends_with(".md") || name.ends_with(".sh")
}
