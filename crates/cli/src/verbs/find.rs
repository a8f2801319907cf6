//! `find`: records by their attributes.

use bolide::{
    AnswerRef, AttributePath, Collection, Explain, Filter, FindOptions, Order, Predicate, Query,
    SortDirection, Value, each_record_part,
};

use super::database::{self, LineMaker};
use crate::arguments::{ExplainForm, Find, OrderName};
use crate::failure::Failure;
use crate::output::{Fields, Format, Printer, print_objects, report};

/// The value of `--cursor` for the first page.
const START: &str = "start";

/// Runs one query.
pub(super) fn run(arguments: &Find) -> Result<(), Failure> {
    // Wrong usage is reported before the database is opened, except for unknown names of indexes.
    let is_spatial = !arguments.within.is_empty() || arguments.nearest.is_some();
    let early = if is_spatial { None } else { Some(query_of(arguments, |_| None)?) };
    let db = database::open_to_read(&arguments.db)?;
    let collection = database::collection(&db, &arguments.collection)?;
    let query = match early {
        Some(query) => query,
        None => query_of(arguments, |name| attribute_of(&collection, name))?,
    };
    let damaged = database::damaged_indexes(&collection);
    let explain = if arguments.count {
        let options = FindOptions::default().measure(arguments.explain.is_some());
        let answers = collection
            .find_with(&query, &options)
            .map_err(|error| known_indexes(&collection, arguments, error))?;
        let fields: Fields = vec![("count".into(), answers.count().into())];
        print_objects(arguments.output.form(), &[fields])?;
        answers.explain().clone()
    } else {
        print_answers(&collection, &query, arguments)?
    };
    database::note_damage_since(&collection, &arguments.collection, &damaged);
    // A damaged index was noted already, and might serve.
    let any_damaged = !database::damaged_indexes(&collection).is_empty();
    let has_conditions = !query.predicates().is_empty() || !query.terms().is_empty();
    if arguments.limit == Some(0) {
        report!("note: --limit 0 allows no answer: nothing was read");
    } else if explain.answers == 0 && collection.estimate(&query)?.is_exact {
        report!("note: nothing was read: the collection is empty, or the condition is never true");
    } else if explain.is_full_scan() && has_conditions && !explain.scans_by_choice && !any_damaged {
        report!("note: no index serves this query: the whole collection was read (see `bolide index add`)");
    }
    if explain.answers == 0 && arguments.limit != Some(0) {
        note_types(&arguments.eq);
    }
    match arguments.explain {
        Some(ExplainForm::Text) => report!("{}", explain.to_string().trim_end()),
        Some(ExplainForm::Json) => report!("{}", explain.to_json()),
        None => {}
    }
    Ok(())
}

/// Notes after an empty answer that a text may have been meant instead of a number, a truth value or null.
fn note_types(equalities: &[String]) {
    for text in equalities {
        let Some((path, value)) = text.split_once('=') else { continue };
        let is_scalar = matches!(
            serde_json::from_str(value),
            Ok(serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_))
        );
        if value == "null" {
            report!("note: null is a value; for records without one write --where '{path} is absent'");
        } else if is_scalar {
            report!("note: `{value}` is no text here; for the text write --eq '{path}=\"{value}\"'");
        }
    }
}

/// Prints answers as they are found, so that memory is bounded for any number.
fn print_answers(collection: &Collection, query: &Query, arguments: &Find) -> Result<Explain, Failure> {
    let lines = LineMaker::new(collection);
    let mut printer = Printer::new(arguments.output.form());
    let options = FindOptions::default().measure(arguments.explain.is_some());
    let known = |error| known_indexes(collection, arguments, error);
    let mut answers = collection.answers(query, &options).map_err(known)?;
    while let Some(answer) = answers.next().map_err(known)? {
        let selected = match arguments.select.is_empty() {
            true => None,
            false => Some(selected_record(collection, query.selected(), answer)?),
        };
        let record = selected.as_deref().or(answer.record);
        lines.with_line(answer.key, Some(answer.sequence), record, |line| printer.line(line))?;
    }
    let explain = answers.outcome().into_explain();
    print_token(&explain, arguments, printer)?;
    Ok(explain)
}

/// The selected values as a record: under each path its value, or an array if it has several. Where the attribute has none,
/// the object or the array at the path, read from the record; nothing if there is none either.
fn selected_record(
    collection: &Collection,
    paths: &[AttributePath],
    answer: AnswerRef<'_>,
) -> Result<Vec<u8>, Failure> {
    // The database is open read-only: its records are those of the query.
    let has_none = answer.values.iter().any(Vec::is_empty);
    let record = if has_none { collection.get(answer.key)? } else { None };
    let parts = record.map(|record| each_record_part(&record, paths)).unwrap_or_default();
    let mut fields = Vec::with_capacity(paths.len());
    for (position, (path, values)) in paths.iter().zip(answer.values).enumerate() {
        if paths.iter().take(position).any(|earlier| earlier == path) {
            // An object has one field of a name.
            continue;
        }
        let value = match &values[..] {
            [] => parts.get(position).cloned().flatten(),
            [only] => Some(only.to_json().to_string()),
            several => {
                Some(serde_json::Value::Array(several.iter().map(Value::to_json).collect()).to_string())
            }
        };
        let Some(value) = value else { continue };
        fields.push(format!("{}:{value}", serde_json::Value::from(path.to_string())));
    }
    Ok(format!("{{{}}}", fields.join(",")).into_bytes())
}

/// Prints the cursor token of the next page, if pages were requested.
fn print_token(explain: &Explain, arguments: &Find, printer: Printer) -> Result<(), Failure> {
    printer.finish()?;
    let (Some(token), true) = (&explain.next, arguments.cursor.is_some()) else {
        return Ok(());
    };
    match arguments.output.form() {
        form @ Format::Ndjson => print_objects(form, &[vec![("cursor".into(), token.to_string().into())]]),
        Format::Table | Format::Csv => {
            report!("note: more with --cursor {token}");
            Ok(())
        }
    }
}

/// The spatial attribute of the index of this name.
fn attribute_of(collection: &Collection, name: &str) -> Option<AttributePath> {
    let index = collection.indexes().into_iter().find(|index| index.name() == name)?;
    index.spec().attributes().first().filter(|attribute| attribute.is_spatial()).cloned()
}

/// The query of the command line. `named` returns the attributes of indexes.
fn query_of(arguments: &Find, named: impl Fn(&str) -> Option<AttributePath>) -> Result<Query, Failure> {
    let wrong = |error: bolide::Error| Failure::usage(error.message());
    let mut query = Query::new().order(order_of(arguments.order));
    for text in &arguments.eq {
        query = query.predicate(Predicate::parse_equal(text).map_err(wrong)?);
    }
    for text in &arguments.range {
        query = query.predicate(Predicate::parse_range(text).map_err(wrong)?);
    }
    for text in &arguments.within {
        query = query.predicate(Predicate::parse_within(text, &named).map_err(wrong)?);
    }
    for text in &arguments.filter {
        query = query.filter(Filter::parse(text).map_err(wrong)?);
    }
    for text in &arguments.sort {
        let (path, direction) = sort_of(text)?;
        query = query.sort_by(path, direction);
    }
    if let Some(text) = &arguments.nearest {
        query = query.predicate(Predicate::parse_nearest(text, &named).map_err(wrong)?).order(Order::Nearest);
    }
    let is_sorted = order_of(arguments.order) != Order::Newest || !arguments.sort.is_empty();
    if is_sorted && query.predicates().iter().any(Predicate::is_nearest) {
        return Err(Failure::usage("`nearest` orders the answers: leave out --order and --sort"));
    }
    if let Some(limit) = arguments.limit {
        query = query.limit(limit);
    }
    if let Some(limit) = arguments.limit_per_value {
        query = query.limit_per_value(limit);
    }
    if !arguments.select.is_empty() {
        query = query.select(arguments.select.iter().map(String::as_str));
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
    if let Some(token) = arguments.cursor.as_deref().filter(|token| *token != START) {
        query = query.after(token.parse().map_err(wrong)?);
    }
    query.check().map_err(wrong)?;
    Ok(query)
}

/// Reads `PATH[:DIRECTION]`. A colon after a backslash belongs to the path.
fn sort_of(text: &str) -> Result<(&str, SortDirection), Failure> {
    let mut escaped = false;
    let colon = text.char_indices().filter(|(_, character)| {
        let found = !escaped && *character == ':';
        escaped = !escaped && *character == '\\';
        found
    });
    let Some((path, direction)) = colon.last().map(|(at, _)| (&text[..at], &text[at + 1..])) else {
        return Ok((text, SortDirection::Ascending));
    };
    match &*direction.trim().to_ascii_lowercase() {
        "asc" | "ascending" => Ok((path, SortDirection::Ascending)),
        "desc" | "descending" => Ok((path, SortDirection::Descending)),
        _ => Err(Failure::usage(format!(
            "--sort {text}: `{direction}` is not a direction: write asc or desc; a `:` in a field name has a backslash before it"
        ))),
    }
}

fn order_of(name: OrderName) -> Order {
    match name {
        OrderName::Newest => Order::Newest,
        OrderName::Oldest => Order::Oldest,
        OrderName::Value => Order::Value,
        OrderName::ValueDesc => Order::ValueDescending,
    }
}

/// The error, which for an unknown index name lists the existing indexes.
fn known_indexes(collection: &Collection, arguments: &Find, error: bolide::Error) -> Failure {
    if error.kind() != bolide::ErrorKind::NotFound || arguments.index.is_none() {
        return error.into();
    }
    let names: Vec<String> = collection.indexes().iter().map(|index| index.name().to_owned()).collect();
    let existing =
        if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    Failure::operation(format!("{}; {existing}", error.message()), error.advice())
}
