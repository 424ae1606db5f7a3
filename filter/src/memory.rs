//! The VM's allocator. It caches small freed blocks for reuse, which saves the underlying allocator
//! from merging and splitting blocks on every request. Each request frees all the memory it
//! allocates, so the next request reuses the same blocks while they are still in the CPU caches.
//!
//! There is a size class for every [`STEP`] bytes, up to [`MAX_BLOCK`]. At most [`KEPT`] free
//! blocks are cached per size class.
#![expect(unsafe_code, reason = "an allocator hands out memory")]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

/// Difference between two adjacent size classes, in bytes. The underlying allocator divides its
/// memory into units of this size.
const STEP: usize = 16;
/// Number of bytes that the underlying allocator adds to each block. The size classes take these
/// bytes into account, so a block and its extra bytes exactly fill a whole number of units.
const TAIL: usize = 4;
/// Number of size classes.
const CLASSES: usize = 64;
/// Maximum size of a cached block, in bytes. A page of small buckets fits into such a block.
const MAX_BLOCK: usize = CLASSES * STEP - TAIL;
/// Alignment of cached blocks, in bytes. No type in the filter requires a larger alignment.
const ALIGN: usize = 8;
/// Maximum number of cached blocks per size class. The cache holds at most 260 KiB in total.
const KEPT: u32 = 8;

/// Allocations of this size or more, in bytes, first release all cached blocks, which would
/// otherwise fragment the heap. A decision only allocates such a block if it reads a page of very
/// large buckets.
const LARGE: usize = 16 << 10;

/// A single-threaded allocator that caches freed blocks of the underlying allocator `A`.
pub(crate) struct Recycled<A> {
    below: A,
    free: UnsafeCell<[Free; CLASSES]>,
}

// SAFETY: a VM has only one thread.
#[cfg(target_arch = "wasm32")]
unsafe impl<A> Sync for Recycled<A> {}

/// Free list for a size class. Each free block begins with a pointer to the next free block.
#[derive(Clone, Copy)]
struct Free {
    first: *mut u8,
    count: u32,
}

impl<A> Recycled<A> {
    pub(crate) const fn new(below: A) -> Self {
        let none = Free {
            first: null_mut(),
            count: 0,
        };
        Self {
            below,
            free: UnsafeCell::new([none; CLASSES]),
        }
    }

    /// Returns the free list for blocks of this layout. `None` if such blocks are not cached.
    #[expect(
        clippy::mut_from_ref,
        reason = "the callers are the methods below, of which none calls another while it has this"
    )]
    fn free(&self, layout: Layout) -> Option<&mut Free> {
        if layout.align() > ALIGN {
            return None;
        }
        // SAFETY: there is only one thread, and no other reference to the free lists exists.
        let classes = unsafe { &mut *self.free.get() };
        classes.get_mut(class(layout.size()))
    }

    /// Removes and returns a block from the free list for this layout.
    fn take(&self, layout: Layout) -> Option<*mut u8> {
        let free = self.free(layout).filter(|free| !free.first.is_null())?;
        let block = free.first;
        // SAFETY: a free block begins with a pointer written by `dealloc`.
        free.first = unsafe { next(block).read() };
        free.count = free.count.wrapping_sub(1);
        Some(block)
    }
}

impl<A: GlobalAlloc> Recycled<A> {
    /// Returns all cached blocks to the underlying allocator.
    #[cold]
    fn give_back(&self) {
        for class in 0..CLASSES {
            let size = class.wrapping_add(1).wrapping_mul(STEP).wrapping_sub(TAIL);
            let Ok(layout) = Layout::from_size_align(size, ALIGN) else {
                continue;
            };
            while let Some(block) = self.take(layout) {
                // SAFETY: the block was allocated from `below` with this layout and has no other
                // owner.
                unsafe { self.below.dealloc(block, layout) };
            }
        }
    }
}

/// Returns the location of a free block's pointer to the next free block, which is at the start of
/// the block.
const fn next(block: *mut u8) -> *mut *mut u8 {
    block.cast()
}

/// Returns the index of the size class for blocks of `size` bytes. `size` must not be 0.
const fn class(size: usize) -> usize {
    size.wrapping_add(TAIL - 1) / STEP
}

/// Returns the layout shared by all blocks in the size class. If blocks of this layout are never
/// cached, returns the layout unchanged.
const fn whole(layout: Layout) -> Layout {
    let size = layout.size();
    if size > MAX_BLOCK || layout.align() > ALIGN {
        return layout;
    }
    let units = class(size).wrapping_add(1);
    match Layout::from_size_align(units.wrapping_mul(STEP).wrapping_sub(TAIL), ALIGN) {
        Ok(whole) => whole,
        Err(_) => layout,
    }
}

// SAFETY: each block is allocated from `below` with the layout of its size class, is owned by only
// one caller at a time, and is returned to `below` with the same layout.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Recycled<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(block) = self.take(layout) {
            return block;
        }
        if layout.size() >= LARGE {
            self.give_back();
        }
        // SAFETY: the caller guarantees that the size is not 0.
        unsafe { self.below.alloc(whole(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(free) = self.free(layout)
            && free.count < KEPT
        {
            // SAFETY: the block is free, at least as large as a pointer, and aligned for one.
            unsafe { next(block).write(free.first) };
            free.first = block;
            free.count = free.count.wrapping_add(1);
            return;
        }
        // SAFETY: the block was allocated from `below` with this layout.
        unsafe { self.below.dealloc(block, whole(layout)) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size is valid for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (old_whole, new_whole) = (whole(layout), whole(new));
        if old_whole == new_whole && size <= MAX_BLOCK {
            return block;
        }
        if layout.size() > MAX_BLOCK && size > MAX_BLOCK {
            if size >= LARGE {
                self.give_back();
            }
            // SAFETY: the block was allocated from `below` with this layout.
            return unsafe { self.below.realloc(block, layout, size) };
        }
        // SAFETY: the caller guarantees that both layouts are valid, and the new block does not
        // overlap the old block.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use super::*;

    /// Layouts of all allocated blocks, by address.
    #[derive(Default)]
    struct Counted {
        out: UnsafeCell<BTreeMap<usize, Layout>>,
        calls: Cell<usize>,
    }

    impl Counted {
        #[expect(clippy::mut_from_ref, reason = "as above")]
        fn out(&self) -> &mut BTreeMap<usize, Layout> {
            self.calls.set(self.calls.get() + 1);
            // SAFETY: each test runs on a single thread.
            unsafe { &mut *self.out.get() }
        }
    }

    // SAFETY: all calls are forwarded to the system allocator.
    unsafe impl GlobalAlloc for Counted {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller upholds the system allocator's requirements.
            let block = unsafe { System.alloc(layout) };
            assert_eq!(self.out().insert(block.addr(), layout), None);
            block
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            assert_eq!(self.out().remove(&(block.addr())), Some(layout));
            // SAFETY: the caller upholds the system allocator's requirements.
            unsafe { System.dealloc(block, layout) };
        }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("valid")
    }

    #[test]
    fn a_freed_block_is_the_next_of_its_class() {
        let memory = Recycled::new(Counted::default());
        // SAFETY: each block is only used with the layout it was allocated with.
        unsafe {
            let block = memory.alloc(layout(33, 1));
            memory.dealloc(block, layout(33, 1));
            assert_eq!(memory.alloc(layout(44, 8)), block, "the same class");
            let other = memory.alloc(layout(40, 4));
            assert_ne!(other, block);
            memory.dealloc(block, layout(44, 8));
            memory.dealloc(other, layout(40, 4));
            assert_eq!(memory.alloc(layout(41, 1)), other, "the last one first");
            assert_ne!(memory.alloc(layout(45, 1)), block, "another class");
            assert_ne!(memory.alloc(layout(40, 16)), block, "another alignment");
        }
        assert_eq!(memory.below.calls.get(), 4);
    }

    #[test]
    fn a_block_takes_no_more_units_than_its_size() {
        let units = |size: usize| (size + TAIL).div_ceil(STEP);
        for size in 1..=MAX_BLOCK + 100 {
            let whole = whole(layout(size, 8)).size();
            assert!(whole >= size && units(whole) == units(size), "{size}");
            assert_eq!(
                whole == size,
                size > MAX_BLOCK || (size + TAIL).is_multiple_of(STEP)
            );
        }
    }

    #[test]
    fn few_blocks_of_a_class_are_kept_and_no_large_ones() {
        let memory = Recycled::new(Counted::default());
        for (size, kept) in [(1, 8), (12, 8), (13, 8), (1020, 8), (1021, 0), (10_000, 0)] {
            let before = memory.below.out().len();
            // SAFETY: each block is only used with the layout it was allocated with.
            unsafe {
                let blocks: Vec<*mut u8> =
                    (0..100).map(|_| memory.alloc(layout(size, 8))).collect();
                for block in blocks {
                    block.write_bytes(0xa5, size);
                    memory.dealloc(block, layout(size, 8));
                }
            }
            let more = memory.below.out().len() - before;
            let expected = if size == 12 { 0 } else { kept };
            assert_eq!(more, expected, "blocks of {size} bytes");
        }
    }

    #[test]
    fn kept_blocks_go_back_before_a_large_one() {
        let memory = Recycled::new(Counted::default());
        for large in [LARGE, LARGE - 1] {
            // SAFETY: each block is only used with the layout it was allocated with.
            unsafe {
                let blocks = [1, 100, 100, 1000].map(|size| (memory.alloc(layout(size, 8)), size));
                for (block, size) in blocks {
                    memory.dealloc(block, layout(size, 8));
                }
                let first = memory.alloc(layout(LARGE - 2, 8));
                assert_eq!(memory.below.out().len(), 5);
                let block = memory.realloc(first, layout(LARGE - 2, 8), large);
                let kept = if large < LARGE { 4 } else { 0 };
                assert_eq!(memory.below.out().len(), kept + 1);
                memory.dealloc(block, layout(large, 8));
                let block = memory.alloc(layout(large, 1));
                assert_eq!(memory.below.out().len(), kept + 1);
                memory.dealloc(block, layout(large, 1));
            }
        }
    }

    #[test]
    fn blocks_keep_what_is_in_them() {
        let memory = Recycled::new(Counted::default());
        let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 8).expect("64 bits") % below
        };
        for step in 0..20_000_u32 {
            let mark = u8::try_from(step % 251).expect("small");
            let size = if random(10) == 0 {
                random(5_000)
            } else {
                random(200)
            } + 1;
            // SAFETY: each block is only used with the layout it was allocated with.
            unsafe {
                match random(3) {
                    0 => {
                        let block = memory.alloc(layout(size, 8));
                        block.write_bytes(mark, size);
                        blocks.push((block, size, mark));
                    }
                    1 if !blocks.is_empty() => {
                        let (block, old, mark) = blocks.swap_remove(random(blocks.len()));
                        let moved = memory.realloc(block, layout(old, 8), size);
                        let same = old.min(size);
                        let bytes = std::slice::from_raw_parts(moved, same);
                        assert!(bytes.iter().all(|byte| *byte == mark));
                        moved.write_bytes(mark, size);
                        blocks.push((moved, size, mark));
                    }
                    _ if !blocks.is_empty() => {
                        let (block, size, mark) = blocks.swap_remove(random(blocks.len()));
                        let bytes = std::slice::from_raw_parts(block, size);
                        assert!(bytes.iter().all(|byte| *byte == mark));
                        memory.dealloc(block, layout(size, 8));
                    }
                    _ => {}
                }
            }
        }
    }
}
