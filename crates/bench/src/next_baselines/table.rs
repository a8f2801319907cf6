//! A table of JSON records with the indexes of several contenders, so that all return the same records from the same files.

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
use super::substitution::{CellRanges, Substitution, with_substitutions};
use crate::error::Result;

/// The index structure of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContenderKind {
    /// A tree in memory.
    Eager,
    /// Composite keys in an LSM tree, with an update memo.
    Composite,
    /// An index in the sstables: its kind, with options.
    InSstables(&'static str),
}

/// A compared index structure and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// The name in figures.
    pub name: &'static str,
    /// The structure.
    pub kind: ContenderKind,
}

/// An indexed attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// Its path: a field of numbers, `rect(..)` or `point(.., ..)`.
    pub path: &'static str,
}

impl Attribute {
    /// True for rectangles and points. Records with them have a [`CELL`] too.
    pub fn is_spatial(self) -> bool {
        self.path.ends_with(')')
    }
}

/// The condition of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// One value.
    Equal(f64),
    /// All values between two, both included.
    Between(f64, f64),
    /// Points and rectangles that intersect a window (`[min x, min y, max x, max y]`).
    Window([f64; 4]),
}

/// The settings of a table.
#[derive(Debug, Clone, Copy)]
pub struct TableSettings {
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
    cells: Arc<CellRanges>,
}

impl Table {
    const RECORDS: &'static str = "records";

    /// A new table in the directory `path`, with an index of each contender on each attribute.
    ///
    /// # Errors
    /// `Io` from the files; `InvalidInput` for unknown options of an index.
    pub fn create(
        path: &Path,
        settings: TableSettings,
        components: Components,
        contenders: &[Contender],
        attributes: &[Attribute],
    ) -> Result<Self> {
        let memo = contenders
            .iter()
            .any(|one| one.kind == ContenderKind::Composite)
            .then(Arc::<UpdateMemo>::default);
        let cells = Arc::<CellRanges>::default();
        let (mut eager, mut substitutions, mut specs) = (Vec::new(), HashMap::new(), Vec::new());
        for (number, contender) in contenders.iter().enumerate() {
            for (at, attribute) in attributes.iter().enumerate() {
                let name = index_name(number, at);
                let ordered = if attribute.is_spatial() { CELL } else { attribute.path };
                match contender.kind {
                    ContenderKind::InSstables(kind) => {
                        specs.push(format!("{name}={}:{kind}", attribute.path))
                    }
                    ContenderKind::Eager => {
                        let tree = Arc::new(EagerIndex::new(attribute.path.parse()?));
                        eager.push((number, at, tree.clone()));
                        specs.push(format!("{name}={ordered}:composite"));
                        substitutions.insert(name, Substitution::Eager(tree));
                    }
                    ContenderKind::Composite => {
                        specs.push(format!("{name}={ordered}:composite"));
                        let memo = memo.clone().unwrap_or_default();
                        let substitution = match attribute.is_spatial() {
                            true => Substitution::MemoAndCells(memo, cells.clone()),
                            false => Substitution::Memo(memo),
                        };
                        substitutions.insert(name, substitution);
                    }
                }
            }
        }
        let options = Options::default()
            .cache_bytes(settings.cache_bytes)
            .memtable_bytes(settings.memtable_bytes)
            .sync(SyncMode::None);
        let db = Db::open_with(path, options, with_substitutions(components, substitutions))?;
        let mut collection =
            CollectionOptions::json().compression(Compression::None).target_file_bytes(settings.file_bytes);
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

    /// Puts a record with a new key.
    ///
    /// # Errors
    /// `Io` from the files, `InvalidInput` for what is not JSON.
    pub fn insert(&self, key: &[u8], record: &[u8]) -> Result<()> {
        self.write(key, Some(record), false)
    }

    /// Replaces a record.
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
        // An eager index reads the old record also for an insert, since it cannot rely on its caller.
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
    /// `Io` or `Corruption` from the files; a failure if there is no such index.
    pub fn run_query(
        &self,
        contender: Contender,
        attribute: usize,
        selection: Selection,
        options: &FindOptions,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<Explain> {
        let number = self.contenders.iter().position(|one| *one == contender);
        let number = number.ok_or_else(|| format!("{} has no index here", contender.name))?;
        let path = self.attributes.get(attribute).ok_or("there is no such attribute")?.path;
        let query = match selection {
            Selection::Equal(value) => Query::new().eq(path, value),
            Selection::Between(low, high) => Query::new().range(path, low..=high),
            Selection::Window(window) => self.within(contender, number, attribute, window)?,
        };
        let query = query.using_index(index_name(number, attribute));
        let outcome = self.records.visit(&query, options, |answer| {
            each(answer.key, answer.record.unwrap_or_default());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(outcome.into_explain())
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
        // Substituted indexes are on cells; the substitution computes the ranges of the window.
        let any_cell = || Query::new().range(CELL, 0u64..);
        Ok(match contender.kind {
            ContenderKind::InSstables(_) => Query::new().within(path, rect),
            ContenderKind::Eager => {
                let tree = self.eager.iter().find(|(of, at, _)| (*of, *at) == (number, attribute));
                if let Some((.., tree)) = tree {
                    tree.set_window(rect);
                }
                any_cell()
            }
            ContenderKind::Composite => {
                self.cells.set_window(window);
                any_cell().within(path, rect)
            }
        })
    }

    /// The approximate bytes of the trees in memory, and the number of keys of the memo.
    pub fn in_memory(&self) -> (usize, usize) {
        let trees = self.eager.iter().map(|(.., tree)| tree.memory_bytes()).sum();
        (trees, self.memo.as_ref().map_or(0, |memo| memo.size().0))
    }
}

/// The name of an index in the database.
fn index_name(contender: usize, attribute: usize) -> String {
    format!("c{contender}a{attribute}")
}
