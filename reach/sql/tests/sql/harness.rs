//! Databases, sessions and rows for the tests.

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bolide::{CollectionOptions, Components, Db, Options};
use bolide_sql::{SessionOptions, SqlError, SqlResult, SqlSession};

/// A session on a new database in memory.
pub(crate) struct Harness {
    pub(crate) db: Db,
    pub(crate) session: SqlSession,
}

impl Harness {
    pub(crate) fn new() -> Self {
        let db = Db::open_with("db", Options::default(), Components::in_memory()).unwrap();
        let session = SqlSession::new(db.clone(), &SessionOptions::default().partitions(2)).unwrap();
        Self { db, session }
    }

    /// The posts of the design: authors, subreddits, scores, tags and nested fields.
    pub(crate) fn with_posts(count: u64) -> Self {
        let harness = Self::new();
        let mut options = CollectionOptions::default();
        for index in ["subreddit", "score", "tags[*]", "user.id", "author"] {
            options = options.index(index.parse().unwrap());
        }
        let posts = harness.db.create_collection("posts", options).unwrap();
        for at in 0..count {
            let record = format!(
                r#"{{"subreddit":"s{}","author":"a{}","score":{},"tags":["t{}","u{}"],"user":{{"id":{}}},"title":"post {at}"}}"#,
                at % 7,
                at % 50,
                (at * 37) % 1_000,
                at % 5,
                at % 3,
                at % 11
            );
            posts.put(format!("p{at:05}").as_bytes(), record.as_bytes()).unwrap();
        }
        harness
    }

    /// The rows of the last statement of `text`, one text each.
    pub(crate) async fn rows(&mut self, text: &str) -> Vec<String> {
        match self.session.query(text).await {
            Ok(batches) => texts(&batches),
            Err(error) => panic!("{text}: {error} ({:?})", error.state()),
        }
    }

    /// The result of a statement without rows.
    pub(crate) async fn done(&mut self, statement: &str) -> String {
        match self.session.execute(statement).await {
            Ok(SqlResult::Done(tag)) => tag,
            Ok(other) => panic!("{statement}: {other:?}"),
            Err(error) => panic!("{statement}: {error}"),
        }
    }

    /// The error of a statement.
    pub(crate) async fn error(&mut self, statement: &str) -> SqlError {
        match self.session.query(statement).await {
            Ok(batches) => panic!("{statement} has no error: {:?}", texts(&batches)),
            Err(error) => error,
        }
    }

    /// The physical plan of a query, without the numbers that depend on estimates.
    pub(crate) async fn plan(&mut self, query: &str) -> String {
        let rows = self.rows(&format!("EXPLAIN {query}")).await;
        let plan = rows.iter().find(|row| row.starts_with("physical_plan")).expect("a physical plan");
        plan.to_owned()
    }
}

/// The rows as text, with `|` between the values.
pub(crate) fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|column| column.value(row).to_string()).collect();
            rows.push(values.join("|"));
        }
    }
    rows
}

/// A runtime for one test.
pub(crate) fn block_on<F: Future>(test: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}
