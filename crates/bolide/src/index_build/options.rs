//! Options of an index build, and the handle of a build in the background.

use std::sync::Arc;

use bolide_base::Result;
use bolide_storage::Runtime;

use crate::index_set::Index;
use crate::progress::BuildProgress;

/// Settings of an index build.
///
/// ```
/// use bolide::{BuildOptions, Components, Db, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", Default::default())?;
/// let gently = BuildOptions::default().bytes_per_second(4 << 20);
/// posts.create_index_with("score".parse()?, &gently)?;
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildOptions {
    /// See [`records_per_second`](Self::records_per_second()).
    pub records_per_second: Option<u64>,
    /// See [`bytes_per_second`](Self::bytes_per_second()).
    pub bytes_per_second: Option<u64>,
    /// See [`checkpoint_bytes`](Self::checkpoint_bytes()).
    pub checkpoint_bytes: u64,
    /// See [`leaves_old_sstables`](Self::leaves_old_sstables()).
    pub leaves_old_sstables: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            records_per_second: None,
            bytes_per_second: None,
            checkpoint_bytes: 8 << 20,
            leaves_old_sstables: false,
        }
    }
}

impl BuildOptions {
    /// The maximum number of records read per second, at least one. Default: no limit. A build that a later open
    /// resumes retains the limit. Set one if a build must leave the disk and the processor to other work; writers never
    /// wait for a build, but share both with it.
    ///
    /// ```
    /// let options = bolide::BuildOptions::default().records_per_second(10_000);
    /// assert_eq!(options.records_per_second, Some(10_000));
    /// ```
    #[must_use]
    pub fn records_per_second(mut self, records: u64) -> Self {
        self.records_per_second = Some(records.max(1));
        self
    }

    /// The maximum number of bytes of keys and records read per second, at least one. Default: no limit; see
    /// [`records_per_second`](Self::records_per_second()).
    ///
    /// ```
    /// let options = bolide::BuildOptions::default().bytes_per_second(1 << 20);
    /// assert_eq!(options.bytes_per_second, Some(1 << 20));
    /// ```
    #[must_use]
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = Some(bytes.max(1));
        self
    }

    /// Makes the progress durable whenever this number of bytes has been read, and at least every two seconds; the work
    /// since then is repeated after a crash. Default: 8 MiB. Each costs a sync of the log and one of the manifest.
    ///
    /// ```
    /// assert_eq!(bolide::BuildOptions::default().checkpoint_bytes(1 << 20).checkpoint_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = bytes;
        self
    }

    /// Leaves existing sstables to compactions, instead of rewriting them for an index of kind `next`. Until then its
    /// queries read them completely. No effect for other kinds. Default: false: the sstables are rewritten one by one,
    /// at most [`bytes_per_second`](Self::bytes_per_second()).
    ///
    /// ```
    /// assert!(bolide::BuildOptions::default().leaves_old_sstables(true).leaves_old_sstables);
    /// ```
    #[must_use]
    pub fn leaves_old_sstables(mut self, leaves: bool) -> Self {
        self.leaves_old_sstables = leaves;
        self
    }

    /// The limits as the descriptor stores them. Those of a build that reads nothing are all ones.
    pub(crate) fn limits(&self) -> (u64, u64) {
        if self.leaves_old_sstables {
            return (u64::MAX, u64::MAX);
        }
        (self.records_per_second.unwrap_or(0), self.bytes_per_second.unwrap_or(0))
    }

    /// The settings of a build that is resumed under these limits.
    pub(crate) fn resumed((records, bytes): (u64, u64)) -> Self {
        if (records, bytes) == (u64::MAX, u64::MAX) {
            return Self::default().leaves_old_sstables(true);
        }
        let limit = |limit: u64| (limit > 0).then_some(limit);
        Self { records_per_second: limit(records), bytes_per_second: limit(bytes), ..Self::default() }
    }
}

/// An index that is being built in the background. The build continues after this is dropped.
///
/// It does not keep the database open: when the last handle of the database is dropped, the build stops, and the next
/// open continues it.
///
/// ```
/// use bolide::{BuildOptions, Components, Db, IndexState, Options};
/// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
/// let posts = db.create_collection("posts", Default::default())?;
/// posts.put(b"1", br#"{"score":3}"#)?;
/// let build = posts.create_index_background("score".parse()?, &BuildOptions::default())?;
/// build.wait()?;
/// assert_eq!((build.progress().state, build.progress().records), (IndexState::Ready, 1));
/// # Ok::<(), bolide::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct IndexBuild {
    pub(crate) index: Arc<Index>,
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl IndexBuild {
    /// The name of the index.
    pub fn name(&self) -> &str {
        &self.index.name
    }

    /// The progress. Costs a short lock.
    pub fn progress(&self) -> BuildProgress {
        self.index.progress.figures(self.runtime.now_micros())
    }

    /// Whether the build has ended, successfully or not.
    pub fn is_finished(&self) -> bool {
        self.index.progress.has_ended()
    }

    /// Waits until queries can use the index.
    ///
    /// # Errors
    /// The error of the build; `Conflict` if the index was dropped meanwhile; `Closed` if the database was closed: its
    /// next open continues.
    pub fn wait(&self) -> Result<()> {
        self.index.progress.wait()
    }
}
