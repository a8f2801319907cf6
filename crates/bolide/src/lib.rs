//! Bolide: an embedded key-value store with first-class secondary indexes.
//!
//! A database is a directory; a program opens it and accesses it directly, without a server. It contains
//! **collections** of records under primary keys. An **index** on any attribute, declared before or after the records
//! are written, makes queries by that attribute as fast as by key. A record and its index entries are written together,
//! atomically, to one log: an index always returns the same records as a scan of its collection.
//!
//! # A tour
//!
//! Open a database and put some records into a collection of JSON objects:
//!
//! ```
//! use bolide::{CollectionOptions, Db, Options, Order, Query, WriteBatch};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("posts.bolide");
//! let db = Db::open(&path, Options::default())?;
//! let options = CollectionOptions::default().index("subreddit".parse()?);
//! let posts = db.create_collection("posts", options)?;
//! posts.put(b"p1", br#"{"subreddit":"rust","score":12,"tags":["async","io"]}"#)?;
//! posts.put(b"p2", br#"{"subreddit":"rust","score":90,"tags":["io"]}"#)?;
//! posts.put(b"p3", br#"{"subreddit":"cpp","score":41,"tags":[]}"#)?;
//! assert_eq!(posts.get(b"p3")?.as_deref(), Some(&br#"{"subreddit":"cpp","score":41,"tags":[]}"#[..]));
//!
//! // The newest posts of a subreddit, newest first. The index has them in that order.
//! let newest = posts.find(&Query::new().eq("subreddit", "rust").limit(10))?;
//! assert_eq!(newest.iter().map(|answer| &answer.key[..]).collect::<Vec<_>>(), [b"p2", b"p1"]);
//!
//! // An index may be created later: it is filled from the existing records.
//! posts.create_index("tags[*]".parse()?)?;
//! posts.create_index("score".parse()?)?;
//! let query = Query::new().eq("tags[*]", "io").range("score", 10..).order(Order::Value);
//! assert_eq!(posts.find(&query)?.len(), 2);
//!
//! // Several writes at once, also over several collections: all or none.
//! let mut batch = WriteBatch::new();
//! batch.delete(&posts, b"p1")?;
//! batch.put(&posts, b"p4", br#"{"subreddit":"rust","score":1}"#)?;
//! db.write(batch)?;
//!
//! // A snapshot does not see what is written later. Iterators walk both ways.
//! let snapshot = db.snapshot();
//! posts.delete_range("p3"..)?;
//! assert_eq!(posts.iter()?.count(), 1);
//! assert_eq!(posts.find_at(&snapshot, &Query::new().eq("subreddit", "rust").count())?.count(), 2);
//!
//! // What was acknowledged is there after a reopen.
//! drop((snapshot, posts, db));
//! let db = Db::open(&path, Options::default())?;
//! assert_eq!(db.collection("posts")?.indexes().len(), 3);
//! assert!(db.check(true)?.is_sound());
//! # Ok::<(), bolide::Error>(())
//! ```
//!
//! # Overview
//!
//! | to | see |
//! |---|---|
//! | open, create, drop, copy, check | [`Db`] |
//! | copy what is left of a damaged database | [`repair()`] |
//! | read and write records, create indexes | [`Collection`], [`WriteBatch`], [`Snapshot`] |
//! | read and write in a transaction | [`Db::transaction`], [`Transaction`], [`WriteBatch::expect`] |
//! | iterate in key order | [`Iter`], [`Cursor`], [`IterOptions`] |
//! | query by attributes | [`Query`], [`Collection::find`], [`Collection::answers`], [`FindOptions`], [`PreparedQuery`] |
//! | declare an index | [`IndexSpec`] |
//! | tune | [`Options`], [`CollectionOptions`], [`WriteOptions`] |
//! | store records that are not JSON | [`RecordKind::Bytes`], [`AttributeExtractor`] |
//! | use keys that sort as numbers | [`key`] |
//! | handle errors | [`Error`], [`ErrorKind`] |
//! | look up size limits | [`limits`] |
//! | replace the file system, the clock or the threads | [`Components`], [`storage`] |
//!
//! # Durability
//!
//! Every acknowledged write survives the end of the process. [`SyncMode`] determines, per database and per write, what
//! survives a power cut. After a failed write or sync the handle refuses further writes ([`ErrorKind::Poisoned`]);
//! reads continue, and a reopen recovers the acknowledged writes. A full disk ([`ErrorKind::NoSpace`]) changes nothing:
//! free space and write again.
#![forbid(unsafe_code)]

mod advise;
mod aggregate;
mod answer_cursor;
mod back_fill;
mod background_errors;
mod bulk;
mod cached_read;
mod catalog;
mod catch_panic;
mod check;
mod collection;
mod collection_options;
mod collection_trees;
mod components;
mod damaged;
mod db;
mod expectation;
mod fetching;
mod find;
mod find_newest;
mod find_options;
mod handle;
mod index_build;
mod index_files;
mod index_set;
mod index_state;
mod index_writes;
mod iterator;
pub mod key;
mod key_range;
#[cfg(test)]
mod malformed_tests;
mod memory_plan;
mod open;
mod options;
mod owner;
mod paused_execution;
mod prepared;
mod progress;
mod salvage;
mod schema;
mod snapshot;
mod split;
mod stale_deletions;
mod stale_removal;
mod stale_share;
mod stats;
mod trace;
mod transaction;
mod write;
mod write_batch;

pub use bolide_base::interruption::interruptible;
pub use bolide_base::limits;
pub use bolide_base::{Error, ErrorKind, MAX_SEQUENCE, Result, SequenceNumber};
/// Advice on which index suits an attribute.
pub use bolide_index::advisor;
pub use bolide_index::costs::IndexCosts;
pub use bolide_index::figures::{FigureValue, Figures};
pub use bolide_index::{
    Alternative, AttributeExtractor, AttributePath, AttributePlan, AttributeValues, Condition, CursorToken,
    EmbeddedCosts, EmbeddedFigures, Explain, FetchCosts, FetchPoolStats, Filter, IndexCheck, IndexKind,
    IndexSpec, JsonExtractor, Maintenance, NextCosts, NextFigures, Order, Point, Predicate, Projection,
    PsCosts, Query, QueryEstimate, Rect, SortDirection, Value, ValueRange, ValueSlot, each_record_part,
    record_parts,
};
/// What a repair reports as lost.
pub use bolide_lsm::salvage::{Loss, LossKind, LostKeys};
pub use bolide_lsm::store::{CachedGet, LevelStats, StoreVerification, WriteCounters};
pub use bolide_lsm::version::{CutTail, WriterEnd};
pub use bolide_lsm::{Layout, RowCacheStats, SortedViews, SyncMode};
/// File systems, clocks, random numbers and threads, for [`Components`].
pub use bolide_memory::{MemorySize, MemoryUse, UsedMemory};
pub use bolide_storage as storage;
pub use bolide_table::{BlockCache, BlockCacheStats, Compression, ValueRef};

pub use aggregate::AttributeSummary;
pub use answer_cursor::{AnswerCursor, AnswerIter};
/// Index kinds: the list of all, and the registration of a program's own.
pub use bolide_index::kinds;
/// The space of an index of kind `ps-tree`; see [`Collection::index_space`].
pub use bolide_index::ps_tree::PsTreeStats as IndexSpace;
pub use bolide_index::ps_tree_index::PsTreeFigures;
pub use bulk::{BulkChange, BulkOptions, BulkPosition, BulkProgress};
pub use catalog::{IndexState, RecordKind, describe_descriptor, index_spec_of_descriptor};
pub use check::{CheckReport, CheckedIndex};
pub use collection::IndexInfo;
pub use collection_options::CollectionOptions;
pub use components::Components;
#[doc(hidden)]
pub use components::IndexWrapper;
pub use db::Db;
pub use expectation::Expected;
pub use find::{Answer, AnswerRef, Answers, Outcome};
pub use find_options::FindOptions;
pub use handle::Collection;
pub use index_build::options::{BuildOptions, IndexBuild};
pub use iterator::{Cursor, Iter, Record};
pub use key_range::KeyRange;
pub use options::{IterOptions, Options, WriteOptions};
pub use prepared::PreparedQuery;
pub use progress::BuildProgress;
pub use salvage::{RebuiltIndex, RepairOptions, RepairReport, RepairedCollection, repair};
pub use snapshot::Snapshot;
pub use split::KeySplit;
pub use stats::{CollectionStats, DbStats, IndexStats, MemoryStats, TreeFigures};
pub use trace::{CollectionTrace, Trace, TracedAnswers, TracedCondition, TracedOrder, TracedQuery};
#[doc(hidden)]
pub use transaction::TransactionFlaw;
pub use transaction::{
    Isolation, Savepoint, Transaction, TransactionAnswerIter, TransactionAnswers, TransactionCursor,
    TransactionIter, TransactionOptions,
};
pub use write_batch::WriteBatch;
