//! Reads of a transaction equal those of a database in which its writes were done, through every kind of index.

mod support;

use std::ops::ControlFlow;

use bolide::storage::SimRng;
use bolide::{
    Answer, Collection, Condition, Cursor, Db, Filter, FindOptions, IterOptions, Order, Query, Result,
    SortDirection, Transaction, TransactionOptions,
};

use support::Row;

const INDEXES: [&str; 9] = [
    "in.number:composite",
    "in.number:composite:maintenance=synchronous",
    "in.number:composite:validation=key-index",
    "in.number:lazy",
    "in.number:eager",
    "in.number:embedded",
    "in.number:next",
    "in.number:ps-tree",
    "",
];

fn key(rng: &mut SimRng) -> Vec<u8> {
    format!("k{:02}", rng.below(40)).into_bytes()
}

fn key_range(rng: &mut SimRng) -> (Vec<u8>, Vec<u8>) {
    let (one, two) = (key(rng), key(rng));
    if one < two { (one, two) } else { (two, one) }
}

/// A write to `done` at once, and to `tx` too if there is one.
fn write(rng: &mut SimRng, done: &Collection, notes: &Collection, tx: Option<&Transaction>) -> Result<()> {
    let (at, json) = (key(rng), Row::random(rng).json());
    match rng.below(12) {
        0 => {
            let (start, end) = key_range(rng);
            done.delete_range(&start..&end)?;
            match tx {
                Some(tx) => tx.delete_range(notes, &start..&end)?,
                None => notes.delete_range(&start..&end)?,
            }
        }
        1..4 => {
            done.delete(&at)?;
            match tx {
                Some(tx) => tx.delete(notes, &at)?,
                None => notes.delete(&at)?,
            }
        }
        _ => {
            done.put(&at, &json)?;
            match tx {
                Some(tx) => tx.put(notes, &at, &json)?,
                None => notes.put(&at, &json)?,
            }
        }
    }
    Ok(())
}

fn query(rng: &mut SimRng) -> Query {
    let low = rng.below(40) as i64 - 25;
    let mut query = match rng.below(5) {
        0 => Query::new(),
        1 => Query::new().eq("in.number", low),
        2 => {
            Query::new().eq("group", format!("g{}", rng.below(4)).as_str()).range("in.number", low..low + 30)
        }
        3 => Query::new().eq("tags[*]", format!("t{}", rng.below(5)).as_str()).range("in.number", ..low + 20),
        _ => Query::new().range("in.number", low..=low + rng.below(40) as i64),
    };
    if rng.one_in(3) {
        let filter = [
            format!("in.number = {low} or group in (\"g0\", \"g2\")"),
            format!("not (in.number > {low} and tags[*] = \"t1\")"),
            "not (group exists) or in.number is null".to_owned(),
            format!("in.number in ({low}, {}, 7) and tags[*] starts with \"t\"", low + 1),
        ];
        let text = rng.pick(&filter).unwrap();
        query = query.filter(Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")));
    }
    let has_range = query.predicates().iter().any(|predicate| predicate.is_range());
    let orders = [Order::Newest, Order::Oldest, Order::Value, Order::ValueDescending];
    query = query.order(*rng.pick(&orders).unwrap());
    if rng.one_in(2) {
        query = query.limit(rng.below(12) as usize);
    }
    if has_range && rng.one_in(4) {
        query = query.limit_per_value(1 + rng.below(3) as usize);
    } else if rng.one_in(4) {
        query =
            query.sort_by("group", SortDirection::Descending).sort_by("in.number", SortDirection::Ascending);
    }
    match rng.below(5) {
        0 => query.keys_only(),
        1 => query.select(["group", "in.number"]),
        2 => query.count(),
        _ => query,
    }
}

/// Answers without their sequence numbers.
fn contents(answers: &[Answer]) -> Vec<Answer> {
    answers.iter().map(|answer| Answer { sequence: 0, ..answer.clone() }).collect()
}

fn compare_queries(rng: &mut SimRng, tx: &Transaction, notes: &Collection, done: &Collection) -> Result<()> {
    for _ in 0..12 {
        let query = query(rng);
        let (want, got) = (done.find(&query)?, tx.find(notes, &query)?);
        assert_eq!(contents(&got), contents(&want), "{query:?}");
        assert_eq!(got.count(), want.count(), "{query:?}");
        compare_prepared(tx, notes, &query, &want)?;
        let limit = 1 + rng.below(4) as usize;
        if query.projection() == bolide::Projection::Count {
            continue;
        }
        let all = query.clone().limit(usize::MAX);
        let want = contents(&done.find(&all)?);
        let (mut pages, mut page) = (Vec::new(), all.clone().limit(limit));
        loop {
            let found = tx.find(notes, &page)?;
            pages.extend(contents(&found));
            let Some(token) = found.next_token() else { break };
            page = all.clone().limit(limit).after(token.clone());
        }
        assert_eq!(pages, want, "pages of {limit}: {query:?}");
    }
    Ok(())
}

/// A prepared query has the same answers, if the query can be prepared.
fn compare_prepared(tx: &Transaction, notes: &Collection, query: &Query, want: &[Answer]) -> Result<()> {
    let value = query.predicates().iter().find_map(|predicate| match predicate.condition() {
        Condition::Equal(value) => Some(value.clone()),
        _ => None,
    });
    let Some(value) = value else { return Ok(()) };
    let mut prepared = notes.prepare(query.clone(), FindOptions::default())?;
    let mut got = Vec::new();
    tx.visit(&mut prepared, &value, |answer| {
        got.push(answer.to_answer());
        Ok(ControlFlow::Continue(()))
    })?;
    assert_eq!(contents(&got), contents(want), "prepared: {query:?}");
    Ok(())
}

fn compare_keys(rng: &mut SimRng, tx: &Transaction, notes: &Collection, done: &Collection) -> Result<()> {
    for _ in 0..10 {
        let at = key(rng);
        assert_eq!(tx.get(notes, &at)?, done.get(&at)?);
    }
    let (start, end) = key_range(rng);
    let options = IterOptions::default().range(&start..&end);
    let mut cursor = tx.cursor(notes, &options)?;
    let mut want: Cursor = done.cursor(&options)?;
    for _ in 0..30 {
        let at = key(rng);
        let moves = rng.below(10);
        match moves {
            0 => (cursor.seek_to_first()?, want.seek_to_first()?),
            1 => (cursor.seek_to_last()?, want.seek_to_last()?),
            2 => (cursor.seek(&at)?, want.seek(&at)?),
            3 => (cursor.seek_for_prev(&at)?, want.seek_for_prev(&at)?),
            4..7 => (cursor.next()?, want.next()?),
            _ => (cursor.prev()?, want.prev()?),
        };
        let (got, want) =
            ((cursor.valid(), cursor.key(), cursor.value()), (want.valid(), want.key(), want.value()));
        assert_eq!(got, want, "move {moves}");
    }
    let mut iter = tx.range(notes, &start..&end)?;
    let mut want = done.range(&start..&end)?;
    loop {
        let (got, want) = match rng.one_in(2) {
            true => (iter.next(), want.next()),
            false => (iter.next_back(), want.next_back()),
        };
        let (got, want) = (got.transpose()?, want.transpose()?);
        assert_eq!(got, want);
        if want.is_none() {
            return Ok(());
        }
    }
}

fn compare(seed: u64, index: &str) -> Result<()> {
    compare_with(seed, index, None)
}

fn compare_with(seed: u64, index: &str, flaw: Option<bolide::TransactionFlaw>) -> Result<()> {
    let mut rng = SimRng::new(seed);
    let db = Db::open_with("db", support::tiny(), support::components(seed).transaction_flaw(flaw))?;
    let mut options = support::tiny_collection();
    if !index.is_empty() {
        options = options.index(format!("i={index}").parse()?);
    }
    let notes = db.create_collection("notes", options)?;
    let done = db.create_collection("done", support::tiny_collection())?;
    for _ in 0..rng.below(150) {
        write(&mut rng, &done, &notes, None)?;
    }
    if rng.one_in(3) {
        db.flush()?;
    }
    let tx = db.begin(TransactionOptions::default())?;
    for _ in 0..4 {
        for _ in 0..rng.below(8) {
            write(&mut rng, &done, &notes, Some(&tx))?;
        }
        compare_queries(&mut rng, &tx, &notes, &done)?;
        compare_keys(&mut rng, &tx, &notes, &done)?;
    }
    tx.commit()?;
    assert_eq!(support::dump(&notes), support::dump(&done));
    for _ in 0..10 {
        let query = query(&mut rng);
        assert_eq!(contents(&notes.find(&query)?), contents(&done.find(&query)?), "{query:?}");
    }
    assert!(db.check(true)?.is_sound());
    Ok(())
}

#[test]
fn reads_see_own_writes_through_every_kind_of_index() {
    let base = support::seed() * 1_000;
    for index in INDEXES {
        for seed in base..base + 40 {
            let context = |error| panic!("seed {seed}, {index}: {error}");
            compare(seed, index).unwrap_or_else(context);
        }
    }
}

/// The comparison finds records of the snapshot that are returned although the transaction has replaced them.
#[test]
fn a_planted_flaw_is_found() {
    let find = |seed| {
        let run = || compare_with(seed, "in.number:composite", Some(bolide::TransactionFlaw::StaleOwnWrites));
        std::panic::catch_unwind(run).is_err()
    };
    assert!((0..10).any(find));
}
