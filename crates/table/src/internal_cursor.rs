//! The cursor interface of every component of a tree: memtables, blocks, sstables, and merges of them.

use bolide_base::{Result, SequenceNumber, Trailer};

/// The properties of an entry that a merge compares with those of other sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHead {
    /// The first bytes of the key; see [`key_head`].
    pub key_head: u128,
    /// The sequence number and the kind.
    pub trailer: Trailer,
}

impl EntryHead {
    /// The head of the current entry of `cursor`; `None` if it is invalid.
    #[inline]
    pub fn of(cursor: &impl InternalCursor) -> Option<Self> {
        cursor.valid().then(|| Self { key_head: key_head(cursor.key()), trailer: cursor.trailer() })
    }
}

/// The first sixteen bytes of `key` as a number, padded with zeros. Heads that differ have the order of their keys.
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
/// A cursor starts *invalid*, without a current entry. A positioning call makes it valid or, if no such entry exists,
/// leaves it invalid. After an error it is invalid and stays usable: the next positioning call tries again. Hot loops use
/// it through generics or enums, never as `dyn`.
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
    /// Whether the cursor has a current entry.
    fn valid(&self) -> bool;

    /// The user key of the current entry; empty if the cursor is invalid.
    fn key(&self) -> &[u8];

    /// The sequence number and kind of the current entry; zero if the cursor is invalid.
    fn trailer(&self) -> Trailer;

    /// The value of the current entry; empty if the cursor is invalid.
    fn value(&self) -> &[u8];

    /// Moves to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Moves to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;

    /// Moves to the first entry at or after `(key, sequence)` in tree order: the first whose key is
    /// greater than `key`, or equal to it with a sequence number of at most `sequence`.
    fn seek(&mut self, key: &[u8], sequence: SequenceNumber) -> Result<()>;

    /// Prefetches memory that a [`seek`](Self::seek) with the same arguments, to be called next, will read. The position is
    /// unspecified until that seek. A merge calls this for all its sources, then
    /// [`prepare_next_stage`](Self::prepare_next_stage) for all until each returns false, then seeks, so that the cache misses
    /// overlap. Both calls are optional, and a seek with other arguments is correct too.
    #[inline]
    fn prepare_seek(&mut self, key: &[u8], sequence: SequenceNumber) {
        let _ = (key, sequence);
    }

    /// Continues [`prepare_seek`](Self::prepare_seek) or the last call with prefetches whose addresses depend on memory that
    /// was prefetched before. Returns true if a further call has more to prefetch.
    #[inline]
    fn prepare_next_stage(&mut self) -> bool {
        false
    }

    /// Moves to the last entry whose user key is less than `key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;

    /// Moves to the next entry; invalid after the last one. Does nothing on an invalid cursor.
    fn next(&mut self) -> Result<()>;

    /// As [`next`](Self::next), and returns the head of the new current entry; `None` if there is none. One call instead of
    /// several in a merge.
    #[inline]
    fn next_entry(&mut self) -> Result<Option<EntryHead>>
    where
        Self: Sized,
    {
        self.next()?;
        Ok(EntryHead::of(self))
    }

    /// As [`next_entry`](Self::next_entry), if the next entry is in memory and is known to have another key than the current
    /// entry. Else returns `None` and does not move.
    #[inline]
    fn try_next_distinct(&mut self) -> Option<EntryHead> {
        None
    }

    /// False if [`try_next_distinct`](Self::try_next_distinct) usually returns `None`, so that calls do not pay.
    #[inline]
    fn supports_try_next_distinct(&self) -> bool {
        false
    }

    /// Whether all further entries that [`next`](Self::next) reaches have distinct keys: one version per key is visible.
    #[inline]
    fn yields_keys_once(&self) -> bool {
        false
    }

    /// Moves to the previous entry; invalid before the first one. Does nothing on an invalid cursor.
    fn prev(&mut self) -> Result<()>;
}
