//! The database under test, and the model that it must agree with at every step.

use std::fmt::Write as _;
use std::sync::Arc;

use bolide::{Collection, Db, IterOptions, Snapshot, SyncMode, WriteBatch, WriteOptions};
use bolide_storage::Vfs;

use crate::failure::StepFailure;
use crate::flawed::Flaw;
use crate::history::{Change, Durability, SNAPSHOTS, Step, index_name};
use crate::model::{CollectionModel, Model};
use crate::model_query::ModelQuery;
use crate::setup::{DATABASE, Setup};
use crate::verify::{self, QueryTarget};

/// A database with its model.
pub struct Subject {
    db: Option<Db>,
    vfs: Arc<dyn Vfs>,
    setup: Setup,
    /// What is wrong with its indexes.
    flaw: Option<Flaw>,
    /// Random numbers of the database come from here and from the number of its opens.
    seed: u64,
    opens: u64,
    checkpoints: u64,
    /// What the database holds.
    pub model: Model,
    snapshots: [Option<(Snapshot, Model)>; SNAPSHOTS],
    /// All answers so far, in text: equal for equal histories, whatever the setup.
    pub transcript: String,
}

impl Subject {
    /// Opens the database on `vfs`, which must hold the state `model`.
    pub fn open(vfs: Arc<dyn Vfs>, setup: Setup, seed: u64, model: Model) -> bolide::Result<Self> {
        Self::open_flawed(vfs, setup, seed, model, None)
    }

    /// As [`open`](Self::open), with indexes that have this flaw.
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

    /// Closes the database. Its snapshots go with it.
    pub fn close(&mut self) {
        self.snapshots = Default::default();
        self.db = None;
    }

    /// The latest state and the snapshots that are pinned, each with what it must show.
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

    /// Makes a checkpoint, which holds what the model holds.
    fn checkpoint(&mut self) -> Result<(), StepFailure> {
        self.checkpoints += 1;
        let path = format!("{DATABASE}-checkpoint-{}", self.checkpoints);
        self.db()?.checkpoint(&path)?;
        let components = self.setup.components(Arc::clone(&self.vfs), self.seed);
        let copy = Db::open_read_only_with(&path, self.setup.options(), components)?;
        verify::match_state(&copy, &[&self.model]).map(drop)
    }

    /// Runs one step. If it goes well the model has followed; if not, the model is as before, and the
    /// database may or may not have snapshot the step.
    pub fn step(&mut self, step: &Step) -> Result<(), StepFailure> {
        match step {
            Step::Write { changes, durability } => self.write(changes, *durability)?,
            Step::Flush => self.db()?.flush()?,
            Step::Compact => self.db()?.compact()?,
            Step::Reopen => self.reopen()?,
            Step::Checkpoint => return self.checkpoint(),
            Step::ToggleSnapshot(slot) => self.toggle_snapshot(*slot)?,
            Step::ToggleIndex(collection, spec) => self.toggle_index(collection, spec)?,
            Step::RebuildIndex(collection, spec) => self.rebuild_index(collection, index_name(spec))?,
            Step::ToggleCollection(name, specs) => self.toggle_collection(name, specs)?,
            Step::Get(collection, key, slot) => return self.get(collection, key, *slot),
            Step::Scan { collection, low, high, reverse, snapshot } => {
                return self.scan(collection, low, high, *reverse, *snapshot);
            }
            Step::Find(collection, query, slot) => return self.find(collection, query, *slot),
        }
        apply_step(&mut self.model, step);
        Ok(())
    }

    fn write(&mut self, changes: &[Change], durability: Durability) -> bolide::Result<()> {
        let db = self.db()?;
        let mut batch = WriteBatch::new();
        for change in changes {
            if !self.model.collections.contains_key(change.collection()) {
                continue;
            }
            let collection = db.collection(change.collection())?;
            match change {
                Change::Put { key, record, .. } => batch.put(&collection, key, record)?,
                Change::Delete { key, .. } => batch.delete(&collection, key)?,
                Change::DeleteRange { start, end, .. } => batch.delete_range(&collection, start..end)?,
            }
        }
        let sync = match durability {
            Durability::None => SyncMode::None,
            Durability::Batch => SyncMode::Batch,
            Durability::Always => SyncMode::Always,
        };
        if batch.is_empty() && durability == Durability::Always {
            // Nothing to acknowledge; what the step promises is that all before it is safe.
            return db.sync();
        }
        db.write_with(batch, &WriteOptions::default().sync(sync))?;
        Ok(())
    }

    fn toggle_snapshot(&mut self, slot: usize) -> bolide::Result<()> {
        let snapshot = match self.snapshots.get(slot) {
            Some(Some(_)) => None,
            _ => Some((self.db()?.snapshot(), self.model.clone())),
        };
        if let Some(place) = self.snapshots.get_mut(slot) {
            *place = snapshot;
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

    /// The collection to read and what it must hold, now or at a snapshot; `None` where it does not
    /// exist, or did not then.
    fn target(&self, name: &str, slot: Option<usize>) -> bolide::Result<Option<ReadTarget>> {
        let pinned = slot.and_then(|slot| self.snapshots.get(slot)?.as_ref());
        let model = pinned.map_or(&self.model, |(_, model)| model);
        let (Some(now), Some(then)) = (self.model.collections.get(name), model.collections.get(name)) else {
            return Ok(None);
        };
        if now.generation != then.generation {
            return Ok(None);
        }
        let collection = self.db()?.collection(name)?;
        Ok(Some(ReadTarget {
            collection,
            snapshot: pinned.map(|(snapshot, _)| snapshot.clone()),
            model: then.clone(),
        }))
    }

    fn get(&mut self, name: &str, key: &[u8], slot: Option<usize>) -> Result<(), StepFailure> {
        let Some(target) = self.target(name, slot)? else { return Ok(()) };
        let got = match &target.snapshot {
            Some(snapshot) => target.collection.get_at(snapshot, key)?,
            None => target.collection.get(key)?,
        };
        if target.snapshot.is_none() {
            // The second get caches the row, the third returns it.
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
        let what = format!("scan {name} {}..={}", low.escape_ascii(), high.escape_ascii());
        verify::same_rows(&what, &found, &wanted).map_err(StepFailure::Wrong)?;
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
        let _ = writeln!(self.transcript, "find {text}");
        Ok(())
    }
}

struct ReadTarget {
    collection: Collection,
    snapshot: Option<Snapshot>,
    model: CollectionModel,
}

/// What a step that went well does to the model.
pub fn apply_step(model: &mut Model, step: &Step) {
    match step {
        Step::Write { changes, .. } => changes.iter().for_each(|change| model.apply(change)),
        Step::ToggleIndex(collection, spec) => model.toggle_index(collection, index_name(spec)),
        Step::ToggleCollection(name, specs) => {
            model.toggle_collection(name, specs.iter().map(|spec| index_name(spec)));
        }
        _ => {}
    }
}
