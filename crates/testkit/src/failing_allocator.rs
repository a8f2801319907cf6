//! The global allocator of `bolide-testkit` and of the test of proof `allocations`: the system allocator with planned
//! failures.
//!
//! Each program includes this file. It is not part of the library, which has no unsafe code.
#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};

use bolide_testkit::allocations::plan::admits;

/// The system allocator with planned failures.
struct FailingAllocator;

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

// SAFETY: each call is forwarded unchanged to the system allocator, or returns null, which reports a failed allocation.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the guarantees of the caller are forwarded.
        if admits(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        if admits(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        if admits(new_size) {
            unsafe { System.realloc(memory, layout, new_size) }
        } else {
            std::ptr::null_mut()
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; all memory comes from the system allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}
