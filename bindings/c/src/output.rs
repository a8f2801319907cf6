//! Results of functions.

#![deny(unsafe_op_in_unsafe_fn)]

use std::ffi::{c_char, c_void};
use std::ptr::{NonNull, null, null_mut};

use bolide::ValueRef;

use crate::failure::Failure;
use crate::handle::{self, object};

/// Bytes that an object lends: valid until the next call with that object. Without NUL at the end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_slice {
    /// The first byte. NULL if there is nothing.
    pub data: *const c_char,
    /// The number of bytes.
    pub size: usize,
}

/// Bytes that belong to the caller, and that `bolide_bytes_free` frees. Without NUL at the end. A function that takes a pointer to
/// these overwrites them without freeing what was there.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_bytes {
    /// The first byte. NULL if there is nothing.
    pub data: *const c_char,
    /// The number of bytes.
    pub size: usize,
    /// The memory. Do not change it.
    pub owner: *mut c_void,
}

/// A record of a cursor or of the answers to a query. What it points to is valid until the next call with the same cursor or answers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_row {
    /// The primary key.
    pub key: bolide_slice,
    /// The record. `data` is NULL if the query is for keys or values.
    pub record: bolide_slice,
    /// The selected values, as JSON: for each path an array of its values. `data` is NULL if nothing was selected.
    pub values: bolide_slice,
    /// The sequence number of the write that put the record.
    pub sequence: u64,
}

impl bolide_slice {
    pub(crate) const NONE: Self = Self { data: null(), size: 0 };

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), size: bytes.len() }
    }
}

impl bolide_row {
    pub(crate) const NONE: Self =
        Self { key: bolide_slice::NONE, record: bolide_slice::NONE, values: bolide_slice::NONE, sequence: 0 };
}

/// The memory of [`bolide_bytes`].
pub(crate) struct bolide_owner {
    _opaque: [u8; 0],
}

object!(bolide_owner, ValueRef, "the owner of the bytes", of_process = false);

impl bolide_bytes {
    pub(crate) const NONE: Self = Self { data: null(), size: 0, owner: null_mut() };

    /// Bytes with the owner `value`.
    pub(crate) fn of(value: ValueRef) -> Self {
        let owner = handle::into_pointer::<bolide_owner>(value);
        // SAFETY: the object was made before and is freed by the caller of C. Its bytes do not move with it.
        let bytes: &[u8] = match unsafe { handle::borrow(owner.cast_const()) } {
            Ok(value) => value,
            Err(_) => &[],
        };
        Self { data: bytes.as_ptr().cast(), size: bytes.len(), owner: owner.cast() }
    }

    pub(crate) fn of_text(text: String) -> Self {
        Self::of(ValueRef::from(text.into_bytes()))
    }
}

/// Frees bytes that a function returned, and sets all fields to NULL and 0. Does nothing for NULL, nor the second time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_bytes_free(bytes: *mut bolide_bytes) {
    if !bytes.is_null() {
        // SAFETY: the pointer is valid, and the owner is NULL or one of `of`.
        unsafe {
            let owner = bytes.read_unaligned().owner;
            bytes.write_unaligned(bolide_bytes::NONE);
            handle::free(owner.cast::<bolide_owner>());
        }
    }
}

/// The place of a result.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// Writes `empty` there: what the caller finds after an error. `what` is the name of the parameter.
    ///
    /// # Safety
    /// `pointer` is NULL or valid for writes until the last use of the value.
    pub(crate) unsafe fn new(pointer: *mut T, what: &str, empty: T) -> Result<Self, Failure> {
        let place = NonNull::new(pointer).ok_or_else(|| {
            Failure::invalid(format!("the parameter `{what}`, which receives the result, is NULL"))
        })?;
        let out = Self(place);
        out.set(empty);
        Ok(out)
    }

    /// As [`new`](Self::new) for a result that may be unwanted: `None` for NULL.
    ///
    /// # Safety
    /// As for [`new`](Self::new).
    pub(crate) unsafe fn optional(pointer: *mut T, empty: T) -> Option<Self> {
        let out = Self(NonNull::new(pointer)?);
        out.set(empty);
        Some(out)
    }

    pub(crate) fn set(&self, value: T) {
        // SAFETY: it is valid for writes.
        unsafe { self.0.as_ptr().write_unaligned(value) };
    }
}

/// The place of a pointer to a new object.
///
/// # Safety
/// As for [`Out::new`].
pub(crate) unsafe fn object<O>(pointer: *mut *mut O, what: &str) -> Result<Out<*mut O>, Failure> {
    // SAFETY: as for this function.
    unsafe { Out::new(pointer, what, null_mut()) }
}

/// The place of bytes.
///
/// # Safety
/// As for [`Out::new`].
pub(crate) unsafe fn bytes(pointer: *mut bolide_bytes, what: &str) -> Result<Out<bolide_bytes>, Failure> {
    // SAFETY: as for this function.
    unsafe { Out::new(pointer, what, bolide_bytes::NONE) }
}
