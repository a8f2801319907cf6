//! Log-structured values: the SKey layer maps each secondary key to its newest entry in one log (Perseid §3). There is no
//! garbage collection, which is the best case of this structure (§5.1).
//!
//! ```text
//! entry   := older header primary-key padding    padded with zeros to a multiple of 8 bytes
//! older   offset of the next older entry of the secondary key; 0 for none
//! header  bits  0..16   length of the primary key
//!         bit  16       the entry is obsolete
//!         bits 17..64   sequence number
//! ```

use std::sync::{Arc, Mutex, PoisonError};

use bolide_index::ps_tree::{KeyMap, Obsolescence, PsBounds, SkeyKind};
use bolide_storage::pmem::{Place, Region, RegionWriter};

use super::{Entry, EntryStructure, Visitor, WalkStep};
use crate::error::Result;

const OBSOLETE: u64 = 1 << 16;
const HEADER_BYTES: usize = 16;
/// The bytes that the log allocates in the region at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// See the [module](self).
pub struct ValueLog {
    map: KeyMap,
    tail: Mutex<LogTail>,
}

/// The free part of the last chunk of the log.
#[derive(Debug, Default)]
struct LogTail {
    next: Place,
    end: Place,
}

impl ValueLog {
    /// An empty structure in an empty region.
    ///
    /// # Errors
    /// `NoSpace` from the region.
    pub fn create(region: &Arc<Region>, skey: SkeyKind) -> Result<Self> {
        Ok(Self { map: KeyMap::create(region.clone(), skey)?, tail: Mutex::default() })
    }

    fn region(&self) -> &Region {
        self.map.region()
    }

    fn allocate(&self, writer: &RegionWriter<'_>, bytes: usize) -> bolide_base::Result<Place> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.end - tail.next < bytes as Place {
            let chunk = CHUNK_BYTES.max(bytes);
            tail.next = writer.allocate(chunk)?;
            tail.end = tail.next + chunk as Place;
        }
        let at = tail.next;
        tail.next += bytes as Place;
        Ok(at)
    }

    /// The oldest entry of the chain that is newer than `sequence`; 0 if there is none.
    fn newer_neighbour(&self, newest: Place, sequence: u64) -> bolide_base::Result<Place> {
        let (mut neighbour, mut at) = (0, newest);
        while at != 0 && self.region().load(at + 8)? >> 17 > sequence {
            neighbour = at;
            at = self.region().load(at)?;
        }
        Ok(neighbour)
    }

    /// Appends an entry and links it. Returns the newest entry of its key.
    fn append(
        &self,
        writer: &RegionWriter<'_>,
        entry: Entry<'_>,
        newest: Place,
    ) -> bolide_base::Result<Place> {
        let length = entry.primary_key.len();
        let bytes = HEADER_BYTES + length.next_multiple_of(8);
        let at = self.allocate(writer, bytes)?;
        // The entry is usually the newest of its key.
        let neighbour = self.newer_neighbour(newest, entry.sequence)?;
        let older = if neighbour == 0 { newest } else { self.region().load(neighbour)? };
        writer.store(at, older)?;
        writer.store(at + 8, entry.sequence << 17 | length as u64)?;
        writer.write(at + HEADER_BYTES as Place, entry.primary_key)?;
        writer.persist(at, bytes)?;
        writer.fence();
        if neighbour == 0 {
            return Ok(at);
        }
        writer.store_release(neighbour, at)?;
        writer.persist(neighbour, 8)?;
        Ok(newest)
    }

    /// Visits the entries of a key from the newest one on. Returns the last step.
    fn walk_chain(&self, secondary_key: &[u8], newest: Place, visitor: &mut dyn Visitor) -> Result<WalkStep> {
        let (mut at, mut primary_key) = (newest, Vec::new());
        while at != 0 {
            let words = self.region().words(at, HEADER_BYTES)?;
            let (older, header) = match words {
                [older, header] => (older.get(), header.get()),
                _ => return Err("the header of a log entry".into()),
            };
            if header & OBSOLETE == 0 {
                primary_key.clear();
                let length = (header & 0xffff) as usize;
                self.region().read(at + HEADER_BYTES as Place, length, &mut primary_key)?;
                let entry = Entry { secondary_key, primary_key: &primary_key, sequence: header >> 17 };
                match visitor.entry(entry)? {
                    WalkStep::Next => {}
                    WalkStep::Flag => self.flag(at + 8, visitor)?,
                    end => return Ok(end),
                }
            }
            at = older;
        }
        Ok(WalkStep::NextKey)
    }

    fn flag(&self, header: Place, visitor: &mut dyn Visitor) -> Result<()> {
        let Some(writer) = self.region().try_writer() else { return Ok(()) };
        let before = writer.fetch_or(header, OBSOLETE)?;
        writer.persist(header, 8)?;
        drop(writer);
        if before & OBSOLETE == 0 { visitor.flagged() } else { Ok(()) }
    }
}

impl EntryStructure for ValueLog {
    fn insert(&self, writer: &RegionWriter<'_>, entry: Entry<'_>, _: &dyn Obsolescence) -> Result<()> {
        self.map.put(writer, entry.secondary_key, |newest| {
            self.append(writer, entry, newest.unwrap_or_default())
        })?;
        Ok(())
    }

    fn walk(&self, bounds: PsBounds<'_>, visitor: &mut dyn Visitor) -> Result<()> {
        let (low, end) = match bounds {
            PsBounds::One(key) => {
                if let Some(newest) = self.map.get(key)? {
                    self.walk_chain(key, newest, visitor)?;
                }
                return Ok(());
            }
            PsBounds::Range { low, end } => (low, end),
        };
        let mut scan = self.map.scan(low);
        while let Some(found) = scan.next_entry()? {
            if end.is_some_and(|end| found.key >= end)
                || self.walk_chain(found.key, found.value, visitor)? == WalkStep::Stop
            {
                break;
            }
        }
        Ok(())
    }
}
