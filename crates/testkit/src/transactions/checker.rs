//! The checker of recorded histories.
//!
//! The versions of a record are ordered by the sequence numbers of their commits. The numbers are checked too: each read
//! must have returned the version at the snapshot of its transaction, and the list of writes in each record must be that of
//! its versions.
//!
//! 1. Each read returns the state at the snapshot with the own writes: no aborted (G1a), intermediate (G1b) or other version.
//! 2. The dependencies of the committed transactions have no proscribed cycle; see [`cycles`](super::cycles).
//! 3. After a power cut, the state is that at one sequence number, not below the last synced commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::cycles::{Dependency, DependencyGraph, Proscribed};
use super::recorded::{Content, Contents, Read, RecordedHistory, RecordedTransaction, TransactionStep};
use crate::rule::Rule;
use crate::seeds::{Counts, Outcome};

/// A version of a record.
struct Version<'h> {
    commit: u64,
    transaction: usize,
    /// `None` if it was deleted.
    content: Option<&'h Content>,
}

/// A history with the versions of its records.
struct HistoryChecker<'h> {
    history: &'h RecordedHistory,
    /// The versions of each key, in the order of their commits.
    versions: BTreeMap<&'h str, Vec<Version<'h>>>,
    /// The transaction of each write that is not a version.
    others: HashMap<u64, &'static str>,
}

/// Checks `history`, which must have none of the `proscribed` anomalies.
pub(super) fn check(history: &RecordedHistory, proscribed: Proscribed) -> Outcome<Counts> {
    let checker = HistoryChecker::new(history);
    for (number, transaction) in history.transactions.iter().enumerate() {
        checker.check_reads(transaction).map_err(|what| checker.describe(number, &what))?;
    }
    let whole = |what| format!("{} at the end: {what}", Rule::Isolated);
    checker.check_state(&history.end, u64::MAX).map_err(whole)?;
    checker.check_lists()?;
    let graph = checker.graph(proscribed);
    if let Some((name, cycle)) = graph.anomaly(proscribed) {
        let cycle: Vec<String> = cycle
            .iter()
            .map(|(number, dependency)| checker.describe(*number, &format!("{dependency:?} before the next")))
            .collect();
        return Err(format!("{} {name}:\n{}", Rule::Isolated, cycle.join("\n")));
    }
    for recovered in &history.recovered {
        checker.check_recovered(&recovered.found, recovered.synced)?;
    }
    let mut counts = Counts::default();
    counts.add("histories");
    counts.add_many("transactions", history.transactions.len() as u64);
    let committed = history.transactions.iter().filter(|one| one.commit.is_some()).count();
    counts.add_many("committed", committed as u64);
    counts.add_many("dependencies", graph.len() as u64);
    counts.add_many("power cuts", history.recovered.len() as u64);
    Ok(counts)
}

impl<'h> HistoryChecker<'h> {
    fn new(history: &'h RecordedHistory) -> Self {
        let mut versions: BTreeMap<&str, Vec<Version<'_>>> = BTreeMap::new();
        let mut others = HashMap::new();
        for (number, transaction) in history.transactions.iter().enumerate() {
            let mut last = BTreeMap::new();
            for written in transaction.writes() {
                if let Some(content) = &written.content {
                    others.insert(content.id(), if transaction.commit.is_some() { "G1b" } else { "G1a" });
                }
                last.insert(written.key.as_str(), written.content.as_ref());
            }
            let Some(commit) = transaction.commit else { continue };
            for (key, content) in last {
                if let Some(content) = content {
                    others.remove(&content.id());
                }
                versions.entry(key).or_default().push(Version { commit, transaction: number, content });
            }
        }
        for versions in versions.values_mut() {
            versions.sort_by_key(|version| version.commit);
        }
        Self { history, versions, others }
    }

    /// The position after the version of `key` at `snapshot`.
    fn position(&self, key: &str, snapshot: u64) -> usize {
        self.versions.get(key).map_or(0, |versions| versions.partition_point(|one| one.commit <= snapshot))
    }

    fn version(&self, key: &str, position: usize) -> Option<&Version<'h>> {
        self.versions.get(key)?.get(position.checked_sub(1)?)
    }

    /// The record of `key` at `snapshot`.
    fn content(&self, key: &str, snapshot: u64) -> Option<&'h Content> {
        self.version(key, self.position(key, snapshot))?.content
    }

    fn check_reads(&self, transaction: &RecordedTransaction) -> Outcome {
        let mut own: BTreeMap<&str, Option<&Content>> = BTreeMap::new();
        for step in &transaction.steps {
            match step {
                TransactionStep::Write(written) => {
                    own.insert(&written.key, written.content.as_ref());
                }
                TransactionStep::Read(read) => self.check_read(read, transaction.snapshot, &own)?,
            }
        }
        Ok(())
    }

    fn check_read(&self, read: &Read, snapshot: u64, own: &BTreeMap<&str, Option<&Content>>) -> Outcome {
        let wanted = |key: &str| match own.get(key) {
            Some(written) => *written,
            None => self.content(key, snapshot),
        };
        let keys: BTreeSet<&str> = self.versions.keys().chain(own.keys()).copied().collect();
        let among = |selects: &dyn Fn(&str, &Content) -> bool, found: &Contents| {
            let selected = |key: &str| wanted(key).filter(|content| selects(key, content));
            let unknown = found.keys().map(String::as_str);
            keys.iter()
                .copied()
                .chain(unknown)
                .try_for_each(|key| self.compare(key, found.get(key), selected(key), own.contains_key(key)))
        };
        match read {
            Read::Key { key, found } => {
                self.compare(key, found.as_ref(), wanted(key), own.contains_key(&key[..]))
            }
            Read::Range { from, to, found } => among(&|key, _| from[..] <= *key && *key < to[..], found),
            Read::Group { group, found } => among(&|_, content| content.group == *group, found),
        }
    }

    fn compare(&self, key: &str, found: Option<&Content>, want: Option<&Content>, is_own: bool) -> Outcome {
        if found == want {
            return Ok(());
        }
        let kind = match found.and_then(|content| self.others.get(&content.id())) {
            _ if is_own => "not its own write",
            Some(kind) => kind,
            None => "not the version at its snapshot",
        };
        Err(format!("{} {kind}: {key} is {found:?}, want {want:?}", Rule::Isolated))
    }

    /// Compares all records with the versions at `snapshot`.
    fn check_state(&self, found: &Contents, snapshot: u64) -> Outcome {
        let unknown = found.keys().map(String::as_str);
        self.versions
            .keys()
            .copied()
            .chain(unknown)
            .try_for_each(|key| self.compare(key, found.get(key), self.content(key, snapshot), false))
    }

    /// Compares the list of writes in each version with the versions before it.
    fn check_lists(&self) -> Outcome {
        for (key, versions) in &self.versions {
            let mut before: &[u64] = &[];
            for version in versions {
                let writes = version.content.map_or(&[][..], |content| &content.writes);
                // The last transaction may have written several times.
                if !(writes.starts_with(before) || version.content.is_none() || writes.len() == 1) {
                    let number = version.transaction;
                    let what =
                        format!("{} lost update of {key}: {writes:?} after {before:?}", Rule::Isolated);
                    return Err(self.describe(number, &what));
                }
                before = writes;
            }
        }
        Ok(())
    }

    /// The dependencies of the committed transactions.
    fn graph(&self, proscribed: Proscribed) -> DependencyGraph {
        let mut graph = DependencyGraph::new(self.history.transactions.len());
        for versions in self.versions.values() {
            for pair in versions.windows(2) {
                graph.add(pair[0].transaction, pair[1].transaction, Dependency::Write);
            }
        }
        for (number, transaction) in self.history.transactions.iter().enumerate() {
            if transaction.commit.is_some() {
                let at_commit = proscribed == Proscribed::All;
                self.add_reads(&mut graph, number, transaction, at_commit);
                self.add_time(&mut graph, number, transaction);
            }
        }
        graph
    }

    /// The dependencies of transaction `number` by its reads of others' versions.
    ///
    /// A query reads no particular version of a record that it does not return: each one that does not satisfy it gives the
    /// same answer. With `at_commit`, that is the version before the commit, if it does not satisfy the query either.
    fn add_reads(
        &self,
        graph: &mut DependencyGraph,
        number: usize,
        transaction: &RecordedTransaction,
        at_commit: bool,
    ) {
        let mut own: BTreeSet<&str> = BTreeSet::new();
        for step in &transaction.steps {
            let read = match step {
                TransactionStep::Write(written) => {
                    own.insert(&written.key);
                    continue;
                }
                TransactionStep::Read(read) => read,
            };
            let committing = transaction.commit.filter(|_| at_commit && matches!(read, Read::Group { .. }));
            let place = (transaction.snapshot, committing.unwrap_or(0));
            for key in self.versions.keys().filter(|key| !own.contains(*key)) {
                self.add_read(graph, number, (read, key), place);
            }
        }
    }

    /// The dependencies of transaction `number` by one of its reads on the versions of one key. `place` has the numbers of its
    /// snapshot, and of its commit if the version before it may have been read; else 0.
    fn add_read(
        &self,
        graph: &mut DependencyGraph,
        number: usize,
        (read, key): (&Read, &str),
        (snapshot, commit): (u64, u64),
    ) {
        let dependency = match read {
            Read::Key { .. } => Dependency::AntiItem,
            Read::Range { .. } | Read::Group { .. } => Dependency::AntiPredicate,
        };
        let selected = |at: usize| read.selects(key, self.version(key, at).and_then(|one| one.content));
        let at_snapshot = self.position(key, snapshot);
        let at_commit = self.position(key, commit.saturating_sub(1)).max(at_snapshot);
        let position = if selected(at_snapshot) || selected(at_commit) { at_snapshot } else { at_commit };
        if let Some(seen) = self.version(key, position).filter(|_| selected(position)) {
            graph.add(seen.transaction, number, Dependency::Read);
        }
        let versions = self.versions.get(key).map_or(0, Vec::len);
        let changes = |at: &usize| selected(*at) || selected(*at - 1);
        let changed = (position + 1..=versions).find(changes).and_then(|at| self.version(key, at));
        if let Some(changed) = changed {
            graph.add(number, changed.transaction, dependency);
        }
    }

    /// The last committed transaction of each thread that ended before transaction `number` began.
    fn add_time(&self, graph: &mut DependencyGraph, number: usize, transaction: &RecordedTransaction) {
        let mut last: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
        for (other, earlier) in self.history.transactions.iter().enumerate() {
            if earlier.commit.is_some() && earlier.end < transaction.start {
                let latest = last.entry(earlier.thread).or_default();
                *latest = (*latest).max((earlier.end, other));
            }
        }
        last.into_values().for_each(|(_, other)| graph.add(other, number, Dependency::Time));
    }

    /// The state after a power cut is that at one sequence number.
    fn check_recovered(&self, found: &Contents, synced: u64) -> Outcome {
        let mut commits: BTreeSet<u64> = self.versions.values().flatten().map(|one| one.commit).collect();
        commits.insert(0);
        let possible = commits.iter().filter(|commit| {
            let next = commits.range(**commit + 1..).next();
            next.is_none_or(|next| *next > synced)
        });
        if possible.clone().any(|commit| self.check_state(found, *commit).is_ok()) {
            return Ok(());
        }
        Err(format!(
            "{} after a power cut, the records are those of no commit from {synced} on: {found:?}",
            Rule::State
        ))
    }

    fn describe(&self, number: usize, what: &str) -> String {
        let Some(transaction) = self.history.transactions.get(number) else { return what.to_owned() };
        let RecordedTransaction { thread, snapshot, commit, steps, .. } = transaction;
        format!(
            "{what}: transaction {number} of thread {thread}, snapshot {snapshot}, commit {commit:?}: {steps:?}"
        )
    }
}
