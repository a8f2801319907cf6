//! The allocator of `bolide-testkit` and of the test of proof `allocations`: the system's, unless the plan has an
//! allocation fail.
//!
//! No part of the library, which has no unsafe code: each program includes this file.
#![allow(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};

use bolide_testkit::allocations::plan::admits;

/// The system's allocator behind the plan.
struct FailingAllocator;

#[global_allocator]
static ALLOCATOR: FailingAllocator = FailingAllocator;

// SAFETY: each call goes to the system's allocator as it is, or returns null, which means that there is no memory.
unsafe impl GlobalAlloc for FailingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises is passed on.
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
        // SAFETY: as above; all memory comes from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}
