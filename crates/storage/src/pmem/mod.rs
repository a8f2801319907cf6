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
//! writer      writing, allocating, freeing
//! pins        who still reads what was freed
//! free_space  which granules are in use
//! dirty       pages written since the last cut
//! cut         what the region was at one moment, while writers go on
//! restore     a region from the pages of cuts
//! ```

mod cut;
#[cfg(all(test, not(bolide_shuttle)))]
mod cut_tests;
mod dirty;
mod extent;
mod free_space;
mod layout;
mod pins;
mod region;
mod restore;
mod sync;
#[cfg(all(test, not(bolide_shuttle)))]
mod tests;
mod word;
mod writer;

pub use cut::Cut;
pub use layout::{EXTENT_BYTES, GRANULE_BYTES, MAX_ALLOCATION_BYTES, PAGE_BYTES, Place, ROOT_SLOTS};
pub use pins::{OwnedPin, Pin};
pub use region::{Region, RegionOptions, RegionStats};
pub use restore::RegionRestore;
pub use word::Word;
pub use writer::RegionWriter;
