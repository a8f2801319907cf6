//! Which call fails, and how.
//!
//! Calls are counted per kind of fault: the `at`-th call *that the fault can hit* fails, so that a run
//! over `at = 1, 2, 3, …` meets each place once and knows when it has met all of them.

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The operating system reports an input/output error. Hits every call. An operation on names may
    /// have been done nevertheless; an append may have written a part.
    Io,
    /// The disk is full. Hits creates, links, renames, new directories and appends; nothing is written.
    NoSpace,
    /// A read returns fewer bytes than asked, which is no error. Hits reads of two bytes or more.
    ShortRead,
    /// An append writes a part of its bytes and reports an error. Hits appends of two bytes or more.
    ShortAppend,
    /// A sync of a file fails and drops the bytes it was to write. Hits syncs of files.
    LostSync,
    /// An access to a mapped log fails after a part of its bytes. Hits appends to logs of a disk that
    /// [maps them](crate::SimVfs::map_logs). On a real disk such an access is a SIGBUS, which ends the process: a file cut by
    /// another program, a failed medium.
    MappedAccess,
}

impl Fault {
    /// All faults.
    pub const EACH: [Self; 6] =
        [Self::Io, Self::NoSpace, Self::ShortRead, Self::ShortAppend, Self::LostSync, Self::MappedAccess];

    /// Its place in an array of counters.
    fn slot(self) -> usize {
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

/// Which call is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FaultPlan {
    /// What goes wrong.
    pub fault: Fault,
    /// The first call that fails, counted from 1 over the calls that `fault` can hit, from the moment
    /// the plan is set.
    pub at: u64,
    /// Whether all such calls after it fail too.
    pub sticky: bool,
}

/// A call of the file system, as far as faults and counters tell calls apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Create,
    /// Rename, hard link, new directory.
    Name,
    /// Remove a file or a directory.
    Remove,
    /// Open, list, exists, len, lock.
    Look,
    Read {
        bytes: usize,
    },
    Append {
        bytes: usize,
        /// To memory that the file is mapped to.
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
        !matches!(self, Self::Look | Self::Read { .. })
    }
}

/// How often the simulated disk was called since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoCounters {
    /// Calls of any kind.
    pub calls: u64,
    /// Reads of bytes.
    pub reads: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Appends.
    pub appends: u64,
    /// Bytes given to appends.
    pub append_bytes: u64,
    /// Appends to files that are mapped to be written.
    pub mapped_appends: u64,
    /// Files that were mapped to be written: logs, and regions of persistent memory.
    pub writable_mappings: u64,
    /// Syncs of files and directories together.
    pub sync_points: u64,
    /// Creates, removals, renames, links and new directories.
    pub name_changes: u64,
    /// Faults that were met.
    pub faults: u64,
}

/// The plan and the counts.
#[derive(Debug, Default)]
pub(super) struct FaultState {
    plan: Option<FaultPlan>,
    /// Per fault, the calls that it could have hit since the plan was last set.
    eligible: [u64; Fault::EACH.len()],
    pub(super) counters: IoCounters,
}

impl FaultState {
    pub(super) fn set_plan(&mut self, plan: Option<FaultPlan>) {
        self.plan = plan;
        self.eligible = [0; Fault::EACH.len()];
    }

    pub(super) fn eligible_calls(&self, fault: Fault) -> u64 {
        self.eligible[fault.slot()]
    }

    /// Counts the call and says what is to go wrong with it.
    pub(super) fn count(&mut self, call: Call) -> Option<Fault> {
        self.add_to_counters(call);
        for fault in Fault::EACH.into_iter().filter(|fault| fault.hits(call)) {
            self.eligible[fault.slot()] += 1;
        }
        let plan = self.plan?;
        if !plan.fault.hits(call) {
            return None;
        }
        let count = self.eligible[plan.fault.slot()];
        let hit = if plan.sticky { count >= plan.at } else { count == plan.at };
        self.counters.faults += u64::from(hit);
        hit.then_some(plan.fault)
    }

    fn add_to_counters(&mut self, call: Call) {
        let counters = &mut self.counters;
        counters.calls += 1;
        match call {
            Call::Create | Call::Name | Call::Remove => counters.name_changes += 1,
            Call::Look | Call::Overwrite => {}
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
