//! The memory of one input: an allocator that counts.
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one only counts for the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The memory at which an allocation fails, so that a runaway input does not take the machine with it.
const CEILING: usize = 2 << 30;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with counts.
#[derive(Debug)]
pub struct Counting;

fn take(size: usize) -> bool {
    let used = USED.fetch_add(size, Relaxed).saturating_add(size);
    if used > CEILING {
        USED.fetch_sub(size, Relaxed);
        return false;
    }
    PEAK.fetch_max(used, Relaxed);
    true
}

// SAFETY: every call is passed on to the system's allocator unchanged, or fails as an allocator may.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size) {
            return ptr::null_mut();
        }
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns the memory in use, and restarts [`peak`].
pub fn mark() -> usize {
    let used = USED.load(Relaxed);
    PEAK.store(used, Relaxed);
    used
}

/// Maximum memory in use since the last [`mark`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}
