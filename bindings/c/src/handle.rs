//! Objects behind opaque pointers.
//!
//! ```text
//! +-----------+-----------+-----------
//! | tag (u64) | forks u64 | value ...      in memory of its own
//! +-----------+-----------+-----------
//! ```
//!
//! The tag depends on the type. It finds a pointer to an object of another type, and, until the memory is used again, most pointers
//! to an object that was freed.

#![deny(unsafe_op_in_unsafe_fn)]

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;
use crate::fork;

/// The tag of an object that was freed.
const FREED: u64 = 0xdead_dead_dead_dead;

/// An opaque type of the header.
pub(crate) trait Object {
    /// What it consists of.
    type Value: Send + Sync;
    /// The name in messages.
    const NAME: &'static str;
    /// Whether it is unusable in a child process.
    const IS_OF_PROCESS: bool;
    /// The begin of its memory.
    const TAG: u64 = tag_of(Self::NAME.as_bytes());
}

/// Declares the value of an opaque type.
macro_rules! object {
    ($opaque:ty, $value:ty, $name:literal, of_process = $of_process:literal) => {
        impl $crate::handle::Object for $opaque {
            type Value = $value;
            const NAME: &'static str = $name;
            const IS_OF_PROCESS: bool = $of_process;
        }
    };
    ($opaque:ty, $value:ty, $name:literal) => {
        $crate::handle::object!($opaque, $value, $name, of_process = true);
    };
}
pub(crate) use object;

/// A hash (FNV-1a).
const fn tag_of(name: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    hash
}

/// The memory of an object.
#[repr(C)]
struct Handle<T> {
    tag: AtomicU64,
    forks: u64,
    value: T,
}

/// A new object, which [`free`] frees.
pub(crate) fn into_pointer<O: Object>(value: O::Value) -> *mut O {
    let handle = Handle { tag: AtomicU64::new(O::TAG), forks: fork::forks(), value };
    Box::into_raw(Box::new(handle)).cast()
}

/// The object at `pointer`.
///
/// # Safety
/// The pointer is NULL or was made by [`into_pointer`]; nothing frees the object in `'a`.
pub(crate) unsafe fn borrow<'a, O: Object>(pointer: *const O) -> Result<&'a O::Value, Failure> {
    // SAFETY: as for this function.
    let handle = unsafe { checked(pointer) }?;
    if O::IS_OF_PROCESS && handle.forks != fork::forks() {
        return Err(Failure::forked(O::NAME));
    }
    Ok(&handle.value)
}

/// As [`borrow`]; `None` for NULL.
///
/// # Safety
/// As for [`borrow`].
pub(crate) unsafe fn borrow_optional<'a, O: Object>(
    pointer: *const O,
) -> Result<Option<&'a O::Value>, Failure> {
    // SAFETY: as for this function.
    if pointer.is_null() { Ok(None) } else { unsafe { borrow(pointer) }.map(Some) }
}

/// # Safety
/// As for [`borrow`].
unsafe fn checked<'a, O: Object>(pointer: *const O) -> Result<&'a Handle<O::Value>, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("the pointer to {} is NULL", O::NAME)));
    }
    let handle = pointer.cast::<Handle<O::Value>>();
    // SAFETY: every object begins with its tag; the alignment was checked before.
    if !handle.is_aligned() || unsafe { &*handle.cast::<AtomicU64>() }.load(Ordering::Relaxed) != O::TAG {
        return Err(Failure::invalid(format!(
            "the pointer to {} points to something else, or the object was freed",
            O::NAME
        )));
    }
    // SAFETY: its tag is that of this type, so it is an object of it.
    Ok(unsafe { &*handle })
}

/// Frees an object. Does nothing for NULL, nor for a pointer to something else. In a child process the memory of an object of the
/// parent is left, since its destructor could wait for threads that do not exist there.
///
/// # Safety
/// As for [`borrow`]; no other thread uses the object.
pub(crate) unsafe fn free<O: Object>(pointer: *mut O) {
    // SAFETY: as for this function.
    if let Some(value) = unsafe { take(pointer) } {
        // A panic of a destructor ends here.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
    }
}

/// Frees an object and returns its value; `None` where [`free`] does nothing.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn take<O: Object>(pointer: *mut O) -> Option<O::Value> {
    // SAFETY: as for this function.
    let handle = unsafe { checked(pointer.cast_const()) }.ok()?;
    handle.tag.compare_exchange(O::TAG, FREED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    // SAFETY: made by `into_pointer`, and only this call has changed the tag.
    let handle = unsafe { Box::from_raw(pointer.cast::<Handle<O::Value>>()) };
    if O::IS_OF_PROCESS && handle.forks != fork::forks() {
        forget(handle);
        return None;
    }
    Some(handle.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct First;
    struct Second;
    object!(First, String, "the first");
    object!(Second, u32, "the second");

    #[test]
    fn objects_of_another_type_are_refused() {
        let first = into_pointer::<First>("text".to_owned());
        // SAFETY: the object exists, and is freed once.
        unsafe {
            assert_eq!(borrow(first).unwrap(), "text");
            let message = format!("{:?}", borrow(first.cast::<Second>()).unwrap_err());
            assert!(message.contains("something else"), "{message}");
            free(first.cast::<Second>());
            assert_eq!(borrow(first).unwrap(), "text");
            assert_eq!(take(first).as_deref(), Some("text"));
        }
    }

    #[test]
    fn null_and_unaligned_pointers_are_refused() {
        let words = [First::TAG; 4];
        // SAFETY: no memory is read at NULL nor at an odd address.
        unsafe {
            assert!(borrow(std::ptr::null::<First>()).is_err());
            assert!(borrow(words.as_ptr().wrapping_byte_add(1).cast::<First>()).is_err());
            free(std::ptr::null_mut::<First>());
            assert!(borrow_optional(std::ptr::null::<First>()).unwrap().is_none());
        }
    }

    #[test]
    fn a_panic_of_a_destructor_ends_in_free() {
        struct Panicking;
        impl Drop for Panicking {
            fn drop(&mut self) {
                panic!("the destructor");
            }
        }
        struct Third;
        object!(Third, Panicking, "the third");
        let third = into_pointer::<Third>(Panicking);
        // SAFETY: freed once.
        unsafe { free(third) };
    }
}
