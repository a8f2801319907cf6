//! A codec file opens with its byte layout: a fenced `text` block in the module's documentation.

use super::source::{Source, Violation, Workspace};
use super::tokens::tokens;

/// Crates that write bytes to disk.
const CRATES: [&str; 4] = ["table", "lsm", "index", "bolide"];

/// Every file that both writes and reads coded fields and shows no layout at its head.
pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let codecs = workspace.sources().iter().filter(|source| {
        source.crate_folder().is_some_and(|folder| CRATES.contains(&folder)) && is_codec(source)
    });
    codecs
        .filter(|source| !has_diagram(&source.text))
        .map(|source| {
            let message = "this file codes bytes: open it with their layout in a ```text block";
            Violation::new(&source.path, 1, message)
        })
        .collect()
}

/// A codec decodes with a `Decoder` and encodes with the `put_…` functions of `base::coding`.
fn is_codec(source: &Source) -> bool {
    let tokens = tokens(&source.product_code);
    let reads = tokens.windows(3).any(|t| t[0].text == "Decoder" && t[1].text == "::" && t[2].text == "new");
    let writers = ["put_varint", "put_u16", "put_u32", "put_u64", "put_bytes"];
    reads && tokens.iter().any(|token| writers.contains(&token.text))
}

fn has_diagram(text: &str) -> bool {
    text.lines().take_while(|line| line.starts_with("//!")).any(|line| line.trim_end() == "//! ```text")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "use bolide_base::coding::{Decoder, put_u32};\n\
                        fn a(out: &mut Vec<u8>) { put_u32(out, 1); }\n\
                        fn b(input: &[u8]) { Decoder::new(input).u32(); }\n";

    #[test]
    fn a_codec_without_its_layout_is_refused() {
        let bare = format!("//! A footer.\n{CODE}");
        let drawn = format!("//! A footer.\n//!\n//! ```text\n//! | magic u32 |\n//! ```\n{CODE}");
        assert_eq!(check(&Workspace::of(&[("crates/table/src/footer.rs", &bare)])).len(), 1);
        assert_eq!(check(&Workspace::of(&[("crates/table/src/footer.rs", &drawn)])), Vec::new());
    }

    #[test]
    fn other_files_need_none() {
        let reader = "fn b(input: &[u8]) { Decoder::new(input).u32(); }\n";
        assert_eq!(check(&Workspace::of(&[("crates/table/src/reader.rs", reader)])), Vec::new());
    }
}
