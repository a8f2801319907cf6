//! Regions: byte-addressable memory that may be persistent (Perseid §2.3).
//!
//! A [`Region`] is memory of 64-bit words, addressed by offsets ([`Place`]), that grows by extents. Structures
//! of an index live in it and find each other by places, so that it can be written down and read again at
//! any address. Reading takes no locks; writing goes through a [`RegionWriter`], allocations included.
//!
//! ```text
//! layout      where things lie in a region
//! extent      the memory, and the table that resolves places
//! word        what readers see
//! region      reading
//! writer      writing, making durable
//! allocate    handing out space, taking it back
//! pins        who still reads what was freed
//! epochs      the same, for owners that divide their allocations themselves
//! free_space  which granules are in use
//! growth      memory that is made before a region grows into it
//! dirty       pages written since the last cut
//! cut         what the region was at one moment, while writers go on
//! restore     a region from the pages of cuts
//! line_model  which lines of a simulated region are durable
//! simulated   what a power cut leaves of one
//! mapped, mapped_region, write_back   regions in files of persistent memory
//! copy        a region as a copy of another
//! sim_content a region as the file of a simulated file system
//! take_over   the header page and the free space at an opening
//! reclaim     space that nothing refers to
//! latency     delays that make memory slower
//! ```

mod allocate;
mod copy;
mod cut;
#[cfg(all(test, not(bolide_shuttle)))]
mod cut_tests;
mod dirty;
mod epochs;
mod extent;
mod free_space;
mod growth;
mod latency;
mod layout;
mod line_model;
mod mapped;
mod mapped_region;
#[cfg(all(test, not(any(miri, bolide_shuttle))))]
mod mapped_tests;
mod pins;
mod reclaim;
mod region;
mod restore;
mod sim_content;
mod simulated;
#[cfg(all(test, not(bolide_shuttle)))]
mod simulated_tests;
mod sync;
mod take_over;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
mod word;
mod write_back;
mod writer;

pub use cut::Cut;
pub use latency::LatencyModel;
pub use layout::{
    EXTENT_BYTES, GRANULE_BYTES, LINE_BYTES, MAX_ALLOCATION_BYTES, PAGE_BYTES, Place, ROOT_SLOTS,
};
pub use mapped::Mapping;
pub use pins::{OwnedPin, Pin};
pub use reclaim::Reached;
pub use region::{Region, RegionOptions, RegionStats};
pub use restore::RegionRestore;
pub(crate) use sim_content::RegionContent;
pub use simulated::{Crash, Crashes};
pub use word::Word;
pub use write_back::WriteBack;
pub use writer::RegionWriter;
