//! The entry of a key in a memtable, with all its versions.
//!
//! ```text
//! entry      head        8   link to the newest version
//!            key length  4
//!            (spare)     4
//!            key         n   padded to 8
//!            first version   embedded: the version inserted with the key
//!
//! version    next        8   link to the next older version
//!            trailer     8   sequence number and kind
//!            value info  4   value length in bits 0..30; bit 31: linked, not embedded
//!   embedded value       n
//!   linked   depth       4   the number of versions added at the head before it; 0: no jump
//!            jump        8   link to some older version (null: none)
//!            value       n
//! ```
//!
//! Versions are linked newest first. They are added without a lock and never removed. A version with the sequence
//! number of an existing one is linked before it and hides it: the last writer wins, and a repeated log replay has no
//! effect.
//!
//! **Jumps.** A read at an old snapshot must not walk over thousands of newer versions of a key. Of the versions added
//! at the head, every sixteenth is a *stop*. It jumps to an older stop by the rule of skew-binary numbers (Myers 1983):
//! to its predecessor's jump target's jump target if both jumps are equally long, else to its predecessor. The other
//! versions jump to the previous stop. A search then finds any version in O(log n) steps plus about sixteen. An
//! insertion reads only the head, unless the new version is a stop; the rule alone would read two more versions, each
//! with a cache miss. A late version, which is inserted below the head, has no jump. Jumps may skip it, which is correct
//! because a search only jumps to versions that are still too new.

use std::ptr::NonNull;
use std::slice;

use bolide_base::technique::Technique;
use bolide_base::{SequenceNumber, Trailer};

use bolide_memory::Arena;

use super::arena_ref::{ArenaRef, Link};

/// The head of an entry; its key and first version follow in memory.
#[repr(C)]
pub(super) struct KeyEntry {
    head: Link<EntryVersion>,
    key_bytes: u32,
}

/// The head of a version; its value follows in memory.
#[repr(C)]
pub(super) struct EntryVersion {
    next: Link<EntryVersion>,
    trailer: Trailer,
}

const VALUE_INFO: usize = 16;
const EMBEDDED_VALUE: usize = 20;
const DEPTH: usize = 20;
const JUMP: usize = 24;
const LINKED_VALUE: usize = 32;
const LINKED: u32 = 1 << 31;

const _: () = assert!(size_of::<usize>() == 8, "the layouts of the memtable are for 64-bit machines");
const _: () = assert!(size_of::<KeyEntry>() == 16 || cfg!(bolide_shuttle));

/// The offset of the key in an entry.
const KEY: usize = size_of::<KeyEntry>();
/// The shift of the fields after `next` and `trailer`; not 0 only under the model checker.
const SHIFT: usize = size_of::<EntryVersion>() - VALUE_INFO;

/// A reference to an entry.
pub(super) type EntryRef<'a> = ArenaRef<'a, KeyEntry>;
/// A reference to a version.
pub(super) type VersionRef<'a> = ArenaRef<'a, EntryVersion>;

impl<'a> ArenaRef<'a, KeyEntry> {
    /// Builds an entry with its first version in `arena`. The value has less than 2 GiB, the key less
    /// than 4 GiB.
    pub(super) fn create(arena: &'a Arena, key: &[u8], trailer: Trailer, value: &[u8]) -> Self {
        let version_at = (KEY + key.len()).next_multiple_of(8);
        let base = arena.allocate(version_at + SHIFT + EMBEDDED_VALUE + value.len());
        // SAFETY: the memory has room for `version_at` bytes and an embedded version after them, both aligned.
        unsafe {
            let version = base.add(version_at);
            let first = VersionRef::write_version(version, trailer, length(value), EMBEDDED_VALUE, value);
            base.add(KEY).copy_from_nonoverlapping(start(key), key.len());
            base.cast().write(KeyEntry { head: Link::new(Some(first)), key_bytes: length(key) });
            ArenaRef::new(base.cast())
        }
    }

    /// The user key.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        let bytes = self.get().key_bytes as usize;
        // SAFETY: `create` wrote that many bytes there, and they are never written again.
        unsafe { slice::from_raw_parts(self.address().add(KEY).as_ptr(), bytes) }
    }

    /// The newest version.
    #[inline]
    pub(super) fn head(self) -> VersionRef<'a> {
        match self.get().head.load() {
            Some(version) => version,
            None => unreachable!("an entry is created with a version"),
        }
    }

    /// The version that was created with the entry.
    pub(super) fn first(self) -> VersionRef<'a> {
        let version_at = (KEY + self.get().key_bytes as usize).next_multiple_of(8);
        // SAFETY: `create` wrote a version there.
        unsafe { ArenaRef::new(self.address().add(version_at).cast()) }
    }

    /// The newest version with a sequence number of at most `max_sequence`.
    #[inline]
    pub(super) fn newest(self, max_sequence: SequenceNumber) -> Option<VersionRef<'a>> {
        let head = self.head();
        if head.sequence() <= max_sequence {
            return Some(head);
        }
        // A late version may be inserted right after the one found: hence the loop.
        let mut version = head.last_above(max_sequence);
        loop {
            version = version.next()?;
            if version.sequence() <= max_sequence {
                return Some(version);
            }
        }
    }

    /// The oldest version newer than `sequence`: the neighbour of that version on the newer side.
    pub(super) fn oldest_above(self, sequence: SequenceNumber) -> Option<VersionRef<'a>> {
        let head = self.head();
        if head.sequence() <= sequence {
            return None;
        }
        // Of versions with equal sequence numbers, only the first is valid.
        let neighbour = head.last_above(sequence).sequence();
        self.newest(neighbour)
    }

    /// Links `new`, which is not published yet, at its position among the versions. Returns false if it hides an existing
    /// version with its sequence number.
    pub(super) fn add(self, new: VersionRef<'a>) -> bool {
        let sequence = new.sequence();
        loop {
            let head = self.head();
            let (link, older) = if head.sequence() <= sequence {
                new.set_jump(Some(head));
                (&self.get().head, Some(head))
            } else {
                let newer = head.last_above(sequence);
                new.set_jump(None);
                (&newer.get().next, newer.next())
            };
            // A concurrent insertion between the two loads may make `older` newer than `new`: retry then.
            if older.is_some_and(|older| older.sequence() > sequence) {
                continue;
            }
            new.get().next.store(older);
            if link.replace(older, new) {
                return older.is_none_or(|older| older.sequence() != sequence);
            }
        }
    }
}

impl<'a> ArenaRef<'a, EntryVersion> {
    /// Builds a version for an existing entry. The value has less than 2 GiB.
    pub(super) fn create(arena: &'a Arena, trailer: Trailer, value: &[u8]) -> Self {
        let base = arena.allocate(SHIFT + LINKED_VALUE + value.len());
        // SAFETY: the memory has room for a linked version and its value.
        unsafe {
            let version = Self::write_version(base, trailer, length(value) | LINKED, LINKED_VALUE, value);
            version.set_jump(None);
            version
        }
    }

    /// # Safety
    /// `base` is fresh, aligned to 8, and has room up to the end of the value.
    unsafe fn write_version(base: NonNull<u8>, trailer: Trailer, info: u32, at: usize, value: &[u8]) -> Self {
        // SAFETY: by the contract of this function.
        unsafe {
            base.cast().write(EntryVersion { next: Link::new(None), trailer });
            base.add(SHIFT + VALUE_INFO).cast().write(info);
            base.add(SHIFT + at).copy_from_nonoverlapping(start(value), value.len());
            Self::new(base.cast())
        }
    }

    /// Sets the jump of a new version, as the successor of `head`, or as a late version if that is `None`.
    fn set_jump(self, head: Option<VersionRef<'a>>) {
        if self.info() & LINKED == 0 {
            return;
        }
        let (depth, jump) = match head {
            None => (0, None),
            Some(head) => {
                let (depth, stop) = head.depth_and_stop();
                let depth = depth + 1;
                (depth, Some(if is_stop(depth) { stop.beyond() } else { stop }))
            }
        };
        // SAFETY: a linked version has both fields, and this one is not published yet.
        unsafe {
            self.address().add(SHIFT + DEPTH).cast().write(depth);
            self.address().add(SHIFT + JUMP).cast().write(jump);
        }
    }

    /// The depth of this version, and the last stop up to and including it.
    #[inline]
    fn depth_and_stop(self) -> (u32, Self) {
        match self.jump() {
            Some((depth, target)) => (depth, if is_stop(depth) { self } else { target }),
            None => (0, self),
        }
    }

    /// The jump target of the next stop after this one.
    fn beyond(self) -> Self {
        let Some((depth, target)) = self.jump() else { return self };
        let Some((target_depth, beyond)) = target.jump() else { return self };
        let beyond_depth = beyond.jump().map_or(0, |(depth, _)| depth);
        if depth - target_depth == target_depth - beyond_depth { beyond } else { self }
    }

    /// The depth of this version and the older version it jumps to.
    #[inline]
    fn jump(self) -> Option<(u32, VersionRef<'a>)> {
        if self.info() & LINKED == 0 || !Technique::VersionJumps.is_on() {
            return None;
        }
        // SAFETY: a linked version has both fields, which are written before its publication and never again.
        let (depth, target) = unsafe {
            (
                self.address().add(SHIFT + DEPTH).cast::<u32>().read(),
                self.address().add(SHIFT + JUMP).cast::<Option<VersionRef<'a>>>().read(),
            )
        };
        target.map(|target| (depth, target))
    }

    #[inline]
    fn info(self) -> u32 {
        // SAFETY: every version has this field, which is written before its publication and never again.
        unsafe { self.address().add(SHIFT + VALUE_INFO).cast().read() }
    }

    /// The sequence number and kind.
    #[inline]
    pub(super) fn trailer(self) -> Trailer {
        self.get().trailer
    }

    #[inline]
    pub(super) fn sequence(self) -> SequenceNumber {
        self.get().trailer.sequence()
    }

    /// The value.
    #[inline]
    pub(super) fn value(self) -> &'a [u8] {
        let info = self.info();
        let at = if info & LINKED == 0 { EMBEDDED_VALUE } else { LINKED_VALUE };
        // SAFETY: a value of that length is there, and it is never written again.
        unsafe { slice::from_raw_parts(self.address().add(SHIFT + at).as_ptr(), (info & !LINKED) as usize) }
    }

    #[inline]
    fn next(self) -> Option<VersionRef<'a>> {
        self.get().next.load()
    }

    /// The next version with a smaller sequence number.
    #[inline]
    pub(super) fn older(self) -> Option<VersionRef<'a>> {
        let mut version = self.next()?;
        while version.sequence() == self.sequence() {
            version = version.next()?;
        }
        Some(version)
    }

    /// The last version from this one on with a sequence number above `sequence`. This version must have one.
    fn last_above(self, sequence: SequenceNumber) -> Self {
        let mut version = self;
        loop {
            match version.jump() {
                Some((_, target)) if target.sequence() > sequence => version = target,
                _ => match version.next() {
                    Some(next) if next.sequence() > sequence => version = next,
                    _ => return version,
                },
            }
        }
    }
}

/// The distance of two stops in versions.
const STOP_INTERVAL: u32 = 16;

/// Whether a version of this depth is a stop.
#[inline]
fn is_stop(depth: u32) -> bool {
    depth.is_multiple_of(STOP_INTERVAL)
}

fn length(bytes: &[u8]) -> u32 {
    assert!(bytes.len() < LINKED as usize, "{} bytes are over every limit", bytes.len());
    bytes.len() as u32
}

fn start(bytes: &[u8]) -> NonNull<u8> {
    NonNull::from_ref(bytes).cast()
}

#[cfg(all(test, not(bolide_shuttle)))]
mod tests {
    use bolide_base::EntryKind;

    use super::*;

    /// The number of steps of a search for the version of `sequence` from the newest one.
    fn steps_to(entry: EntryRef<'_>, sequence: SequenceNumber) -> usize {
        let (mut version, mut steps) = (entry.head(), 0);
        while version.sequence() > sequence {
            let target =
                version.jump().map(|(_, target)| target).filter(|target| target.sequence() >= sequence);
            version = target.or(version.next()).expect("an older version");
            steps += 1;
        }
        steps
    }

    #[test]
    fn old_versions_of_hot_keys_are_found_in_few_steps() {
        let versions: u64 = if cfg!(miri) { 2_000 } else { 200_000 };
        let arena = Arena::new(8, 4 << 10, 1 << 20, bolide_memory::PagePool::new());
        let trailer = |sequence| Trailer::new(sequence, EntryKind::Put);
        let entry = EntryRef::create(&arena, b"hot", trailer(1), b"first");
        for sequence in 2..=versions {
            assert!(entry.add(VersionRef::create(&arena, trailer(sequence), &sequence.to_le_bytes())));
        }
        let max_steps = (STOP_INTERVAL + 4 * versions.ilog2()) as usize;
        let mut sum = 0;
        for sequence in (1..=versions).step_by(37) {
            let found = entry.newest(sequence).expect("it was added");
            assert_eq!(found.sequence(), sequence);
            let steps = steps_to(entry, sequence);
            assert!(steps <= max_steps, "{steps} steps to {sequence}");
            sum += steps;
        }
        assert!(sum > 0 && entry.newest(0).is_none());
        assert!((1..versions).step_by(97).all(|sequence| {
            entry.oldest_above(sequence).map(VersionRef::sequence) == Some(sequence + 1)
        }));
        // A late version is found too.
        let late = VersionRef::create(&arena, trailer(versions / 2), b"once more");
        assert!(!entry.add(late) && entry.newest(versions / 2).map(VersionRef::value) == Some(b"once more"));
    }
}
