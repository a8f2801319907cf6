//! Commits of batches: one alone, or a group of the leader's request and those of waiting writers.

use bolide_base::{Error, Result, SequenceNumber};

use super::CommitStage;
use super::log::LogState;
use super::pipeline::{CommitEnv, CommitPipeline};
use super::queue::{CommitRequest, QueueRole};
use super::writes::SealedBatches;
use crate::batch::StoreBatch;
use crate::options::SyncMode;

/// State of a group during its commit.
struct CommitGroup {
    results: Vec<Result<SequenceNumber>>,
    /// Batches of the next append, with the positions of their requests.
    prepared: Vec<(usize, StoreBatch)>,
    /// Number of sequence numbers of the prepared batches.
    sequences: u64,
    /// True if the log must be synced before the prepared batches are applied.
    syncs_first: bool,
    /// Written batches that are not in the record of recent commits, with the last sequence number of each append.
    unrecorded: Vec<(SequenceNumber, Vec<StoreBatch>)>,
}

impl CommitGroup {
    fn new(requests: usize) -> Self {
        let results = (0..requests).map(|_| Err(Error::internal("a batch was not committed"))).collect();
        Self {
            results,
            prepared: Vec::with_capacity(requests),
            sequences: 0,
            syncs_first: false,
            unrecorded: Vec::new(),
        }
    }
}

impl<E: CommitEnv> CommitPipeline<'_, E> {
    /// Commits `batch` and returns its last sequence number.
    pub(super) fn commit(
        &self,
        batch: StoreBatch,
        stage: Option<Box<dyn CommitStage>>,
        sync: SyncMode,
    ) -> Result<SequenceNumber> {
        self.env.health().check()?;
        if batch.is_empty() && stage.is_none() {
            return Ok(self.env.snapshots().published());
        }
        let bytes = batch.len_bytes();
        self.env.pressure().throttle(bytes, self.env.health(), self.env.counters())?;
        match self.queue.enter(CommitRequest { batch, stage, sync }) {
            QueueRole::Leader(request) => {
                let _leader = self.queue.leadership(self.env.health());
                let result = self.commit_alone(request);
                self.work_inline();
                result
            }
            QueueRole::Successor(request) => {
                let mut leader = self.queue.leadership(self.env.health());
                let results = self.commit_group(leader.gather(request));
                // Inline maintenance is done by the writer that caused it, before the next leader starts.
                self.work_inline();
                leader.finish(results)
            }
            QueueRole::Follower(result) => result,
        }
    }

    fn work_inline(&self) {
        if self.env.works_inline() {
            self.env.work();
        }
    }

    /// Commits one request as a group does, without the allocations of a group.
    fn commit_alone(&self, mut request: CommitRequest) -> Result<SequenceNumber> {
        let mut log = self.env.log().lock();
        self.env.health().check()?;
        self.env.make_room(&mut log, request.batch.len_bytes())?;
        let first = log.applied + 1;
        let syncs_first = self.prepare(&mut log, first, &mut request)?;
        if request.batch.is_empty() {
            // It was only checked.
            return Ok(log.applied);
        }
        let last = log.applied + request.batch.sequence_count();
        // A stage, or another thread's sync, may have poisoned the handle.
        self.env.health().check()?;
        let writes = SealedBatches(std::iter::once(&request.batch));
        self.write(&mut log, &writes, last, syncs_first)?;
        self.publish(&mut log, last, std::iter::once(request.sync))?;
        self.record(&writes, last)?;
        Ok(last)
    }

    /// Commits a group. The results are in the order of the requests.
    pub(super) fn commit_group(&self, mut requests: Vec<CommitRequest>) -> Vec<Result<SequenceNumber>> {
        let mut log = self.env.log().lock();
        let incoming = requests.iter().map(|request| request.batch.len_bytes()).sum();
        let admitted = self.env.health().check().and_then(|()| self.env.make_room(&mut log, incoming));
        if let Err(error) = admitted {
            return requests.iter().map(|_| Err(error.clone())).collect();
        }
        let mut group = CommitGroup::new(requests.len());
        for (position, request) in requests.iter_mut().enumerate() {
            if let Err(error) = self.add(&mut log, &mut group, position, request) {
                group.results[position] = Err(error);
            }
        }
        self.write_prepared(&mut log, &mut group);
        let sync = requests.iter().zip(&group.results).filter(|(_, result)| result.is_ok());
        let sync_modes = sync.map(|(request, _)| request.sync);
        // If no batch was applied, this number is already published.
        let last = log.applied;
        let published = self.publish(&mut log, last, sync_modes);
        match published.and_then(|()| self.record_written(&mut group)) {
            Ok(()) => group.results,
            Err(error) => group.results.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Prepares one request and adds its batch to the group.
    fn add(
        &self,
        log: &mut LogState,
        group: &mut CommitGroup,
        position: usize,
        request: &mut CommitRequest,
    ) -> Result<()> {
        if request.stage.is_some() {
            // The stage must read the batches before its own.
            self.write_prepared(log, group);
        }
        let first = log.applied + group.sequences + 1;
        group.syncs_first |= self.prepare(log, first, request)?;
        group.sequences += request.batch.sequence_count();
        group.results[position] = Ok(log.applied + group.sequences);
        if request.batch.is_empty() {
            return Ok(());
        }
        group.prepared.push((position, std::mem::take(&mut request.batch)));
        Ok(())
    }

    /// Appends the prepared batches with one write and applies them.
    fn write_prepared(&self, log: &mut LogState, group: &mut CommitGroup) {
        if group.prepared.is_empty() {
            return;
        }
        let batches = SealedBatches(group.prepared.iter().map(|(_, batch)| batch));
        let last = log.applied + group.sequences;
        // The sync of another thread, or an earlier append of the group, may have poisoned the handle meanwhile.
        let healthy = self.env.health().check();
        let written = healthy.and_then(|()| self.write(log, &batches, last, group.syncs_first));
        group.sequences = 0;
        match written {
            Ok(()) => {
                let batches = group.prepared.drain(..).map(|(_, batch)| batch).collect();
                group.unrecorded.push((last, batches));
                // The next request of the group may be a transaction that must be checked against these.
                if let Err(error) = self.record_written(group) {
                    self.env.health().poison(&error);
                }
            }
            Err(error) => {
                for (position, _) in group.prepared.drain(..) {
                    group.results[position] = Err(error.clone());
                }
            }
        }
    }

    /// Records the writes of the group that are not recorded yet, for open transactions.
    fn record_written(&self, group: &mut CommitGroup) -> Result<()> {
        if !self.env.recent().is_needed() {
            return Ok(());
        }
        for (last, batches) in group.unrecorded.drain(..) {
            self.env.recent().record(last, &SealedBatches(batches.iter()))?;
        }
        Ok(())
    }
}
