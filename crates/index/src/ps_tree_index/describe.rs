//! Text description of a region in persistent memory.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use bolide_base::{Error, Result};
use bolide_storage::Vfs;
use bolide_storage::pmem::RegionOptions;

use crate::ps_tree::PsTree;
use crate::version_table::VersionTable;

/// The offset of the id in a region's header page, in bytes.
const ID_AT: u64 = 16;

/// Writes a description of the region in the file at `path` to `out`: its header, the size of its version table, and
/// every secondary key with its groups. Reads only.
///
/// # Errors
/// Those of opening it; `Corruption` where the description cannot continue; `Internal` if `out` fails.
pub fn describe_in_place(vfs: &dyn Vfs, path: &Path, out: &mut dyn Write) -> Result<()> {
    let text = |_| Error::internal("the description could not be written");
    let mut id = [0; 8];
    vfs.open(path)?.read_exact_at(ID_AT, &mut id)?;
    let options = RegionOptions::new().id(u64::from_le_bytes(id)).name(path.display().to_string());
    let region = vfs.open_region(path, options, true)?;
    let stats = region.stats();
    writeln!(
        out,
        "region {} in persistent memory, opened {} times before, {} bytes reserved, {} in use{}",
        region.id(),
        region.open_count() - 1,
        stats.reserved_bytes,
        stats.allocated_bytes,
        if region.is_free_space_known() { "" } else { " at most" }
    )
    .map_err(text)?;
    writeln!(out, "complete through sequence number {}", super::region_location::through(&region)?)
        .map_err(text)?;
    let versions = VersionTable::open(&region)?.stats();
    writeln!(
        out,
        "version table: {} keys in {} buckets; {} keys known",
        versions.keys, versions.buckets, versions.known_keys
    )
    .map_err(text)?;
    let mut tree = String::new();
    PsTree::open(Arc::clone(&region))?.dump(&mut tree)?;
    out.write_str(&tree).map_err(text)
}
