//! Writes several records of several collections as one unit, and chooses what a power cut may lose.
//!
//! `cargo run --example batches -p bolide`

use bolide::{CollectionOptions, Db, ErrorKind, Options, Query, SyncMode, WriteBatch, WriteOptions};

pub(crate) fn main() -> bolide::Result<()> {
    let directory = tempfile::tempdir().expect("the system has a directory for temporary files");
    // Each write is synced before it is acknowledged, unless the write chooses otherwise.
    let db = Db::open(directory.path().join("shop.bolide"), Options::default().sync(SyncMode::Always))?;
    let orders = db.create_collection("orders", CollectionOptions::default().index("customer".parse()?))?;
    let customers = db.create_collection("customers", CollectionOptions::default())?;

    // One unit over two collections and their indexes: after a crash all of it is there, or nothing.
    let mut batch = WriteBatch::new();
    batch.put(&customers, b"ada", br#"{"name":"Ada","orders":2}"#)?;
    batch.put(&orders, b"o1", br#"{"customer":"ada","total":12.5}"#)?;
    batch.put(&orders, b"o2", br#"{"customer":"ada","total":30}"#)?;
    let sequence = db.write(batch)?;
    println!("written as sequence number {sequence}");
    assert_eq!(orders.find(&Query::new().eq("customer", "ada"))?.len(), 2);

    // A record that its collection refuses is refused when it is added; the batch goes on without it.
    let mut batch = WriteBatch::new();
    batch.delete(&orders, b"o1")?;
    let error = batch.put(&orders, b"o3", b"{not json").expect_err("the record is not JSON");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    println!("refused: {error}");
    batch.delete_range(&customers, "b".."c")?;
    db.write_with(batch, &WriteOptions::default().sync(SyncMode::None))?;
    assert_eq!(orders.get(b"o1")?, None);

    // Makes durable what was written with `SyncMode::None`.
    db.sync()
}
