//! Opens a database, stores records, declares indexes, runs queries.
//!
//! `cargo run --example first_steps -p bolide`

use bolide::{CollectionOptions, Db, Options, Order, Query};

pub(crate) fn main() -> bolide::Result<()> {
    let directory = tempfile::tempdir().expect("the system has a directory for temporary files");
    let path = directory.path().join("blog.bolide");

    let db = Db::open(&path, Options::default())?;
    let posts = db.create_collection("posts", CollectionOptions::default().index("author".parse()?))?;
    posts.put(b"1", br#"{"author":"ada","score":12,"tags":["rust","lsm"]}"#)?;
    posts.put(b"2", br#"{"author":"bob","score":90,"tags":["rust"]}"#)?;
    posts.put(b"3", br#"{"author":"ada","score":41,"tags":[]}"#)?;

    // By key.
    let record = posts.get(b"2")?.expect("it was stored above");
    println!("2 = {}", String::from_utf8_lossy(&record));

    // By attribute: the newest first.
    let newest = posts.find(&Query::new().eq("author", "ada").limit(10))?;
    assert_eq!(newest.iter().map(|answer| &answer.key[..]).collect::<Vec<_>>(), [b"3", b"1"]);

    // An index on records that exist, on each element of an array, and a query that orders by value.
    posts.create_index("tags[*]".parse()?)?;
    posts.create_index("score".parse()?)?;
    let query = Query::new().eq("tags[*]", "rust").range("score", 10..).order(Order::ValueDescending);
    let answers = posts.find(&query)?;
    for answer in &answers {
        println!("{answer}");
    }
    println!("{}", answers.explain());
    assert_eq!(answers.len(), 2);

    // Without a fitting index the same query scans; the answers are the same.
    assert_eq!(posts.find(&Query::new().eq("author", "bob").keys_only())?.len(), 1);

    // Everything acknowledged is there after the database is opened again.
    drop(posts);
    db.close()?;
    let db = Db::open(&path, Options::default())?;
    assert_eq!(db.collection("posts")?.indexes().len(), 3);
    assert!(db.check(true)?.is_sound());
    Ok(())
}
