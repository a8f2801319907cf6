//! `find`: records by their attributes.

use std::ops::ControlFlow;

use bolide::{Collection, Explain, FindOptions, Order, Predicate, Query};

use super::database::{self, LineMaker};
use crate::arguments::{Find, OrderName};
use crate::failure::Failure;
use crate::output::{Fields, Printer, print_objects};

/// Answers one question.
pub(super) fn run(arguments: &Find) -> Result<(), Failure> {
    let query = query_of(arguments)?;
    let db = database::open_to_read(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let explain = if arguments.count {
        let options = FindOptions::default().measure(arguments.explain);
        let answers = collection
            .find_with(&query, &options)
            .map_err(|error| known_indexes(&collection, arguments, error))?;
        let fields: Fields = vec![("count".into(), answers.count().into())];
        print_objects(arguments.output.form(), &[fields])?;
        answers.explain().clone()
    } else {
        print_answers(&collection, &query, arguments)?
    };
    if explain.is_full_scan() {
        eprintln!(
            "note: no index serves this question: the whole collection was read (see `bolide index add`)"
        );
    }
    if arguments.explain {
        eprint!("{explain}");
        let cache = db.stats().cache;
        eprintln!("blocks        {} found in the cache, {} read from files", cache.hits, cache.misses);
    }
    Ok(())
}

/// Prints answers as they come, so that memory stays bounded however many there are.
fn print_answers(collection: &Collection, query: &Query, arguments: &Find) -> Result<Explain, Failure> {
    let lines = LineMaker::new(collection);
    let mut printer = Printer::new(arguments.output.form());
    let mut failed = None;
    let options = FindOptions::default().measure(arguments.explain);
    let explain = collection.find_each(query, &options, |answer| {
        let record = answer.record.as_deref();
        match lines.with_line(&answer.key, Some(answer.sequence), record, |line| printer.line(line)) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(failure) => {
                failed = Some(failure);
                Ok(ControlFlow::Break(()))
            }
        }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let explain = explain.map_err(|error| known_indexes(collection, arguments, error))?;
    printer.finish()?;
    Ok(explain)
}

/// The question that the command line asks.
fn query_of(arguments: &Find) -> Result<Query, Failure> {
    for (given, name) in [
        (!arguments.within.is_empty(), "--within"),
        (arguments.limit_per_value.is_some(), "--limit-per-value"),
        (arguments.cursor.is_some(), "--cursor"),
    ] {
        if given {
            return Err(Failure::usage(format!("{name} is not available in this version")));
        }
    }
    let wrong = |error: bolide::Error| Failure::usage(error.message());
    let mut query = Query::new().order(order_of(arguments.order));
    for text in &arguments.eq {
        query = query.predicate(Predicate::parse_equal(text).map_err(wrong)?);
    }
    for text in &arguments.range {
        query = query.predicate(Predicate::parse_range(text).map_err(wrong)?);
    }
    if let Some(limit) = arguments.limit {
        query = query.limit(limit);
    }
    if let Some(name) = &arguments.index {
        query = query.using_index(name);
    }
    if arguments.keys_only {
        query = query.keys_only();
    }
    if arguments.count {
        query = query.count();
    }
    Ok(query)
}

fn order_of(name: OrderName) -> Order {
    match name {
        OrderName::Newest => Order::Newest,
        OrderName::Oldest => Order::Oldest,
        OrderName::Value => Order::Value,
        OrderName::ValueDesc => Order::ValueDescending,
    }
}

/// Where an index was asked for by name and there is none, the message says which there are.
fn known_indexes(collection: &Collection, arguments: &Find, error: bolide::Error) -> Failure {
    if error.kind() != bolide::ErrorKind::NotFound || arguments.index.is_none() {
        return error.into();
    }
    let names: Vec<String> = collection.indexes().iter().map(|index| index.name().to_owned()).collect();
    let there =
        if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    Failure::operation(format!("{}; {there}", error.message()), error.kind().advice())
}
