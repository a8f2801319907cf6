//! Error objects.

use std::ffi::c_char;

use crate::code::{BOLIDE_OK, bolide_code};
use crate::failure::Failure;
use crate::handle::{self, object};

/// An error: a code, a message and an advice.
///
/// Functions write it to their last parameter, which may be NULL. They write NULL there if they succeed. The caller frees it by
/// `bolide_error_free`.
pub struct bolide_error {
    _opaque: [u8; 0],
}

object!(bolide_error, Failure, "the error", of_process = false);

/// The code of an error; `BOLIDE_OK` for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_code(error: *const bolide_error) -> bolide_code {
    if error.is_null() {
        return BOLIDE_OK;
    }
    handle::borrow(error).map_or_else(|failure| failure.code, |error| error.code)
}

/// The message: what failed and where. UTF-8 that ends with NUL; valid until the error is freed. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_message(error: *const bolide_error) -> *const c_char {
    handle::borrow(error).map_or(c"".as_ptr(), |error| error.message().as_ptr())
}

/// What the caller can do. UTF-8 that ends with NUL; valid until the error is freed. Empty for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_advice(error: *const bolide_error) -> *const c_char {
    handle::borrow(error).map_or(c"".as_ptr(), |error| error.advice().as_ptr())
}

/// Frees an error. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bolide_error_free(error: *mut bolide_error) {
    handle::free(error);
}
