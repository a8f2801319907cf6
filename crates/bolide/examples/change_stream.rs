//! Applies a change stream of another system: rows that put, replace or delete records, in batches that can be repeated.
//!
//! `cargo run --example change_stream -p bolide`

use bolide::{Collection, CollectionOptions, Db, Error, Options, Query, Result, WriteBatch};

/// Position in the stream, operation, key and record, as another database would send them.
const STREAM: &[(u64, &str, &str, &str)] = &[
    (1, "insert", "t1", r#"{"state":"open","title":"disk full"}"#),
    (2, "insert", "t2", r#"{"state":"open","title":"slow query"}"#),
    (3, "update", "t1", r#"{"state":"done","title":"disk full"}"#),
    (4, "delete", "t2", ""),
    (5, "insert", "t3", r#"{"state":"open","title":"typo"}"#),
];

/// The number of changes of one batch.
const BATCH: usize = 2;

/// Applies the changes behind the stored position. The position is in the same batch as the changes, so each change is applied
/// once, also when the program ends in the midst and starts again.
fn apply(db: &Db, tickets: &Collection, positions: &Collection) -> Result<u64> {
    let mut applied = match positions.get(b"tickets")? {
        Some(text) => parse_position(&text)?,
        None => 0,
    };
    let waiting: Vec<_> = STREAM.iter().filter(|(position, ..)| *position > applied).collect();
    for changes in waiting.chunks(BATCH) {
        let mut batch = WriteBatch::new();
        for (position, operation, key, record) in changes {
            match *operation {
                "insert" | "update" => batch.put(tickets, key.as_bytes(), record.as_bytes())?,
                "delete" => batch.delete(tickets, key.as_bytes())?,
                other => {
                    return Err(Error::invalid_input(format!(
                        "change {position}: unknown operation `{other}`"
                    )));
                }
            }
            applied = *position;
        }
        batch.put(positions, b"tickets", applied.to_string().as_bytes())?;
        db.write(batch)?;
    }
    Ok(applied)
}

fn parse_position(text: &[u8]) -> Result<u64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Error::invalid_input("the stored position is not a number"))
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("the system has a directory for temporary files");
    let db = Db::open(directory.path().join("tickets.bolide"), Options::default())?;
    let tickets = db.create_collection("tickets", CollectionOptions::default().index("state".parse()?))?;
    let positions = db.create_collection("positions", CollectionOptions::bytes())?;

    println!("applied through {}", apply(&db, &tickets, &positions)?);
    let last = db.snapshot().sequence();
    // Nothing is applied twice.
    apply(&db, &tickets, &positions)?;
    assert_eq!(db.snapshot().sequence(), last);

    let open = tickets.find(&Query::new().eq("state", "open"))?;
    assert_eq!(open.iter().map(|answer| &answer.key[..]).collect::<Vec<_>>(), [b"t3"]);
    Ok(())
}
