//! Typed keys, for collections with `BOLIDE_KEYS_TYPED`.

use std::ffi::{c_char, c_void};

use bolide::ValueRef;
use bolide::key::{self, PrimaryKey};

use crate::code::bolide_code;
use crate::error::bolide_error;
use crate::guard::call;
use crate::input;
use crate::output::{self, Out, bolide_bytes};

/// The kind of a typed key.
pub type bolide_key_kind = i32;

/// Bytes that are no encoding of another kind.
pub const BOLIDE_KEY_BYTES: bolide_key_kind = 0;
/// An integer.
pub const BOLIDE_KEY_INT: bolide_key_kind = 1;
/// An integer over `INT64_MAX`.
pub const BOLIDE_KEY_UINT: bolide_key_kind = 2;
/// A text.
pub const BOLIDE_KEY_TEXT: bolide_key_kind = 3;

/// A decoded key.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_key {
    /// Which of the fields has the key.
    pub kind: bolide_key_kind,
    /// The integer, of kind `BOLIDE_KEY_INT`.
    pub int_value: i64,
    /// The integer, of kind `BOLIDE_KEY_UINT`.
    pub uint_value: u64,
    /// The text or the bytes, which the caller frees.
    pub text: bolide_bytes,
}

/// Encodes an integer as a typed key. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_key_of_int(
    value: i64,
    key: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        output::bytes(key, "key")?.set(bolide_bytes::of(ValueRef::from(key::encode_int(value))));
        Ok(())
    })
}

/// As `bolide_key_of_int`, for an integer that may be over `INT64_MAX`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_key_of_uint(
    value: u64,
    key: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        output::bytes(key, "key")?.set(bolide_bytes::of(ValueRef::from(key::encode_uint(value))));
        Ok(())
    })
}

/// Encodes a text as a typed key. The caller frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_key_of_text(
    text: *const c_char,
    text_size: usize,
    key: *mut bolide_bytes,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let out = output::bytes(key, "key")?;
        let text = input::text(text, text_size, "the text of the key")?;
        out.set(bolide_bytes::of(ValueRef::from(key::encode_string(text))));
        Ok(())
    })
}

/// Decodes a typed key. The caller frees its `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_key_decode(
    key: *const c_void,
    key_size: usize,
    decoded: *mut bolide_key,
    error: *mut *mut bolide_error,
) -> bolide_code {
    call(error, || {
        let mut found =
            bolide_key { kind: BOLIDE_KEY_BYTES, int_value: 0, uint_value: 0, text: bolide_bytes::NONE };
        let out = Out::new(decoded, "decoded", found)?;
        match key::decode(input::key(key, key_size)?) {
            PrimaryKey::Int(value) => (found.kind, found.int_value) = (BOLIDE_KEY_INT, value),
            PrimaryKey::Uint(value) => (found.kind, found.uint_value) = (BOLIDE_KEY_UINT, value),
            PrimaryKey::String(text) => {
                (found.kind, found.text) = (BOLIDE_KEY_TEXT, bolide_bytes::of_text(text));
            }
            PrimaryKey::Bytes(bytes) => found.text = bolide_bytes::of(ValueRef::from(bytes)),
        }
        out.set(found);
        Ok(())
    })
}
