//! The version of the library and of its interface.

use std::ffi::c_char;

/// The version of this header. It changes when a program has to be compiled again.
pub const BOLIDE_ABI_VERSION: u32 = 1;

/// The version of the interface of the loaded library. A program that was compiled with this header compares it with
/// `BOLIDE_ABI_VERSION`: other versions are incompatible.
#[unsafe(no_mangle)]
pub extern "C" fn bolide_abi_version() -> u32 {
    BOLIDE_ABI_VERSION
}

/// The version of Bolide, as "0.1.0". Static: never freed.
#[unsafe(no_mangle)]
pub extern "C" fn bolide_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
