//! Plain technical English: words that do not belong to the field are rejected in names, comments, messages and documents.
//!
//! A structure returns, stores and reports; it does not say, ask or know. `docs/GLOSSARY.md` has the terms to use instead.

use super::source::{Violation, Workspace};

/// Rejected words with what to write instead. They are compared with the parts of `snake_case` and `CamelCase` names.
const REJECTED: &[(&[&str], &str)] = &[
    (&["who", "whoever", "whom"], "the reader, the writer, the caller; or `that` for a thing"),
    (&["somebody", "nobody", "anybody", "everybody", "someone"], "the thread or the component that acts"),
    (&["say", "says", "said", "saying"], "contains, states, reports, returns"),
    (&["tell", "tells", "telling", "told"], "reports, returns, distinguishes; query statistics"),
    (&["ask", "asks", "asked", "asking"], "reads, queries, requests, prefetches"),
    (&["question", "questions"], "query"),
    (&["mend", "mends", "mended", "mending"], "repair, fix"),
    (&["habit", "habits"], "predictor"),
    (&["lull", "lulls"], "idle detection"),
    (&["heir", "heirs"], "replacement index"),
    (&["keeper", "keepers"], "external tree, tree backend"),
    (&["fate", "fates"], "disposition, posting filter"),
    (&["unshown"], "deferred publication"),
    (&["manner", "manners"], "mode"),
];

/// Rejected only in names of code: in text they are plain English.
const REJECTED_IN_NAMES: &[(&[&str], &str)] = &[
    (&["kept"], "retained, stored, external"),
    (&["shown"], "published, printed"),
    (&["coming"], "new, next, pending"),
];

/// Prefixes of constants, and what takes their place.
const PREFIXES: [(&str, &str); 2] = [("MOST_", "MAX_"), ("LEAST_", "MIN_")];

/// Files that hold the rejected words as data: the changelog has the former names of what was renamed.
const EXEMPT: [&str; 3] = ["xtask/src/tidy/words.rs", "docs/GLOSSARY.md", "CHANGELOG.md"];

/// Every rejected word, by its line.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in workspace.sources() {
        check_text(&source.path, &source.text, &mut violations);
        check_names(&source.path, &source.code, &mut violations);
    }
    for (path, text) in workspace.documents() {
        check_text(path, &without_samples(text), &mut violations);
    }
    violations
}

/// The document with its fenced blocks blank: they have commands and their output, which may contain words of records.
fn without_samples(text: &str) -> String {
    let mut is_sample = false;
    let mut prose = String::with_capacity(text.len());
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_sample ^= is_fence;
        if !is_sample && !is_fence {
            prose += line;
        }
        prose.push('\n');
    }
    prose
}

fn check_text(path: &str, text: &str, violations: &mut Vec<Violation>) {
    each_word(path, text, |line, word| {
        if let Some(instead) = instead_of(REJECTED, word) {
            violations.push(Violation::new(path, line, refusal(word, instead)));
        }
    });
}

fn check_names(path: &str, code: &str, violations: &mut Vec<Violation>) {
    each_word(path, code, |line, word| {
        if let Some(instead) = instead_of(REJECTED_IN_NAMES, word) {
            violations.push(Violation::new(path, line, refusal(word, instead)));
        }
    });
    for (line, text) in (1..).zip(code.lines()) {
        for (prefix, instead) in PREFIXES {
            if text.split(|c: char| !is_name(c)).any(|name| name.starts_with(prefix)) {
                violations.push(Violation::new(path, line, refusal(prefix, instead)));
            }
        }
    }
}

fn refusal(word: &str, instead: &str) -> String {
    format!("`{word}` is not a term of the field; write: {instead}")
}

fn instead_of(rejected: &'static [(&[&str], &str)], word: &str) -> Option<&'static str> {
    rejected.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead)
}

/// Calls `found` with the line and each word of `text` in lower case; `snake_case` and `CamelCase` names are several words.
fn each_word(path: &str, text: &str, mut found: impl FnMut(usize, &str)) {
    if EXEMPT.contains(&path) {
        return;
    }
    let mut word = String::new();
    for (line, text) in (1..).zip(text.lines()) {
        let mut previous_lower = false;
        for c in text.chars().chain(['\n']) {
            let begins = c.is_uppercase() && previous_lower;
            if (!c.is_alphabetic() || begins) && !word.is_empty() {
                found(line, &word);
                word.clear();
            }
            if c.is_alphabetic() {
                word.extend(c.to_lowercase());
            }
            previous_lower = c.is_lowercase();
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Workspace::of(&[(path, text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn comments_names_and_messages_are_read() {
        let text = "// Whoever reads it.\nfn asked_by() {}\nstruct BlockKeeper;\nlet a = \"nobody\";\nconst MOST_RUNS: u8 = 1;\n";
        assert_eq!(lines("crates/lsm/src/lib.rs", text), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn parts_of_longer_words_and_plain_english_pass() {
        let text = "// The task is kept; essays, masks, recommended, shown by a test.\nfn at_most() {}\nlet almost = 1;\n";
        assert_eq!(lines("crates/lsm/src/lib.rs", text), Vec::<usize>::new());
    }

    #[test]
    fn documents_are_read_and_the_glossary_is_not() {
        assert_eq!(lines("docs/CLI.md", "A question.\n"), [1]);
        assert_eq!(lines("docs/GLOSSARY.md", "A question.\n"), Vec::<usize>::new());
    }

    #[test]
    fn samples_in_documents_are_free() {
        assert_eq!(lines("docs/CLI.md", "```text\nwho\n```\nwho\n"), [4]);
    }

    #[test]
    fn some_words_are_rejected_in_names_alone() {
        assert_eq!(lines("crates/lsm/src/lib.rs", "// kept\nlet s = \"kept\";\nlet kept = 1;\n"), [3]);
    }
}
