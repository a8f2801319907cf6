//! The cursor that every component of a tree offers: memtables, blocks, sstables, and merges of them.

use bolide_base::{Result, SequenceNumber, Trailer};

/// A position in a sequence of entries `(user key, trailer, value)` in tree order: user key bytewise
/// ascending, then sequence number descending, so that the newest version of a key comes first.
///
/// A cursor starts *invalid*, that is on no entry; a positioning call makes it valid or, where no such
/// entry exists, leaves it invalid. After an error it is invalid and stays usable: the next positioning
/// call tries anew. Hot loops use it through generics or enums, never as `dyn`.
///
/// ```
/// use bolide_base::Result;
/// use bolide_table::InternalCursor;
///
/// /// Sums the bytes of all values, oldest versions and tombstones included.
/// fn value_bytes(cursor: &mut impl InternalCursor) -> Result<u64> {
///     let mut sum = 0;
///     cursor.seek_to_first()?;
///     while cursor.valid() {
///         sum += cursor.value().len() as u64;
///         cursor.next()?;
///     }
///     Ok(sum)
/// }
/// ```
pub trait InternalCursor {
    /// True while the cursor stands on an entry.
    fn valid(&self) -> bool;

    /// The user key of the current entry. An invalid cursor answers the empty slice.
    fn key(&self) -> &[u8];

    /// The sequence number and kind of the current entry. An invalid cursor answers zero bits.
    fn trailer(&self) -> Trailer;

    /// The value of the current entry. An invalid cursor answers the empty slice.
    fn value(&self) -> &[u8];

    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;

    /// Moves to the first entry at or after `(key, sequence)` in tree order: the first whose key is
    /// greater than `key`, or equal to it with a sequence number of at most `sequence`.
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()>;

    /// Asks the processor for memory that a [`seek`](Self::seek) of the same place, to be called next,
    /// will read; until then the position is unspecified. A merge does this for all its sources, then
    /// [`prepare_further`](Self::prepare_further) for all, then seeks: so their waits overlap. The seek alone
    /// finds the same place.
    #[inline]
    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        let _ = (key, sequence);
    }

    /// Goes on from [`prepare_seek`](Self::prepare_seek) with what can be asked for only after the
    /// first answers are here.
    #[inline]
    fn prepare_further(&mut self) {}

    /// Moves to the last entry whose user key is less than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the next entry; after the last one the cursor is invalid. On an invalid cursor it does
    /// nothing.
    fn next(&mut self) -> Result<()>;

    /// Moves to the entry before; before the first one the cursor is invalid. On an invalid cursor it
    /// does nothing.
    fn prev(&mut self) -> Result<()>;
}
