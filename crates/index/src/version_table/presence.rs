//! Presence words: which buckets may contain a key, from one word of memory per bucket.
//!
//! Most keys that a query looks up are absent: all their entries are current. The presence word of a bucket has a bit for
//! six bits of the tag of every key of its chain. It excludes five of six absent keys without a read of the bucket. The
//! words are a sixtieth of the size of the buckets, so they stay in the processor's cache.
//!
//! The words are volatile. The holder of the lock of a chain changes its word. The bit of a key is set before the key is
//! inserted, and cleared after the key was removed.

use std::sync::OnceLock;

use bolide_base::technique::Technique;
use bolide_base::{Error, Result};

use super::place_list::chunk_of;
use crate::sync::{AtomicU64, Ordering};

/// Chunks of the list, each twice as long as the previous one: at least as many words as segments have buckets.
const CHUNKS: usize = 34;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Presence {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
}

/// The bit of a key with this tag. The tag does not select the bucket, and lies in the first cache line of a bucket.
#[inline]
pub(super) fn bit_of(tag: u8) -> u64 {
    1 << (tag & 63)
}

impl Presence {
    /// The words of a table without buckets.
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Whether the chain of `bucket` may have a key with this tag.
    #[inline]
    pub(super) fn may_have(&self, bucket: u64, tag: u8) -> bool {
        let (chunk, at) = chunk_of(bucket as usize);
        let word = self.chunks.get(chunk).and_then(OnceLock::get).and_then(|chunk| chunk.get(at));
        word.is_none_or(|word| {
            !Technique::PresenceWords.is_on() || word.load(Ordering::Acquire) & bit_of(tag) != 0
        })
    }

    /// The word of `bucket`. Only the holder of the lock of its chain may change it.
    pub(super) fn word(&self, bucket: u64) -> Result<&AtomicU64> {
        let (chunk, at) = chunk_of(bucket as usize);
        let too_long = || Error::internal("version table: there are too many buckets");
        // All bits until the bucket is read.
        let make =
            || (0..super::place_list::FIRST_CHUNK << chunk).map(|_| AtomicU64::new(u64::MAX)).collect();
        self.chunks.get(chunk).ok_or_else(too_long)?.get_or_init(make).get(at).ok_or_else(too_long)
    }
}
