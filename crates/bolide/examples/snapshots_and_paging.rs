//! Reads a collection page by page while it changes, with a snapshot and without.
//!
//! `cargo run --example snapshots_and_paging -p bolide`

use bolide::{CollectionOptions, CursorToken, Db, IterOptions, Options, Query};

pub(crate) fn main() -> bolide::Result<()> {
    let directory = tempfile::tempdir().expect("the system has a directory for temporary files");
    let db = Db::open(directory.path().join("log.bolide"), Options::default())?;
    let events = db.create_collection("events", CollectionOptions::default().index("level".parse()?))?;
    for number in 0..25 {
        let level = if number % 2 == 0 { "info" } else { "warn" };
        events.put(format!("{number:03}").as_bytes(), format!(r#"{{"level":"{level}"}}"#).as_bytes())?;
    }

    // A snapshot sees no later write; all of its pages together are one consistent answer.
    let snapshot = db.snapshot();
    events.delete_range("010"..)?;
    let mut pages = 0;
    let mut keys = Vec::new();
    let mut query = Query::new().eq("level", "info").limit(5);
    loop {
        let page = events.find_at(&snapshot, &query)?;
        pages += 1;
        keys.extend(page.iter().map(|answer| answer.key.clone()));
        let Some(token) = page.next_token() else { break };
        // A token is text: a server can hand it to its client and read it again in the next request.
        let text = token.to_string();
        query = query.after(text.parse::<CursorToken>()?);
    }
    println!("{} events in {pages} pages", keys.len());
    assert_eq!((keys.len(), pages), (13, 3));

    // Without a snapshot the query sees the deletes.
    assert_eq!(events.find(&Query::new().eq("level", "info").count())?.count(), 5);

    // In key order, in both directions.
    let mut cursor = events.cursor(&IterOptions::default().snapshot(&snapshot))?;
    cursor.seek(b"0105")?;
    assert_eq!(cursor.key(), b"011");
    cursor.prev()?;
    assert_eq!(cursor.key(), b"010");
    Ok(())
}
