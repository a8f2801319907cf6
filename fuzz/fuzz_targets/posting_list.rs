//! Any bytes as a fragment of a posting list: decoded postings are in order, and their encoding decodes to the same postings.
#![no_main]

use bolide_index::standalone::posting_list::{FragmentWriter, decode_fragment};

libfuzzer_sys::fuzz_target!(|input: (u64, u8, &[u8])| {
    let (entry, included, fragment) = input;
    let included = usize::from(included % 4);
    let Ok(postings) = decode_fragment(fragment, entry, included) else { return };
    assert!(postings.is_sorted_by(|newer, older| newer.sequence > older.sequence));
    assert!(postings.iter().all(|posting| posting.sequence <= entry));
    let mut writer = FragmentWriter::new(entry);
    postings.iter().for_each(|posting| writer.push(posting));
    assert_eq!(decode_fragment(&writer.finish(), entry, included).as_deref(), Ok(&postings[..]));
});
