//! Settings of one query.

use bolide_index::LookupOptions;

use crate::fetching::FetchSettings;
use crate::snapshot::Snapshot;

/// Settings of one query, apart from its predicates, order and limit.
///
/// ```
/// use bolide::{Components, Db, FindOptions, Options, Query};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", Default::default())?;
/// let before = db.snapshot();
/// posts.put(b"1", br#"{"score":3}"#)?;
/// let options = FindOptions::default().snapshot(&before);
/// assert!(posts.find_with(&Query::new().eq("score", 3), &options)?.is_empty());
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FindOptions {
    /// See [`snapshot`](Self::snapshot()).
    pub snapshot: Option<Snapshot>,
    /// See [`measure`](Self::measure()).
    pub measure: bool,
    /// See [`collect_bytes`](Self::collect_bytes()).
    pub collect_bytes: usize,
    /// See [`fetch_threads`](Self::fetch_threads()).
    pub fetch_threads: Option<usize>,
    /// See [`fetch_shared_from`](Self::fetch_shared_from()).
    pub fetch_shared_from: Option<usize>,
    /// See [`fetch_by_sequence`](Self::fetch_by_sequence()).
    pub fetch_by_sequence: Option<bool>,
}

impl Default for FindOptions {
    fn default() -> Self {
        Self {
            snapshot: None,
            measure: false,
            collect_bytes: LookupOptions::default().collect_bytes,
            fetch_threads: None,
            fetch_shared_from: None,
            fetch_by_sequence: None,
        }
    }
}

impl FindOptions {
    /// Reads as of `snapshot`. Default: as of now. An index that was created later is not used.
    #[must_use]
    pub fn snapshot(mut self, snapshot: &Snapshot) -> Self {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// Measures the time of each stage, for [`Answers::explain`](crate::Answers::explain). Default: off; reading the clock
    /// costs about as much as validating a candidate.
    ///
    /// ```
    /// use bolide::{Components, Db, FindOptions, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", Default::default())?;
    /// let answers = posts.find_with(&Query::new().eq("score", 3), &FindOptions::default().measure(true))?;
    /// assert!(answers.explain().is_full_scan());
    /// # Ok::<(), bolide::Error>(())
    /// ```
    #[must_use]
    pub fn measure(mut self, measure: bool) -> Self {
        self.measure = measure;
        self
    }

    /// Memory for sorting candidates, in bytes. Default: 32 MiB. With less, an order that the index does not yield may
    /// take several passes over it; the answers are the same.
    ///
    /// ```
    /// assert_eq!(bolide::FindOptions::default().collect_bytes(1 << 20).collect_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn collect_bytes(mut self, bytes: usize) -> Self {
        self.collect_bytes = bytes;
        self
    }

    /// Threads that fetch the records of this query together. Default: that of
    /// [`Options::fetch_threads`](crate::Options::fetch_threads()).
    ///
    /// ```
    /// assert_eq!(bolide::FindOptions::default().fetch_threads(1).fetch_threads, Some(1));
    /// ```
    #[must_use]
    pub fn fetch_threads(mut self, threads: usize) -> Self {
        self.fetch_threads = Some(threads);
        self
    }

    /// The number of records from which several threads share them. Default: that of
    /// [`Options::fetch_shared_from`](crate::Options::fetch_shared_from()).
    ///
    /// ```
    /// assert_eq!(bolide::FindOptions::default().fetch_shared_from(500).fetch_shared_from, Some(500));
    /// ```
    #[must_use]
    pub fn fetch_shared_from(mut self, records: usize) -> Self {
        self.fetch_shared_from = Some(records);
        self
    }

    /// Whether records are read by their sequence numbers. Default: that of
    /// [`Options::fetch_by_sequence`](crate::Options::fetch_by_sequence()).
    ///
    /// ```
    /// assert_eq!(bolide::FindOptions::default().fetch_by_sequence(false).fetch_by_sequence, Some(false));
    /// ```
    #[must_use]
    pub fn fetch_by_sequence(mut self, by_sequence: bool) -> Self {
        self.fetch_by_sequence = Some(by_sequence);
        self
    }

    pub(crate) fn fetch_settings(&self) -> FetchSettings {
        FetchSettings {
            threads: self.fetch_threads,
            shared_from: self.fetch_shared_from,
            by_sequence: self.fetch_by_sequence,
        }
    }
}
