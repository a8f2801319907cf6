//! The cursor that every component of a tree offers: memtables, blocks, sstables, and merges of them.

use bolide_base::{Result, SequenceNumber, Trailer};

/// What a merge asks of an entry to find its place among those of other sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHead {
    /// See [`key_head`].
    pub key_head: u128,
    /// Its sequence number and kind.
    pub trailer: Trailer,
}

impl EntryHead {
    /// That of the entry that `cursor` stands on, if it stands on one.
    #[inline]
    pub fn of(cursor: &impl InternalCursor) -> Option<Self> {
        cursor.valid().then(|| Self { key_head: key_head(cursor.key()), trailer: cursor.trailer() })
    }
}

/// The first sixteen bytes of `key` as a number, padded with zeros. Heads that differ are ordered as their keys.
#[inline]
pub fn key_head(key: &[u8]) -> u128 {
    if let Some(bytes) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*bytes);
    }
    let mut padded = [0; 16];
    if let Some(start) = padded.get_mut(..key.len()) {
        start.copy_from_slice(key);
    }
    u128::from_be_bytes(padded)
}

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
    /// [`prepare_further`](Self::prepare_further) for all, as often as one of them says, then seeks: so their waits
    /// overlap. The seek alone finds the same place, and so does one of another place.
    #[inline]
    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        let _ = (key, sequence);
    }

    /// Goes on from [`prepare_seek`](Self::prepare_seek), or from the last call, with what can be asked for only after
    /// the answers to that are here. True where there will be more to ask for then: it is to be called again.
    #[inline]
    fn prepare_further(&mut self) -> bool {
        false
    }

    /// Moves to the last entry whose user key is less than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the next entry; after the last one the cursor is invalid. On an invalid cursor it does
    /// nothing.
    fn next(&mut self) -> Result<()>;

    /// As [`next`](Self::next), and says what a merge asks of the entry there; `None` where there is none. One call
    /// where a merge would need several.
    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>>
    where
        Self: Sized,
    {
        self.next()?;
        Ok(EntryHead::of(self))
    }

    /// As [`next_entry`](Self::next_entry), where the next entry is at hand and surely has another key than the current one;
    /// else `None`, and the cursor stays where it is.
    #[inline]
    fn next_in_hand(&mut self) -> Option<EntryHead> {
        None
    }

    /// False where [`next_in_hand`](Self::next_in_hand) is not worth asking, as it answers nothing as a rule.
    #[inline]
    fn can_have_next_in_hand(&self) -> bool {
        false
    }

    /// True where the entries that [`next`](Self::next) goes to from here on have each another key than the one before:
    /// of each key one version is shown.
    #[inline]
    fn shows_keys_once(&self) -> bool {
        false
    }

    /// Moves to the entry before; before the first one the cursor is invalid. On an invalid cursor it
    /// does nothing.
    fn prev(&mut self) -> Result<()>;
}
