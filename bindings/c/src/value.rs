//! Values of attributes.

use std::ffi::c_char;

use bolide::Value;

use crate::failure::Failure;
use crate::input;

/// The kind of a value.
pub type bolide_value_kind = i32;

/// JSON's null.
pub const BOLIDE_VALUE_NULL: bolide_value_kind = 0;
/// A boolean: `int_value` is 0 or 1.
pub const BOLIDE_VALUE_BOOL: bolide_value_kind = 1;
/// An integer: `int_value`.
pub const BOLIDE_VALUE_INT: bolide_value_kind = 2;
/// A number: `float_value`, which is finite.
pub const BOLIDE_VALUE_FLOAT: bolide_value_kind = 3;
/// A text: `text` and `text_size`.
pub const BOLIDE_VALUE_TEXT: bolide_value_kind = 4;

/// A value of an attribute, for example `{.kind = BOLIDE_VALUE_INT, .int_value = 7}`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct bolide_value {
    /// Which of the fields has the value.
    pub kind: bolide_value_kind,
    /// The integer or boolean.
    pub int_value: i64,
    /// The number.
    pub float_value: f64,
    /// The text, in UTF-8.
    pub text: *const c_char,
    /// Bytes of `text`.
    pub text_size: usize,
}

/// The value at `pointer`; `None` for NULL.
///
/// # Safety
/// The pointer is NULL or valid for a read, and its text for its size.
pub(crate) unsafe fn optional(pointer: *const bolide_value) -> Result<Option<Value>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    let value = pointer.read_unaligned();
    Ok(Some(match value.kind {
        BOLIDE_VALUE_NULL => Value::Null,
        BOLIDE_VALUE_BOOL => match value.int_value {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            other => return Err(Failure::invalid(format!("{other} is no boolean: it is 0 or 1"))),
        },
        BOLIDE_VALUE_INT => Value::Int(value.int_value),
        BOLIDE_VALUE_FLOAT => Value::Float(value.float_value),
        BOLIDE_VALUE_TEXT => {
            Value::String(input::text(value.text, value.text_size, "the text of the value")?.to_owned())
        }
        other => {
            return Err(Failure::invalid(format!(
                "{other} is no kind of a value: see the constants BOLIDE_VALUE_*"
            )));
        }
    }))
}
