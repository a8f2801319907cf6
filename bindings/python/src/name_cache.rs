//! The names of fields as strings of Python.
//!
//! Records of a collection have the same names, so each thread caches strings of names, in slots by their hash. Interned
//! strings would do the same, but stay for ever in Python 3.12: names that are data, such as numbers of users, would fill
//! the memory.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::PyString;

/// Slots of a thread.
const SLOTS: usize = 1_024;
/// Longest cached name, in bytes.
const MAX_NAME_BYTES: usize = 32;

struct CachedName {
    name: Box<str>,
    string: Py<PyString>,
}

thread_local! {
    static CACHE: RefCell<Vec<Option<CachedName>>> = const { RefCell::new(Vec::new()) };
}

/// The string of a name.
pub(crate) fn string<'py>(py: Python<'py>, name: &str) -> Bound<'py, PyString> {
    if name.len() > MAX_NAME_BYTES {
        return PyString::new(py, name);
    }
    // A string is made, and the replaced one is freed, without other code of Python in between.
    CACHE.with_borrow_mut(|slots| {
        if slots.is_empty() {
            slots.resize_with(SLOTS, || None);
        }
        let Some(slot) = slots.get_mut(slot_of(name.as_bytes())) else { return PyString::new(py, name) };
        if let Some(cached) = slot
            && *cached.name == *name
        {
            return cached.string.bind(py).clone();
        }
        let string = PyString::new(py, name);
        *slot = Some(CachedName { name: name.into(), string: string.clone().unbind() });
        string
    })
}

/// A multiplicative hash of eight bytes at a time.
fn slot_of(name: &[u8]) -> usize {
    let mut hash = name.len() as u64;
    for chunk in name.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (hash >> 54) as usize
}
