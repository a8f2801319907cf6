//! The database under test and its model, compared at every step.

use std::fmt::Write as _;
use std::sync::Arc;

use bolide::{
    Collection, Db, Error, ErrorKind, Expected, IterOptions, Snapshot, SyncMode, TransactionOptions,
    WriteBatch, WriteOptions,
};
use bolide_storage::Vfs;

use crate::failure::StepFailure;
use crate::flawed::Flaw;
use crate::history::{Change, Durability, HistoryStep, SNAPSHOTS, index_name};
use crate::model::{CollectionModel, Model};
use crate::model_query::ModelQuery;
use crate::pulled_query::check_cursor;
use crate::rule::Rule;
use crate::setup::{DATABASE, Setup};
use crate::verify::{self, QueryTarget};

/// The way in which a write is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Batch,
    /// A batch that expects the state of the first record before it.
    Expecting,
    Transaction,
}

impl WriteKind {
    /// The way for `changes`; the same in each run. An empty write only syncs.
    fn of(changes: &[Change]) -> Self {
        let number = changes.iter().map(|change| match change {
            Change::Put { record, .. } => record.len(),
            Change::Delete { key, .. } => key.len() + 1,
            Change::DeleteRange { start, .. } => start.len() + 2,
        });
        match number.sum::<usize>() % 4 {
            _ if changes.is_empty() => Self::Batch,
            0 => Self::Expecting,
            1 => Self::Transaction,
            _ => Self::Batch,
        }
    }
}

/// A database with its model.
pub struct Subject {
    db: Option<Db>,
    vfs: Arc<dyn Vfs>,
    setup: Setup,
    /// The planted bug of its indexes.
    flaw: Option<Flaw>,
    /// The seed of the random numbers of the database, combined with the number of opens.
    seed: u64,
    opens: u64,
    checkpoints: u64,
    /// The expected contents of the database.
    pub model: Model,
    snapshots: [Option<(Snapshot, Model)>; SNAPSHOTS],
    /// The text of all answers so far. Equal histories have equal transcripts under every setup.
    pub transcript: String,
}

impl Subject {
    /// Opens the database on `vfs`, which must be in the state `model`.
    pub fn open(vfs: Arc<dyn Vfs>, setup: Setup, seed: u64, model: Model) -> bolide::Result<Self> {
        Self::open_flawed(vfs, setup, seed, model, None)
    }

    /// Opens the database as [`open`](Self::open), with indexes that have this flaw.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_flawed(
        vfs: Arc<dyn Vfs>,
        setup: Setup,
        seed: u64,
        model: Model,
        flaw: Option<Flaw>,
    ) -> bolide::Result<Self> {
        let mut subject = Self {
            db: None,
            vfs,
            setup,
            flaw,
            seed,
            opens: 0,
            checkpoints: 0,
            model,
            snapshots: Default::default(),
            transcript: String::new(),
        };
        subject.reopen()?;
        Ok(subject)
    }

    /// The open database.
    pub fn db(&self) -> bolide::Result<&Db> {
        self.db.as_ref().ok_or_else(|| {
            bolide::Error::new(bolide::ErrorKind::Closed, "the last reopen of this run failed")
        })
    }

    /// Closes the database and drops its snapshots.
    pub fn close(&mut self) {
        self.snapshots = Default::default();
        self.db = None;
    }

    /// The latest state and all snapshots, each with its expected contents.
    pub fn read_points(&self) -> Vec<(Option<&Snapshot>, &Model)> {
        let pinned = self.snapshots.iter().flatten().map(|(snapshot, model)| (Some(snapshot), model));
        std::iter::once((None, &self.model)).chain(pinned).collect()
    }

    fn reopen(&mut self) -> bolide::Result<()> {
        self.close();
        self.opens += 1;
        let mut components = self.setup.components(Arc::clone(&self.vfs), self.seed ^ (self.opens << 32));
        if let Some(flaw) = self.flaw {
            components = components.index_wrapper(flaw.wrapper());
        }
        self.db = Some(Db::open_with(DATABASE, self.setup.options(), components)?);
        Ok(())
    }

    /// Creates a checkpoint and compares it with the model.
    fn checkpoint(&mut self) -> Result<(), StepFailure> {
        self.checkpoints += 1;
        let path = format!("{DATABASE}-checkpoint-{}", self.checkpoints);
        self.db()?.checkpoint(&path)?;
        let components = self.setup.components(Arc::clone(&self.vfs), self.seed);
        let copy = Db::open_read_only_with(&path, self.setup.options(), components)?;
        verify::match_state(&copy, &[&self.model]).map(drop)
    }

    /// Runs one step. On success the step is applied to the model. On failure the model is unchanged, and the database may
    /// or may not have applied the step.
    pub fn step(&mut self, step: &HistoryStep) -> Result<(), StepFailure> {
        match step {
            HistoryStep::Write { changes, durability } => self.write(changes, *durability)?,
            HistoryStep::Flush => self.db()?.flush()?,
            HistoryStep::Compact => self.db()?.compact()?,
            HistoryStep::Reopen => self.reopen()?,
            HistoryStep::Checkpoint => return self.checkpoint(),
            HistoryStep::ToggleSnapshot(slot) => self.toggle_snapshot(*slot)?,
            HistoryStep::ToggleIndex(collection, spec) => self.toggle_index(collection, spec)?,
            HistoryStep::RebuildIndex(collection, spec) => {
                self.rebuild_index(collection, index_name(spec))?
            }
            HistoryStep::ToggleCollection(name, specs) => self.toggle_collection(name, specs)?,
            HistoryStep::Get(collection, key, slot) => return self.get(collection, key, *slot),
            HistoryStep::Scan { collection, low, high, reverse, snapshot } => {
                return self.scan(collection, low, high, *reverse, *snapshot);
            }
            HistoryStep::Find(collection, query, slot) => return self.find(collection, query, *slot),
        }
        apply_step(&mut self.model, step);
        Ok(())
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> bolide::Result<()> {
        let db = self.db()?;
        let kind = WriteKind::of(changes);
        let mut batch = WriteBatch::new();
        let sync = match durability {
            Durability::None => SyncMode::None,
            Durability::Batch => SyncMode::Batch,
            Durability::Always => SyncMode::Always,
        };
        let begin = || db.begin(TransactionOptions::default().sync(sync));
        let tx = (kind == WriteKind::Transaction).then(begin).transpose()?;
        for change in changes {
            if !self.model.collections.contains_key(change.collection()) {
                continue;
            }
            let collection = db.collection(change.collection())?;
            if kind == WriteKind::Expecting && batch.is_empty() {
                self.expect(&mut batch, &collection, change)?;
            }
            match (change, &tx) {
                (Change::Put { key, record, .. }, None) => batch.put(&collection, key, record)?,
                (Change::Delete { key, .. }, None) => batch.delete(&collection, key)?,
                (Change::DeleteRange { start, end, .. }, None) => {
                    batch.delete_range(&collection, start..end)?
                }
                (Change::Put { key, record, .. }, Some(tx)) => tx.put(&collection, key, record)?,
                (Change::Delete { key, .. }, Some(tx)) => tx.delete(&collection, key)?,
                (Change::DeleteRange { start, end, .. }, Some(tx)) => {
                    tx.delete_range(&collection, start..end)?
                }
            }
        }
        if let Some(tx) = tx {
            return tx.commit().map(drop);
        }
        if batch.is_empty() && durability == Durability::Always {
            // An empty batch acknowledges nothing; the step makes all earlier writes durable.
            return db.sync();
        }
        db.write_with(batch, &WriteOptions::default().sync(sync))?;
        Ok(())
    }

    /// Adds the expectation of the state in the model to `batch`, before the write `change`; a batch with the opposite
    /// expectation must fail.
    fn expect(&self, batch: &mut WriteBatch, collection: &Collection, change: &Change) -> bolide::Result<()> {
        let (Change::Put { key, .. } | Change::Delete { key, .. }) = change else { return Ok(()) };
        let model = self.model.collections.get(change.collection());
        let (is, is_not) = match model.is_some_and(|model| model.rows.contains_key(&key[..])) {
            true => (Expected::Present, Expected::Absent),
            false => (Expected::Absent, Expected::Present),
        };
        let mut refused = WriteBatch::new();
        refused.put(collection, b"refused", b"{}")?;
        refused.expect(collection, key, is_not)?;
        match self.db()?.write(refused) {
            Err(error) if error.kind() == ErrorKind::Conflict => batch.expect(collection, key, is),
            Err(error) => Err(error),
            Ok(_) => {
                Err(Error::internal(format!("{} a batch that expects {is_not} was written", Rule::State)))
            }
        }
    }

    fn toggle_snapshot(&mut self, slot: usize) -> bolide::Result<()> {
        let snapshot = match self.snapshots.get(slot) {
            Some(Some(_)) => None,
            _ => Some((self.db()?.snapshot(), self.model.clone())),
        };
        if let Some(entry) = self.snapshots.get_mut(slot) {
            *entry = snapshot;
        }
        Ok(())
    }

    fn toggle_index(&mut self, name: &str, spec: &str) -> bolide::Result<()> {
        let Some(model) = self.model.collections.get(name) else { return Ok(()) };
        let collection = self.db()?.collection(name)?;
        if model.indexes.contains(index_name(spec)) {
            collection.drop_index(index_name(spec))
        } else {
            collection.create_index_with(spec.parse()?, &self.setup.build_options())
        }
    }

    fn rebuild_index(&mut self, name: &str, index: &str) -> bolide::Result<()> {
        let exists = |model: &CollectionModel| model.indexes.contains(index);
        if !self.model.collections.get(name).is_some_and(exists) {
            return Ok(());
        }
        self.db()?.collection(name)?.rebuild_index(index, &self.setup.build_options())
    }

    fn toggle_collection(&mut self, name: &str, specs: &[Arc<str>]) -> bolide::Result<()> {
        let db = self.db()?;
        if self.model.collections.contains_key(name) {
            return db.drop_collection(name);
        }
        let mut options = self.setup.collection_options();
        for spec in specs {
            options = options.index(spec.parse()?);
        }
        db.create_collection(name, options).map(drop)
    }

    /// The collection and its expected contents, at the latest state or at a snapshot. `None` if the collection does not exist
    /// or did not exist at the snapshot.
    fn target(&self, name: &str, slot: Option<usize>) -> bolide::Result<Option<ReadTarget>> {
        let pinned = slot.and_then(|slot| self.snapshots.get(slot)?.as_ref());
        let model = pinned.map_or(&self.model, |(_, model)| model);
        let (Some(current), Some(expected)) = (self.model.collections.get(name), model.collections.get(name))
        else {
            return Ok(None);
        };
        if current.generation != expected.generation {
            return Ok(None);
        }
        let collection = self.db()?.collection(name)?;
        Ok(Some(ReadTarget {
            collection,
            snapshot: pinned.map(|(snapshot, _)| snapshot.clone()),
            model: expected.clone(),
        }))
    }

    fn get(&mut self, name: &str, key: &[u8], slot: Option<usize>) -> Result<(), StepFailure> {
        let Some(target) = self.target(name, slot)? else { return Ok(()) };
        let got = match &target.snapshot {
            Some(snapshot) => target.collection.get_at(snapshot, key)?,
            None => target.collection.get(key)?,
        };
        if target.snapshot.is_none() {
            // The second get inserts the row into the row cache; the third reads it from there.
            let again = [target.collection.get(key)?, target.collection.get(key)?];
            if again.iter().any(|again| *again != got) {
                return Err(StepFailure::Wrong(format!(
                    "get {name}/{}: got {}, and then {again:?}",
                    key.escape_ascii(),
                    verify::record_text(got.as_deref()),
                )));
            }
        }
        let wanted = target.model.rows.get(key).map(|row| &row.record);
        if got.as_ref() != wanted {
            return Err(StepFailure::Wrong(format!(
                "get {name}/{}: got {}, want {}",
                key.escape_ascii(),
                verify::record_text(got.as_deref()),
                verify::record_text(wanted.map(Vec::as_slice))
            )));
        }
        let _ = writeln!(self.transcript, "get {}", verify::record_text(got.as_deref()));
        Ok(())
    }

    fn scan(
        &mut self,
        name: &str,
        low: &[u8],
        high: &[u8],
        reverse: bool,
        slot: Option<usize>,
    ) -> Result<(), StepFailure> {
        let Some(target) = self.target(name, slot)? else { return Ok(()) };
        let mut options = IterOptions::default().range(low..=high);
        if let Some(snapshot) = &target.snapshot {
            options = options.snapshot(snapshot);
        }
        let iter = target.collection.iter_with(&options)?;
        let found: Vec<(Vec<u8>, Vec<u8>)> = if reverse {
            iter.rev().collect::<bolide::Result<_>>()?
        } else {
            iter.collect::<bolide::Result<_>>()?
        };
        let range = target
            .model
            .rows
            .range::<[u8], _>((std::ops::Bound::Included(low), std::ops::Bound::Included(high)));
        let mut wanted: Vec<(Vec<u8>, Vec<u8>)> =
            range.map(|(key, row)| (key.to_vec(), row.record.clone())).collect();
        if reverse {
            wanted.reverse();
        }
        let scan = format!("scan {name} {}..={}", low.escape_ascii(), high.escape_ascii());
        verify::same_rows(&scan, &found, &wanted).map_err(StepFailure::Wrong)?;
        let _ = writeln!(self.transcript, "scan {}", found.len());
        Ok(())
    }

    fn find(&mut self, name: &str, query: &ModelQuery, slot: Option<usize>) -> Result<(), StepFailure> {
        let Some(target) = self.target(name, slot)? else { return Ok(()) };
        let query_target =
            QueryTarget { collection: &target.collection, snapshot: target.snapshot.as_ref(), index: None };
        let text = query_target.check_answer(&target.model, query)?;
        if let Some(index) = verify::pick_index(&target.collection, query) {
            let query_target = QueryTarget { index: Some(&index), ..query_target };
            query_target.check_answer(&target.model, query)?;
            if query.pick.is_multiple_of(4) {
                query_target.check_pages(&target.model, query, 1 + (query.pick / 4 % 9) as usize)?;
            }
        }
        if query.pick % 4 == 1 {
            check_cursor(&query_target, query, 1 + (query.pick / 4 % 9) as usize)?;
        }
        let _ = writeln!(self.transcript, "find {text}");
        Ok(())
    }
}

struct ReadTarget {
    collection: Collection,
    snapshot: Option<Snapshot>,
    model: CollectionModel,
}

/// Applies a successful step to the model.
pub fn apply_step(model: &mut Model, step: &HistoryStep) {
    match step {
        HistoryStep::Write { changes, .. } => changes.iter().for_each(|change| model.apply(change)),
        HistoryStep::ToggleIndex(collection, spec) => model.toggle_index(collection, index_name(spec)),
        HistoryStep::ToggleCollection(name, specs) => {
            model.toggle_collection(name, specs.iter().map(|spec| index_name(spec)));
        }
        _ => {}
    }
}
