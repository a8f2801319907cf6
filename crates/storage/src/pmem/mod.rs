//! Regions: byte-addressable memory that may be persistent (Perseid §2.3).
//!
//! A [`Region`] is memory of 64-bit words that grows by extents. Words have offsets ([`Place`]) instead of addresses. The
//! structures of an index refer to each other by offsets, so a region can be stored and loaded at any address. Reads take no
//! locks; writes and allocations use a [`RegionWriter`].
//!
//! ```text
//! layout          the format of a region
//! extent          the memory, and the table that resolves offsets
//! word            words for readers
//! region          reads
//! writer          writes and persistence
//! allocate        allocation and freeing
//! pins            pins of readers, which defer the reuse of freed space
//! epochs          the same for owners that divide their allocations themselves
//! free_space      bitmaps and lists of free granules
//! growth          preallocated extents
//! memory_count    its memory in the budget of a database
//! dirty           pages written since the last checkpoint
//! checkpoint      a consistent snapshot of the pages beside concurrent writers
//! restore         a region from the pages of checkpoints
//! line_model      durability of the cache lines of a simulated region
//! simulated       outcomes of a power cut of a simulated region
//! mapped, mapped_region, write_back   regions in files of persistent memory
//! copy            copies between regions
//! region_content  a region as a file of a simulated file system
//! recovery        the header page and the free space at an opening
//! reclaim         reclamation of unreachable space
//! latency         delays that simulate slower memory (feature `paper`)
//! ```

mod allocate;
mod checkpoint;
#[cfg(all(test, not(bolide_shuttle)))]
mod checkpoint_tests;
mod copy;
mod dirty;
mod epochs;
mod extent;
mod free_space;
mod growth;
#[cfg(feature = "paper")]
mod latency;
mod layout;
mod line_model;
mod mapped;
mod mapped_region;
#[cfg(all(test, not(any(miri, bolide_shuttle))))]
mod mapped_tests;
mod memory_count;
mod pins;
mod reclaim;
mod recovery;
mod region;
mod region_content;
mod restore;
mod simulated;
#[cfg(all(test, not(bolide_shuttle)))]
mod simulated_tests;
mod sync;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
mod word;
mod write_back;
mod writer;

pub use checkpoint::RegionCheckpoint;
#[cfg(feature = "paper")]
pub use latency::LatencyModel;
pub use layout::{
    EXTENT_BYTES, GRANULE_BYTES, LINE_BYTES, MAX_ALLOCATION_BYTES, PAGE_BYTES, Place, ROOT_SLOTS,
};
pub use mapped::MappingMode;
pub use pins::{OwnedPin, Pin};
pub use reclaim::ReachableSet;
pub use region::{Region, RegionOptions, RegionStats};
pub(crate) use region_content::RegionContent;
pub use restore::RegionRestore;
pub use simulated::{CrashOutcome, CrashOutcomes};
pub use word::Word;
pub use write_back::WriteBack;
pub use writer::RegionWriter;
