//! `demo`: real posts, a few queries, and a database for experiments.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use bolide::key::encode_string;
use bolide::{Collection, CollectionOptions, Db, IndexSpec, Options, Query, SyncMode};
use console::style;
use serde_json::{Value, json};

use super::database;
use super::load::{LoadOptions, load};
use crate::arguments::{BadRows, Demo};
use crate::failure::Failure;
use crate::input::Source;
use crate::output::figures;
use crate::row::{FieldPath, RowShape};

/// The records: see `data/README.md` for their source and licence.
static POSTS: &[u8] = include_bytes!("../../data/posts.ndjson.zst");
/// The collection of the posts.
const COLLECTION: &str = "posts";
/// The collection that marks a database as created by a demo, which the next demo may replace.
const MARK: &str = "made-by-demo";
/// The maximum length of a printed title, in characters.
const TITLE_CHARACTERS: usize = 64;

/// A query of the demo: its title, its options of `find`, and its form in the library.
struct DemoQuery {
    title: &'static str,
    options: &'static str,
    query: Query,
}

/// Loads the posts, runs the queries, prints further commands.
pub(super) fn run(arguments: &Demo) -> Result<(), Failure> {
    let dir = arguments.dir.as_path();
    let db = open(dir)?;
    let mut out = io::stdout().lock();
    let posts = load_posts(&mut out, &db, dir)?;
    let program = std::env::args().next().unwrap_or_else(|| "bolide".to_owned());
    for (number, query) in queries().into_iter().enumerate() {
        run_query(&mut out, &posts, number + 1, &query)?;
    }
    change_a_post(&mut out, &posts)?;
    drop(posts);
    db.flush()?;
    database::close(db)?;
    print_further_commands(&mut out, &program, dir)
}

/// Opens the demo's database; an earlier demo is emptied, anything else is refused.
fn open(dir: &Path) -> Result<Db, Failure> {
    let refused = |what: &str| {
        Failure::operation(
            format!("{} {what}", dir.display()),
            "choose another directory with --dir, or remove this one",
        )
    };
    let is_new = match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(refused(&format!("cannot be read: {error}"))),
    };
    if !is_new && !dir.join("CURRENT").exists() {
        return Err(refused("contains files that are no database"));
    }
    let db = Db::open(dir, Options::default())?;
    if is_new {
        db.create_collection(MARK, CollectionOptions::json())?;
        return Ok(db);
    }
    let names = db.collections();
    if !names.iter().any(|name| name == MARK) {
        return Err(refused("contains a database that no demo made"));
    }
    if names.iter().any(|name| name == COLLECTION) {
        db.drop_collection(COLLECTION)?;
    }
    Ok(db)
}

fn load_posts(out: &mut impl Write, db: &Db, dir: &Path) -> Result<Collection, Failure> {
    writeln!(out, "{}", style("Bolide demo: posts of 40 subreddits, 2008 to 2013").bold())?;
    writeln!(out, "  github.com/umbrae/reddit-top-2.5-million, Public Domain Dedication and License\n")?;
    writeln!(out, "Loading them into {}, with an index on `subreddit`", dir.display())?;
    out.flush()?;
    let options = database::json_collection().index(spec("subreddit")?);
    let posts = db.create_collection(COLLECTION, options)?;
    let key = FieldPath::parse("id").map_err(Failure::usage)?;
    let load_options = LoadOptions {
        shape: RowShape::new(key, None),
        sync: SyncMode::Batch,
        bad_rows: BadRows::Stop,
        acknowledge: false,
    };
    let tally =
        load(db, &posts, Source::of_bytes("posts.ndjson.zst", POSTS)?, &load_options, &AtomicU64::new(0))?;
    let rows_a_second = figures::grouped(figures::per_second(tally.rows, tally.duration));
    writeln!(
        out,
        "  {} posts in {}: {rows_a_second} posts/s",
        figures::grouped(tally.rows),
        figures::time(tally.duration)
    )?;
    writeln!(out, "Adding indexes now that the data is there")?;
    for text in ["score", "domain:composite:maintenance=synchronous"] {
        out.flush()?;
        let (_, duration) = timed(|| Ok(posts.create_index(spec(text)?)?))?;
        writeln!(out, "  {text} in {}", figures::time(duration))?;
    }
    Ok(posts)
}

fn spec(text: &str) -> Result<IndexSpec, Failure> {
    database::parse_spec(text)
}

fn queries() -> Vec<DemoQuery> {
    let newest = |title, options, query| DemoQuery { title, options, query };
    vec![
        newest(
            "The newest posts of r/space",
            "--eq subreddit=space --limit 5",
            Query::new().eq("subreddit", "space").limit(5),
        ),
        newest(
            "The newest posts anywhere that reached a score of 2000",
            "--range score=2000.. --limit 5",
            Query::new().range("score", 2000..).limit(5),
        ),
        newest(
            "The newest videos of r/Jazz",
            "--eq subreddit=Jazz --eq domain=youtube.com --limit 5",
            Query::new().eq("subreddit", "Jazz").eq("domain", "youtube.com").limit(5),
        ),
        newest(
            "How many pictures are hosted at imgur",
            "--eq domain=i.imgur.com --count",
            Query::new().eq("domain", "i.imgur.com").count(),
        ),
        newest(
            "The newest posts with 500 comments (no index serves this: all posts are read)",
            "--range comments=500.. --limit 3",
            Query::new().range("comments", 500..).limit(3),
        ),
    ]
}

/// Runs one query and prints its answers with their cost.
fn run_query(
    out: &mut impl Write,
    posts: &Collection,
    number: usize,
    query: &DemoQuery,
) -> Result<(), Failure> {
    writeln!(out, "\n{}", style(format!("{number}. {}", query.title)).bold())?;
    writeln!(out, "   find {}", style(query.options).cyan())?;
    let (answers, duration) = timed(|| Ok(posts.find(&query.query)?))?;
    for answer in answers.iter() {
        print_post(out, answer.record.as_deref().unwrap_or_default())?;
    }
    let explain = answers.explain();
    let access = match &explain.index {
        Some(index) => format!("index {index}"),
        None => "no index".to_owned(),
    };
    let what = if answers.is_empty() {
        format!("{} counted", figures::grouped(answers.count()))
    } else {
        format!("{} newest", answers.len())
    };
    let candidates = figures::grouped(explain.candidates);
    writeln!(
        out,
        "   {}",
        style(format!("{what} in {}: {access}, {candidates} candidates", figures::time(duration))).green()
    )?;
    Ok(())
}

/// Shows that a change is visible at once, by the old and by the new value.
fn change_a_post(out: &mut impl Write, posts: &Collection) -> Result<(), Failure> {
    writeln!(out, "\n{}", style("6. A post changes its subreddit: the newest write is first").bold())?;
    let oldest = Query::new().eq("subreddit", "space").order(bolide::Order::Oldest).limit(1);
    let answers = posts.find(&oldest)?;
    let Some(answer) = answers.iter().next() else { return Ok(()) };
    let Ok(mut post) = serde_json::from_slice::<Value>(answer.record.as_deref().unwrap_or_default()) else {
        return Ok(());
    };
    post["subreddit"] = json!("math");
    let key = post["id"].as_str().map(encode_string).unwrap_or_default();
    posts.put(&key, post.to_string().as_bytes())?;
    writeln!(out, "   put, then find {}", style("--eq subreddit=math --limit 2").cyan())?;
    for answer in posts.find(&Query::new().eq("subreddit", "math").limit(2))?.iter() {
        print_post(out, answer.record.as_deref().unwrap_or_default())?;
    }
    let left = posts.find(
        &Query::new().eq("subreddit", "space").eq("id", post["id"].as_str().unwrap_or_default()).count(),
    )?;
    writeln!(out, "   {}", style(format!("still found under r/space: {}", left.count())).green())?;
    Ok(())
}

fn print_post(out: &mut impl Write, record: &[u8]) -> Result<(), Failure> {
    let post: Value = serde_json::from_slice(record).unwrap_or_default();
    let text = |field: &str| post[field].as_str().unwrap_or_default().to_owned();
    let title = text("title").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    let mut title: String = title.chars().filter(|character| !character.is_control()).collect();
    if title.chars().count() > TITLE_CHARACTERS {
        title = title.chars().take(TITLE_CHARACTERS - 1).collect();
        title.push('…');
    }
    let day = day_of(post["created_ms"].as_i64().unwrap_or_default());
    writeln!(out, "   {day}  {:>5}  {:<18} {title}", post["score"].to_string(), text("subreddit"))?;
    Ok(())
}

fn print_further_commands(out: &mut impl Write, program: &str, dir: &Path) -> Result<(), Failure> {
    let dir = dir.display();
    writeln!(out, "\n{}", style(format!("The database stays in {dir}. Further commands:")).bold())?;
    for rest in [
        format!("find {dir} posts --eq subreddit=vim --limit 3"),
        format!("find {dir} posts --range score=3000.. --order value-desc --limit 5 --explain"),
        format!("index add {dir} posts flair"),
        format!("stats {dir}"),
        format!("check {dir} --deep"),
    ] {
        writeln!(out, "  {program} {rest}")?;
    }
    out.flush()?;
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<(T, Duration), Failure> {
    let started = Instant::now();
    let done = work()?;
    Ok((done, started.elapsed()))
}

/// The day of a time in milliseconds since 1970-01-01 UTC, as `2013-08-12`.
fn day_of(millis: i64) -> String {
    // The civil calendar from a count of days: eras of 400 years that begin in March.
    let days = millis.div_euclid(86_400_000) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_match_the_calendar() {
        for (millis, day) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (951_782_400_000, "2000-02-29"),
            (1_376_265_600_000, "2013-08-12"),
            (4_102_444_800_000, "2100-01-01"),
        ] {
            assert_eq!(day_of(millis), day);
        }
    }
}
