//! Hook: typed values that the layer above stores with an sstable or a memtable.
//!
//! The first request creates an attachment. It is shared by all callers and dropped with its sstable or memtable. Sstables
//! never change, so an attachment decoded from one of their meta blocks stays valid. An attachment of a memtable has to
//! follow the growth of the memtable itself.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use bolide_base::Result;
use parking_lot::RwLock;

/// A value that can be attached.
pub trait Attachment: Any + Send + Sync {
    /// The bytes of memory of the value.
    fn memory_bytes(&self) -> usize;
}

/// The attachments of one sstable or memtable, by a number that the layer above chooses.
#[derive(Default)]
pub struct Attachments {
    slots: RwLock<Vec<AttachmentSlot>>,
}

struct AttachmentSlot {
    key: u64,
    value: Arc<dyn Any + Send + Sync>,
    memory_bytes: fn(&(dyn Any + Send + Sync)) -> usize,
}

fn measure<T: Attachment>(value: &(dyn Any + Send + Sync)) -> usize {
    value.downcast_ref::<T>().map_or(0, Attachment::memory_bytes)
}

impl Attachments {
    /// The attachment `key`, which `make` creates if it does not exist. If several threads call at once, each may create one,
    /// and all get the first.
    ///
    /// # Errors
    /// Those of `make`; a later call tries again.
    ///
    /// ```
    /// use bolide_lsm::attachments::{Attachment, Attachments};
    ///
    /// struct Length(usize);
    /// impl Attachment for Length {
    ///     fn memory_bytes(&self) -> usize {
    ///         8
    ///     }
    /// }
    ///
    /// let attachments = Attachments::default();
    /// assert_eq!(attachments.get_or_make(7, || Ok(Length(3)))?.0, 3);
    /// assert_eq!(attachments.get_or_make(7, || Ok(Length(4)))?.0, 3);
    /// assert_eq!(attachments.memory_bytes(), 8);
    /// # Ok::<(), bolide_base::Error>(())
    /// ```
    pub fn get_or_make<T: Attachment>(&self, key: u64, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        if let Some(found) = self.get(key) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        let mut slots = self.slots.write();
        let first = slots.iter().find(|slot| slot.key == key).map(|slot| slot.value.clone());
        if let Some(Ok(first)) = first.map(|value| value.downcast::<T>()) {
            return Ok(first);
        }
        slots.retain(|slot| slot.key != key);
        slots.push(AttachmentSlot { key, value: made.clone(), memory_bytes: measure::<T> });
        Ok(made)
    }

    /// The attachment `key`, if it exists with this type.
    pub fn get<T: Attachment>(&self, key: u64) -> Option<Arc<T>> {
        let slots = self.slots.read();
        let slot = slots.iter().find(|slot| slot.key == key)?;
        slot.value.clone().downcast().ok()
    }

    /// Removes the attachment `key`. References to it stay valid.
    pub fn remove(&self, key: u64) {
        self.slots.write().retain(|slot| slot.key != key);
    }

    /// The bytes of memory of all attachments.
    pub fn memory_bytes(&self) -> usize {
        self.slots.read().iter().map(|slot| (slot.memory_bytes)(&*slot.value)).sum()
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<u64> = self.slots.read().iter().map(|slot| slot.key).collect();
        f.debug_tuple("Attachments").field(&keys).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(&'static str);

    impl Attachment for Text {
        fn memory_bytes(&self) -> usize {
            self.0.len()
        }
    }

    struct Other;

    impl Attachment for Other {
        fn memory_bytes(&self) -> usize {
            1
        }
    }

    #[test]
    fn one_attachment_per_key_exists_until_it_is_removed() {
        let attachments = Attachments::default();
        assert_eq!(attachments.get_or_make(1, || Ok(Text("one"))).unwrap().0, "one");
        assert_eq!(attachments.get_or_make(1, || Ok(Text("again"))).unwrap().0, "one");
        attachments.get_or_make(2, || Ok(Text("second"))).unwrap();
        assert_eq!(attachments.memory_bytes(), 9);
        attachments.remove(1);
        assert!(attachments.get::<Text>(1).is_none() && attachments.get::<Text>(2).is_some());
        assert_eq!(attachments.memory_bytes(), 6);
    }

    #[test]
    fn another_type_replaces_an_attachment_and_an_error_adds_none() {
        let attachments = Attachments::default();
        let failed = attachments.get_or_make::<Text>(1, || Err(bolide_base::Error::internal("no")));
        assert!(failed.is_err() && attachments.get::<Text>(1).is_none());
        attachments.get_or_make(1, || Ok(Text("one"))).unwrap();
        assert!(attachments.get::<Other>(1).is_none());
        attachments.get_or_make(1, || Ok(Other)).unwrap();
        assert_eq!(attachments.memory_bytes(), 1);
    }
}
