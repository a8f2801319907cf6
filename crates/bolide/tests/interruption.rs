//! Long reads end when their caller interrupts them; writes do not.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::rc::Rc;

use bolide::{
    AttributePath, BulkChange, BulkOptions, Collection, CollectionOptions, Components, Db, ErrorKind,
    FindOptions, Layout, Options, Query, Result, interruptible,
};

const RECORDS: u32 = 4_000;

fn database(layout: Layout, index: &str) -> Result<(Db, Collection)> {
    let db = Db::open_with("db", Options::default().background_threads(0), Components::in_memory())?;
    let options = CollectionOptions::json().layout(layout).index(index.parse()?).index("tags[*]".parse()?);
    let c = db.create_collection("c", options)?;
    for number in 0..RECORDS {
        let record = format!(r#"{{"g":{},"n":{number},"tags":["a","b"]}}"#, number % 2);
        c.put(&number.to_be_bytes(), record.as_bytes())?;
        if number % 1_000 == 999 {
            db.flush()?;
        }
    }
    Ok((db, c))
}

type Read = (&'static str, fn(&Db, &Collection) -> Result<()>);

/// Reads of all records, or of an index with as many entries, in which few or no answers are passed on.
const READS: [Read; 14] = [
    ("count of all", |_, c| c.find(&Query::new().count()).map(drop)),
    ("count by index", |_, c| c.find(&Query::new().eq("g", 1).count()).map(drop)),
    ("no answer", |_, c| c.find(&Query::new().eq("absent", 1)).map(drop)),
    ("ordered", |_, c| {
        c.find(&Query::new().sort_by("n", bolide::SortDirection::Descending).limit(1)).map(drop)
    }),
    ("intersection", |_, c| c.find(&Query::new().eq("tags[*]", "a").eq("tags[*]", "b").count()).map(drop)),
    ("cursor", |_, c| {
        let mut answers = c.answers(&Query::new().eq("absent", 1), &FindOptions::default())?;
        answers.next().map(drop)
    }),
    ("summarize", |_, c| c.summarize(&Query::new(), "n").map(drop)),
    ("distinct", |_, c| c.distinct(&Query::new().eq("absent", 1), "n", 10).map(drop)),
    ("largest", |_, c| c.largest(&Query::new().eq("g", 1), "n").map(drop)),
    ("check of indexes", |_, c| c.check_indexes().map(drop)),
    ("check", |db, _| db.check(false).map(drop)),
    ("deep check", |db, _| db.check(true).map(drop)),
    ("profile", |_, c| {
        let path: AttributePath = "n".parse()?;
        c.profile(&path).map(drop)
    }),
    ("delete of nothing", |_, c| {
        let nothing = Query::new().eq("absent", 1);
        c.delete_where(&nothing, &BulkOptions::default(), |_| ControlFlow::Continue(())).map(drop)
    }),
];

#[test]
fn every_long_read_ends() -> Result<()> {
    for (layout, kind) in [
        (Layout::Leveled, "g:composite"),
        (Layout::Partitioned, "g:lazy"),
        (Layout::Tiered, "g:eager"),
        (Layout::Fragmented, "g:embedded"),
        (Layout::Leveled, "g:next"),
        (Layout::Leveled, "g:ps-tree"),
    ] {
        let (db, c) = database(layout, kind)?;
        for (name, read) in READS {
            read(&db, &c)?;
            let result = interruptible(|| true, || read(&db, &c));
            let kind_of_error = result.err().map(|error| error.kind());
            assert_eq!(kind_of_error, Some(ErrorKind::Interrupted), "{name} with {kind}");
            // The next one is not interrupted, nor is it damaged by the one before.
            read(&db, &c)?;
        }
        assert!(db.check(true)?.is_sound(), "{kind}");
    }
    Ok(())
}

#[test]
fn what_an_interrupted_update_has_committed_stays() -> Result<()> {
    let (db, c) = database(Layout::Leveled, "g")?;
    let batches = Rc::new(Cell::new(0));
    let seen = batches.clone();
    let mark = |_: &[u8], _: &[u8]| Ok(BulkChange::Put(br#"{"g":7}"#.to_vec()));
    let result = interruptible(
        move || seen.get() == 2,
        || {
            c.update_where(&Query::new().eq("g", 1), &BulkOptions::default().batch(400), mark, |_| {
                batches.set(batches.get() + 1);
                ControlFlow::Continue(())
            })
        },
    );
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Interrupted);
    assert_eq!(c.find(&Query::new().eq("g", 7).count())?.count(), 800);
    assert!(db.check(true)?.is_sound());
    Ok(())
}

#[test]
fn writes_and_their_background_work_are_not_interrupted() -> Result<()> {
    let (db, c) = database(Layout::Leveled, "g:eager")?;
    interruptible(
        || true,
        || {
            for number in 0..RECORDS {
                c.put(&number.to_be_bytes(), br#"{"g":5}"#)?;
            }
            db.flush()?;
            db.compact()
        },
    )?;
    assert_eq!(c.find(&Query::new().eq("g", 5).count())?.count(), u64::from(RECORDS));
    assert!(db.check(true)?.is_sound());
    Ok(())
}

#[test]
fn an_uninterrupted_read_is_complete() -> Result<()> {
    let (db, c) = database(Layout::Leveled, "g")?;
    for (_, read) in READS {
        interruptible(|| false, || read(&db, &c))?;
    }
    let count = interruptible(|| false, || c.find(&Query::new().count()))?.count();
    assert_eq!(count, u64::from(RECORDS));
    Ok(())
}
