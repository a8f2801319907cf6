//! The PS-Tree of an index of kind `ps-tree` as one of the compared structures.

use std::sync::Arc;

use bolide_base::MAX_SEQUENCE;
use bolide_index::Order;
use bolide_index::ps_tree::{Obsolescence, PsBounds, PsFlag, PsTree, PsTreeOptions, SkeyKind};
use bolide_storage::pmem::{Region, RegionWriter};

use super::{Entry, EntryStructure, Visitor, WalkStep};
use crate::error::Result;

/// See the [module](self).
pub struct PsTreeEntries {
    tree: PsTree,
}

impl PsTreeEntries {
    /// An empty structure in an empty region.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub fn create(region: &Arc<Region>, skey: SkeyKind) -> Result<Self> {
        Ok(Self { tree: PsTree::create(region.clone(), PsTreeOptions::new().skey(skey))? })
    }
}

impl EntryStructure for PsTreeEntries {
    fn insert(&self, writer: &RegionWriter<'_>, entry: Entry<'_>, garbage: &dyn Obsolescence) -> Result<()> {
        let Entry { secondary_key, primary_key, sequence } = entry;
        // No reader has an older view.
        self.tree.insert(writer, secondary_key, primary_key, sequence, b"", garbage, MAX_SEQUENCE)?;
        Ok(())
    }

    fn walk(&self, bounds: PsBounds<'_>, visitor: &mut dyn Visitor) -> Result<()> {
        if let PsBounds::One(key) = bounds {
            return self.walk_key(key, visitor);
        }
        let mut cursor = self.tree.cursor(bounds, Order::Value, MAX_SEQUENCE)?;
        loop {
            let Some(found) = cursor.next_entry()? else { return Ok(()) };
            let (place, sequence) = (found.place, found.sequence);
            let (secondary_key, primary_key) = (found.secondary_key, found.primary_key);
            match visitor.entry(Entry { secondary_key, primary_key, sequence })? {
                WalkStep::Next => {}
                WalkStep::NextKey => cursor.skip_key(),
                WalkStep::Stop => return Ok(()),
                WalkStep::Flag => {
                    if cursor.flag_obsolete(place)? == PsFlag::Flagged {
                        visitor.flagged()?;
                    }
                }
            }
        }
    }
}

impl PsTreeEntries {
    /// Visits the entries of one key.
    fn walk_key(&self, secondary_key: &[u8], visitor: &mut dyn Visitor) -> Result<()> {
        let mut entries = self.tree.newest_entries(secondary_key, MAX_SEQUENCE)?;
        let mut long = Vec::new();
        while let Some((sequence, place, primary_key)) = entries.next_entry(&mut long)? {
            let entry = Entry { secondary_key, primary_key: primary_key.of(&long), sequence };
            match visitor.entry(entry)? {
                WalkStep::Next => {}
                WalkStep::NextKey | WalkStep::Stop => break,
                WalkStep::Flag => {
                    let flag = match self.tree.region().try_writer() {
                        Some(writer) => entries.flag_obsolete(&writer, place)?,
                        None => PsFlag::Busy,
                    };
                    if flag == PsFlag::Flagged {
                        visitor.flagged()?;
                    }
                }
            }
            long.clear();
        }
        Ok(())
    }
}
