//! Estimates without reads: the cost of a query, and key ranges of about equal size.

use std::ops::Bound;

use bolide_base::{Error, Result};
use bolide_index::{Lookup, Query, QueryEstimate};
use bolide_lsm::TreeView;

use crate::find::usable_indexes;
use crate::find_options::FindOptions;
use crate::handle::Collection;

/// Maximum number of parts of a split.
const MAX_PARTS: usize = 4_096;
/// Maximum length of a boundary between parts, in bytes.
const MAX_BOUNDARY_BYTES: usize = 64;

/// A range of keys, which [`Collection::range`](crate::Collection::range) accepts.
pub type KeySplit = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Collection {
    /// The estimated number of answers to `query`, its cost and its index, as the planner sees them. Reads no data block:
    /// the blocks of indexes of sstables that are open already are in memory.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    ///
    /// ```
    /// use bolide::{CollectionOptions, Components, Db, Options, Query};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let posts = db.create_collection("posts", CollectionOptions::default().index("score".parse()?))?;
    /// for key in 0..20 {
    ///     posts.put(&[key], format!(r#"{{"score":{key}}}"#).as_bytes())?;
    /// }
    /// let estimate = posts.estimate(&Query::new().range("score", 5..10))?;
    /// assert_eq!((estimate.records, estimate.indexes), (5, vec!["score".to_owned()]));
    /// assert!(posts.estimate(&Query::new().limit(0))?.is_exact);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn estimate(&self, query: &Query) -> Result<QueryEstimate> {
        self.state.check_live()?;
        let view = self.handle.engine.read_view();
        let set = self.state.indexes();
        let usable = usable_indexes(&set, query, view.sequence())?;
        let clock = self.query_clock();
        let lookup = Lookup {
            view: &view,
            table: self.state.tree,
            extractor: set.extractor().ok(),
            indexes: &usable,
            options: self.lookup_options(&FindOptions::default(), &clock),
        };
        lookup.estimate(query)
    }

    /// Splits all keys into at most `parts` ranges with about equal bytes of records, ascending and without gaps, for
    /// threads that read the collection together. Reads no data block.
    ///
    /// Sizes are estimated as by the planner: an error of some data blocks for each sorted run. There are fewer ranges if
    /// the collection is small, and at most 4,096.
    ///
    /// # Errors
    /// `InvalidInput` for no parts; `Corruption` or `Io` from opening an sstable; `NotFound` if the collection was
    /// dropped.
    ///
    /// ```
    /// use bolide::{Components, Db, Options};
    /// let db = Db::open_with("db", Options::default(), Components::in_memory())?;
    /// let notes = db.create_collection("notes", Default::default())?;
    /// for key in 0..2_000_u32 {
    ///     notes.put(format!("key{key:05}").as_bytes(), b"{}")?;
    /// }
    /// let parts = notes.split(4)?;
    /// assert_eq!(parts.len(), 4);
    /// let counts: Vec<usize> =
    ///     parts.into_iter().map(|part| Ok(notes.range(part)?.count())).collect::<bolide::Result<_>>()?;
    /// assert_eq!(counts.iter().sum::<usize>(), 2_000);
    /// # Ok::<(), bolide::Error>(())
    /// ```
    pub fn split(&self, parts: usize) -> Result<Vec<KeySplit>> {
        if parts == 0 {
            return Err(Error::invalid_input("a split has at least one part"));
        }
        self.state.check_live()?;
        let view = self.handle.engine.read_view();
        let table = view.tree(self.state.tree)?;
        let sizes = Sizes::of(&table)?;
        let parts = parts.min(MAX_PARTS);
        let total = sizes.below(None)?;
        if total < 1.0 {
            return Ok(vec![(Bound::Unbounded, Bound::Unbounded)]);
        }
        let mut ranges: Vec<KeySplit> = Vec::with_capacity(parts);
        let mut low = Bound::Unbounded;
        for part in 1..parts {
            let boundary = sizes.boundary(total * part as f64 / parts as f64, total / parts as f64)?;
            let is_above = match &low {
                Bound::Included(low) => *low < boundary,
                _ => !boundary.is_empty(),
            };
            if is_above {
                ranges.push((low, Bound::Excluded(boundary.clone())));
                low = Bound::Included(boundary);
            }
        }
        ranges.push((low, Bound::Unbounded));
        Ok(ranges)
    }
}

/// The sizes of ranges of keys, in entries of average size.
struct Sizes<'t> {
    table: &'t TreeView,
    /// Average bytes of an entry in sstables.
    entry_bytes: f64,
}

impl<'t> Sizes<'t> {
    fn of(table: &'t TreeView) -> Result<Self> {
        let bytes = std::cell::Cell::new((0_u64, 0_u64));
        table.estimate_weighed(&[], None, &|meta| {
            let (sum, entries) = bytes.get();
            bytes.set((sum + meta.file_bytes, entries + meta.entries));
            1.0
        })?;
        let (sum, entries) = bytes.get();
        Ok(Self { table, entry_bytes: sum as f64 / entries.max(1) as f64 })
    }

    /// The size of all keys below `end`.
    fn below(&self, end: Option<&[u8]>) -> Result<f64> {
        // Entries of memtables count as average ones.
        let weigh = |meta: &bolide_lsm::version::TableMeta| {
            meta.file_bytes as f64 / meta.entries.max(1) as f64 / self.entry_bytes.max(1.0)
        };
        Ok(self.table.estimate_weighed(&[], end, &weigh)?.entries as f64)
    }

    /// A key with about `wanted` below it. Each byte is found by a binary search, until the size is within a hundredth of
    /// `part`.
    fn boundary(&self, wanted: f64, part: f64) -> Result<Vec<u8>> {
        let mut key: Vec<u8> = Vec::new();
        while key.len() < MAX_BOUNDARY_BYTES {
            // The largest last byte with at most the wanted size below it.
            let (mut low, mut high) = (0_u16, 256_u16);
            let mut size = 0.0;
            key.push(0);
            while high - low > 1 {
                let middle = u16::midpoint(low, high);
                if let Some(last) = key.last_mut() {
                    *last = middle as u8;
                }
                let below = self.below(Some(&key))?;
                if below <= wanted {
                    (low, size) = (middle, below);
                } else {
                    high = middle;
                }
            }
            if let Some(last) = key.last_mut() {
                *last = low as u8;
            }
            if wanted - size <= part / 100.0 {
                break;
            }
        }
        Ok(key)
    }
}
