//! The frame of every function: results as codes and error objects, and no panic beyond it.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bolide::Error;

use crate::code::{BOLIDE_ABSENT, BOLIDE_OK, bolide_code};
use crate::error::bolide_error;
use crate::failure::Failure;
use crate::handle;

/// Whether a successful call found something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Found,
    Absent,
}

/// Runs `work`, and writes its error, or NULL, to `error`.
///
/// # Safety
/// `error` is NULL or valid for a write.
pub(crate) unsafe fn call(
    error: *mut *mut bolide_error,
    work: impl FnOnce() -> Result<(), Failure>,
) -> bolide_code {
    // SAFETY: as for this function.
    unsafe { find(error, || work().map(|()| Presence::Found)) }
}

/// As [`call`], for work that may find nothing.
///
/// # Safety
/// As for [`call`].
pub(crate) unsafe fn find(
    error: *mut *mut bolide_error,
    work: impl FnOnce() -> Result<Presence, Failure>,
) -> bolide_code {
    let result = caught(work);
    let code = match &result {
        Ok(Presence::Found) => BOLIDE_OK,
        Ok(Presence::Absent) => BOLIDE_ABSENT,
        Err(failure) => failure.code,
    };
    if !error.is_null() {
        let object = result.map_or_else(handle::into_pointer::<bolide_error>, |_| std::ptr::null_mut());
        // SAFETY: it is valid for a write.
        unsafe { error.write_unaligned(object) };
    }
    code
}

/// The result of `work`; an error for a panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let failure = Error::panicked("the function", &*panic).into();
        // Its destructor could panic again.
        forget(panic);
        Err(failure)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null_mut;

    use super::*;
    use crate::code::{BOLIDE_INTERNAL, BOLIDE_INVALID_INPUT};
    use crate::error::{bolide_error_advice, bolide_error_free, bolide_error_message};

    fn message_of(error: *const bolide_error) -> String {
        // SAFETY: an error of this test.
        unsafe { CStr::from_ptr(bolide_error_message(error)) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_an_internal_error() {
        let mut error = null_mut();
        // SAFETY: `error` is a variable.
        let code = unsafe { call(&raw mut error, || panic!("number {}", 7)) };
        assert_eq!(code, BOLIDE_INTERNAL);
        assert!(message_of(error).contains("number 7"), "{}", message_of(error));
        // SAFETY: freed once.
        unsafe { bolide_error_free(error) };
    }

    #[test]
    fn a_panic_whose_payload_panics_in_its_destructor_is_caught() {
        struct Hostile;
        impl Drop for Hostile {
            fn drop(&mut self) {
                panic!("the destructor");
            }
        }
        // SAFETY: NULL is allowed.
        let code = unsafe { call(null_mut(), || std::panic::panic_any(Hostile)) };
        assert_eq!(code, BOLIDE_INTERNAL);
    }

    #[test]
    fn success_overwrites_an_old_error_pointer() {
        let mut error = std::ptr::NonNull::dangling().as_ptr();
        // SAFETY: `error` is a variable.
        let code = unsafe { find(&raw mut error, || Ok(Presence::Absent)) };
        assert_eq!((code, error.is_null()), (BOLIDE_ABSENT, true));
    }

    #[test]
    fn a_message_with_nul_is_complete() {
        let mut error = null_mut();
        // SAFETY: `error` is a variable.
        let code = unsafe { call(&raw mut error, || Err(Failure::invalid("a\0b"))) };
        assert_eq!(code, BOLIDE_INVALID_INPUT);
        assert_eq!(message_of(error), "a\u{fffd}b");
        // SAFETY: an error of this test, freed once.
        unsafe {
            assert!(!CStr::from_ptr(bolide_error_advice(error)).is_empty());
            bolide_error_free(error);
        }
    }
}
