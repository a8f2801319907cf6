//! Fault injection into calls of the file system.
//!
//! Calls are counted per kind of fault: the `at`-th call *that the fault can hit* fails. So runs with `at = 1, 2, 3, …` cover
//! each call once, and can detect the last one.

/// The fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operating system reports an input/output error. Hits every call. An operation on names may be complete nevertheless;
    /// an append may have written a part.
    Io,
    /// The disk is full. Hits creates, links, renames, new directories and appends; nothing is written.
    NoSpace,
    /// A read returns fewer bytes than requested, which is no error. Hits reads of two bytes or more.
    ShortRead,
    /// An append writes a part of its bytes and reports an error. Hits appends of two bytes or more.
    ShortAppend,
    /// A sync of a file fails and drops the unsynced bytes. Hits syncs of files.
    LostSync,
    /// An access to a mapped log fails after a part of its bytes. Hits appends to logs of a disk that
    /// [maps them](crate::SimVfs::map_logs). On a real disk such an access is a SIGBUS, which ends the process; the cause is a
    /// truncation by another program, or a failed medium.
    MappedAccess,
}

impl Fault {
    /// All faults.
    pub const EACH: [Self; 6] =
        [Self::Io, Self::NoSpace, Self::ShortRead, Self::ShortAppend, Self::LostSync, Self::MappedAccess];

    /// Its index in an array of counters.
    fn index(self) -> usize {
        match self {
            Self::Io => 0,
            Self::NoSpace => 1,
            Self::ShortRead => 2,
            Self::ShortAppend => 3,
            Self::LostSync => 4,
            Self::MappedAccess => 5,
        }
    }

    fn hits(self, call: Call) -> bool {
        match self {
            Self::Io => true,
            Self::NoSpace => matches!(call, Call::Create | Call::Name | Call::Append { .. }),
            Self::ShortRead => matches!(call, Call::Read { bytes } if bytes >= 2),
            Self::ShortAppend => matches!(call, Call::Append { bytes, .. } if bytes >= 2),
            Self::LostSync => matches!(call, Call::Sync),
            Self::MappedAccess => matches!(call, Call::Append { mapped: true, .. }),
        }
    }
}

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultPlan {
    /// The fault.
    pub fault: Fault,
    /// The first call that fails, counted from 1 over the calls that `fault` can hit since the plan was set.
    pub at: u64,
    /// Whether all later such calls fail too.
    pub sticky: bool,
}

/// The kinds of file system calls that faults and counters distinguish.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Create,
    /// Rename, hard link, new directory.
    Name,
    /// Remove a file or a directory.
    Remove,
    /// Open, list, exists, len, lock.
    Inspect,
    Read {
        bytes: usize,
    },
    Append {
        bytes: usize,
        /// Through a mapping of the file.
        mapped: bool,
    },
    /// Bytes of a marker.
    Overwrite,
    Sync,
    SyncDirectory,
}

impl Call {
    pub(super) fn is_sync_point(self) -> bool {
        matches!(self, Self::Sync | Self::SyncDirectory)
    }

    pub(super) fn writes(self) -> bool {
        !matches!(self, Self::Inspect | Self::Read { .. })
    }
}

/// Counts of the calls of a simulated disk since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoCounters {
    /// Calls of any kind.
    pub calls: u64,
    /// Reads of bytes.
    pub reads: u64,
    /// Bytes requested by reads.
    pub read_bytes: u64,
    /// Appends.
    pub appends: u64,
    /// Bytes of appends.
    pub append_bytes: u64,
    /// Appends through mappings.
    pub mapped_appends: u64,
    /// Files that were mapped for writing: logs, and regions of persistent memory.
    pub writable_mappings: u64,
    /// Syncs of files and directories together.
    pub sync_points: u64,
    /// Creates, removals, renames, links and new directories.
    pub name_changes: u64,
    /// Injected faults.
    pub faults: u64,
}

/// The plan of faults and the counts of calls.
#[derive(Debug, Default)]
pub(super) struct FaultState {
    plan: Option<FaultPlan>,
    /// Per fault, the calls it could have hit since the plan was set.
    eligible: [u64; Fault::EACH.len()],
    pub(super) counters: IoCounters,
}

impl FaultState {
    pub(super) fn set_plan(&mut self, plan: Option<FaultPlan>) {
        self.plan = plan;
        self.eligible = [0; Fault::EACH.len()];
    }

    pub(super) fn eligible_calls(&self, fault: Fault) -> u64 {
        self.eligible[fault.index()]
    }

    /// Counts the call and returns its fault.
    pub(super) fn count(&mut self, call: Call) -> Option<Fault> {
        self.add_to_counters(call);
        for fault in Fault::EACH.into_iter().filter(|fault| fault.hits(call)) {
            self.eligible[fault.index()] += 1;
        }
        let plan = self.plan?;
        if !plan.fault.hits(call) {
            return None;
        }
        let count = self.eligible[plan.fault.index()];
        let hit = if plan.sticky { count >= plan.at } else { count == plan.at };
        self.counters.faults += u64::from(hit);
        hit.then_some(plan.fault)
    }

    fn add_to_counters(&mut self, call: Call) {
        let counters = &mut self.counters;
        counters.calls += 1;
        match call {
            Call::Create | Call::Name | Call::Remove => counters.name_changes += 1,
            Call::Inspect | Call::Overwrite => {}
            Call::Read { bytes } => {
                counters.reads += 1;
                counters.read_bytes += bytes as u64;
            }
            Call::Append { bytes, mapped } => {
                counters.mapped_appends += u64::from(mapped);
                counters.appends += 1;
                counters.append_bytes += bytes as u64;
            }
            Call::Sync | Call::SyncDirectory => counters.sync_points += 1,
        }
    }
}
