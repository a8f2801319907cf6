//! Which buckets may have a key, told from a word of memory for each.
//!
//! Most keys that a question asks for are not in the table: every entry of theirs is current. A word beside each bucket
//! has a bit for six bits of the tag of every key of its chain, so five of six such keys are settled without
//! a look at the bucket. The words of a table are a sixtieth of its buckets, and so lie in the cache where these do not.
//!
//! The words are volatile. Who holds the lock of a chain changes its word: the bit of a key is set before the key is there
//! for readers to miss, and goes after the key has gone.

use std::sync::OnceLock;

use bolide_base::{Error, Result};

use super::place_list::chunk_of;
use crate::sync::{AtomicU64, Ordering};

/// Chunks of the list, each twice as long as the one before: as many buckets as segments have, and more.
const CHUNKS: usize = 34;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Presence {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

/// The bit of a key with this tag: buckets are not chosen by it, and it is read from the first line of a bucket.
#[inline]
pub(super) fn bit_of(tag: u8) -> u64 {
    1 << (tag & 63)
}

impl Presence {
    /// Of a table without buckets.
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Whether the chain of `bucket` may have a key with this tag.
    #[inline]
    pub(super) fn may_have(&self, bucket: u64, tag: u8) -> bool {
        let (chunk, at) = chunk_of(bucket as usize);
        let word = self.chunks.get(chunk).and_then(OnceLock::get).and_then(|chunk| chunk.get(at));
        word.is_none_or(|word| word.load(Ordering::Acquire) & bit_of(tag) != 0)
    }

    /// The word of `bucket`: to be changed by who holds the lock of its chain.
    pub(super) fn word(&self, bucket: u64) -> Result<&AtomicU64> {
        let (chunk, at) = chunk_of(bucket as usize);
        let too_long = || Error::internal("version table: there are too many buckets");
        // Nothing is known of them.
        let make =
            || (0..super::place_list::FIRST_CHUNK << chunk).map(|_| AtomicU64::new(u64::MAX)).collect();
        self.chunks.get(chunk).ok_or_else(too_long)?.get_or_init(make).get(at).ok_or_else(too_long)
    }
}
