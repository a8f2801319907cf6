//! A table of JSON records with the indexes of several contenders, so that all bring the same records from the same
//! files.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bolide::{
    Collection, CollectionOptions, Components, Compression, Db, Explain, FindOptions, Options, Query, Rect,
    SyncMode, WriteBatch,
};

use super::cells::CELL;
use super::eager::EagerIndex;
use super::memo::UpdateMemo;
use super::stand_in::{CellQueries, StandIn, standing_in};
use crate::error::Result;

/// A structure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A tree in memory.
    Eager,
    /// Composite keys in an LSM tree, with an update memo.
    Composite,
    /// An index that lies in the sstables: its kind, with options.
    InSstables(&'static str),
}

/// What is compared, and what it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// The name in figures.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
}

/// An attribute that is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// Its path: a field of numbers, `rect(..)` or `point(.., ..)`.
    pub path: &'static str,
}

impl Attribute {
    /// True for rectangles and points. Records then have a [`CELL`] too.
    pub fn is_spatial(self) -> bool {
        self.path.ends_with(')')
    }
}

/// A query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueryFigures {
    /// For one value.
    Equal(f64),
    /// For all values between two, both included.
    Between(f64, f64),
    /// For what meets a window (`[min x, min y, max x, max y]`).
    Window([f64; 4]),
}

/// How a table is made.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Bytes of the block cache.
    pub cache_bytes: usize,
    /// Bytes of all memtables.
    pub memtable_bytes: usize,
    /// Bytes of an sstable.
    pub file_bytes: u64,
}

/// A table with indexes.
pub struct Table {
    db: Db,
    records: Collection,
    contenders: Vec<Contender>,
    attributes: Vec<Attribute>,
    /// Contender and attribute of each tree in memory.
    eager: Vec<(usize, usize, Arc<EagerIndex>)>,
    memo: Option<Arc<UpdateMemo>>,
    cells: Arc<CellQueries>,
}

impl Table {
    const RECORDS: &'static str = "records";

    /// A new one in the directory `path`, with an index of each contender on each attribute.
    ///
    /// # Errors
    /// `Io` where it cannot be made; `InvalidInput` for options that an index does not have.
    pub fn create(
        path: &Path,
        setting: Setting,
        components: Components,
        contenders: &[Contender],
        attributes: &[Attribute],
    ) -> Result<Self> {
        let memo = contenders.iter().any(|one| one.kind == Kind::Composite).then(Arc::<UpdateMemo>::default);
        let cells = Arc::<CellQueries>::default();
        let (mut eager, mut stand_ins, mut specs) = (Vec::new(), HashMap::new(), Vec::new());
        for (number, contender) in contenders.iter().enumerate() {
            for (at, attribute) in attributes.iter().enumerate() {
                let name = index_name(number, at);
                let ordered = if attribute.is_spatial() { CELL } else { attribute.path };
                match contender.kind {
                    Kind::InSstables(kind) => specs.push(format!("{name}={}:{kind}", attribute.path)),
                    Kind::Eager => {
                        let tree = Arc::new(EagerIndex::new(attribute.path.parse()?));
                        eager.push((number, at, tree.clone()));
                        specs.push(format!("{name}={ordered}:composite"));
                        stand_ins.insert(name, StandIn::Eager(tree));
                    }
                    Kind::Composite => {
                        specs.push(format!("{name}={ordered}:composite"));
                        let memo = memo.clone().unwrap_or_default();
                        let stand_in = match attribute.is_spatial() {
                            true => StandIn::Cells(memo, cells.clone()),
                            false => StandIn::Memo(memo),
                        };
                        stand_ins.insert(name, stand_in);
                    }
                }
            }
        }
        let options = Options::default()
            .cache_bytes(setting.cache_bytes)
            .memtable_bytes(setting.memtable_bytes)
            .sync(SyncMode::None);
        let db = Db::open_with(path, options, standing_in(components, stand_ins))?;
        let mut collection =
            CollectionOptions::json().compression(Compression::None).target_file_bytes(setting.file_bytes);
        for spec in specs {
            collection = collection.index(spec.parse()?);
        }
        let records = db.create_collection(Self::RECORDS, collection)?;
        let (contenders, attributes) = (contenders.to_vec(), attributes.to_vec());
        Ok(Self { db, records, contenders, attributes, eager, memo, cells })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Puts a record whose key was never written.
    ///
    /// # Errors
    /// `Io` from the files, `InvalidInput` for what is not JSON.
    pub fn insert(&self, key: &[u8], record: &[u8]) -> Result<()> {
        self.write(key, Some(record), false)
    }

    /// Puts a record in the place of another.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn update(&self, key: &[u8], record: &[u8]) -> Result<()> {
        self.write(key, Some(record), true)
    }

    /// Deletes a record.
    ///
    /// # Errors
    /// `Io` from the files.
    #[cfg(test)]
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(key, None, true)
    }

    fn write(&self, key: &[u8], record: Option<&[u8]>, is_update: bool) -> Result<()> {
        // An eager index does not trust its caller.
        let old = if self.eager.is_empty() { None } else { self.records.get_pinned(key)? };
        let mut batch = WriteBatch::new();
        match record {
            Some(record) => batch.put(&self.records, key, record)?,
            None => batch.delete(&self.records, key)?,
        }
        let sequence = self.db.write(batch)?;
        for (.., tree) in &self.eager {
            if let Some((before, old)) = &old {
                tree.remove(key, old, *before)?;
            }
            if let Some(record) = record {
                tree.add(key, record, sequence)?;
            }
        }
        if let (Some(memo), true) = (&self.memo, is_update) {
            memo.note(key, sequence);
        }
        Ok(())
    }

    /// Queries the index of a contender on attribute number `attribute`, and passes keys and records to `each`, newest
    /// first.
    ///
    /// # Errors
    /// `Io` or `Corruption` from the files; a failure where there is no such index.
    pub fn run_query(
        &self,
        contender: Contender,
        attribute: usize,
        queried: QueryFigures,
        options: &FindOptions,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<Explain> {
        let number = self.contenders.iter().position(|one| *one == contender);
        let number = number.ok_or_else(|| format!("{} has no index here", contender.name))?;
        let path = self.attributes.get(attribute).ok_or("there is no such attribute")?.path;
        let query = match queried {
            QueryFigures::Equal(value) => Query::new().eq(path, value),
            QueryFigures::Between(low, high) => Query::new().range(path, low..=high),
            QueryFigures::Window(window) => self.within(contender, number, attribute, window)?,
        };
        let query = query.using_index(index_name(number, attribute));
        let summary = self.records.visit(&query, options, |answer| {
            each(answer.key, answer.record.unwrap_or_default());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(summary.into_explain())
    }

    fn within(
        &self,
        contender: Contender,
        number: usize,
        attribute: usize,
        window: [f64; 4],
    ) -> Result<Query> {
        let path = self.attributes[attribute].path;
        let [a, b, c, d] = window;
        let rect = Rect::new(a, b, c, d)?;
        // The indexes that others stand in for are of cells; which ones, these know.
        let any_cell = || Query::new().range(CELL, 0u64..);
        Ok(match contender.kind {
            Kind::InSstables(_) => Query::new().within(path, rect),
            Kind::Eager => {
                let tree = self.eager.iter().find(|(of, at, _)| (*of, *at) == (number, attribute));
                if let Some((.., tree)) = tree {
                    tree.run_query(rect);
                }
                any_cell()
            }
            Kind::Composite => {
                self.cells.run_query(window);
                any_cell().within(path, rect)
            }
        })
    }

    /// About how many bytes the trees in memory take, and how many keys the memo has.
    pub fn in_memory(&self) -> (usize, usize) {
        let trees = self.eager.iter().map(|(.., tree)| tree.memory_bytes()).sum();
        (trees, self.memo.as_ref().map_or(0, |memo| memo.size().0))
    }
}

/// The name of an index in the database.
fn index_name(contender: usize, attribute: usize) -> String {
    format!("c{contender}a{attribute}")
}
