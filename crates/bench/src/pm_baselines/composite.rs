//! Composite keys: every entry is a key of the SKey layer (Perseid §2.2, §3).
//!
//! ```text
//! key    secondary key, inverted sequence number (8, big-endian), primary key
//! value  bit  0       the entry is obsolete
//!        bits 1..17   length of the secondary key
//!        bits 17..64  sequence number
//! ```

use std::sync::Arc;

use bolide_index::ps_tree::{KeyMap, KeyMapEntry, Obsolescence, PsBounds, SkeyKind};
use bolide_storage::pmem::{Region, RegionWriter};

use super::{Entry, EntryStructure, Visitor, WalkStep};
use crate::error::Result;

const OBSOLETE: u64 = 1;

/// See the [module](self).
pub struct CompositeKeys {
    map: KeyMap,
}

impl CompositeKeys {
    /// An empty structure in an empty region.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub fn create(region: &Arc<Region>, skey: SkeyKind) -> Result<Self> {
        Ok(Self { map: KeyMap::create(region.clone(), skey)? })
    }

    /// The parts of a key; `None` if one is missing.
    fn parse<'k>(found: &KeyMapEntry<'k>) -> Option<Entry<'k>> {
        let (secondary_key, rest) = found.key.split_at_checked((found.value >> 1 & 0xffff) as usize)?;
        let (_, primary_key) = rest.split_at_checked(8)?;
        Some(Entry { secondary_key, primary_key, sequence: found.value >> 17 })
    }
}

/// The first key after all keys with this prefix; `None` if there is none.
fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

impl EntryStructure for CompositeKeys {
    fn insert(&self, writer: &RegionWriter<'_>, entry: Entry<'_>, _: &dyn Obsolescence) -> Result<()> {
        let Entry { secondary_key, primary_key, sequence } = entry;
        let mut key = Vec::with_capacity(secondary_key.len() + 8 + primary_key.len());
        key.extend_from_slice(secondary_key);
        key.extend_from_slice(&(!sequence).to_be_bytes());
        key.extend_from_slice(primary_key);
        let value = sequence << 17 | (secondary_key.len() as u64) << 1;
        self.map.insert(writer, &key, value)?;
        Ok(())
    }

    fn walk(&self, bounds: PsBounds<'_>, visitor: &mut dyn Visitor) -> Result<()> {
        let (low, end) = match bounds {
            PsBounds::One(key) => (key, None),
            PsBounds::Range { low, end } => (low, end),
        };
        let mut scan = self.map.scan(low);
        // The secondary key whose remaining entries are skipped.
        let mut finished_key: Option<Vec<u8>> = None;
        loop {
            if let Some(key) = finished_key.take_if(|_| scan.buffered() == 0) {
                // Skipping buffered neighbours is cheaper than a search.
                let Some(next) = prefix_successor(&key) else { return Ok(()) };
                scan.skip_to(&next);
            }
            let Some(found) = scan.next_entry()? else { return Ok(()) };
            let entry = Self::parse(&found).ok_or("a composite key without its parts")?;
            if matches!(bounds, PsBounds::One(key) if entry.secondary_key != key)
                || end.is_some_and(|end| entry.secondary_key >= end)
            {
                return Ok(());
            }
            if finished_key.as_deref() == Some(entry.secondary_key) {
                continue;
            }
            finished_key = None;
            if found.value & OBSOLETE != 0 {
                continue;
            }
            match visitor.entry(entry)? {
                WalkStep::Next => {}
                WalkStep::NextKey => finished_key = Some(entry.secondary_key.to_vec()),
                WalkStep::Stop => return Ok(()),
                WalkStep::Flag => {
                    let (place, value) = (found.place, found.value);
                    let flag =
                        |writer: RegionWriter<'_>| self.map.replace(&writer, place, value, value | OBSOLETE);
                    if self.map.region().try_writer().map(flag).transpose()? == Some(true) {
                        visitor.flagged()?;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_successor_of_a_prefix_is_the_first_key_without_it() {
        assert_eq!(prefix_successor(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_successor(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_successor(b"\xff"), None);
    }
}
