//! Which code an input reached, from the counters that `-C instrument-coverage` puts into the program.
//! Without them every input looks the same, and inputs are only mutated at random.

/// The kinds of reached code so far: for each counter, a set of magnitudes of its value.
#[derive(Debug, Default)]
pub struct Coverage {
    seen: Vec<u8>,
}

impl Coverage {
    /// Takes the counters since the last call; true if they reached something for the first time.
    pub fn learn(&mut self) -> bool {
        let mut is_new = false;
        counters(|counters| {
            self.seen.resize(counters.len(), 0);
            for (seen, counter) in self.seen.iter_mut().zip(counters) {
                if *counter != 0 {
                    let magnitude = magnitude(*counter);
                    is_new |= *seen & magnitude == 0;
                    *seen |= magnitude;
                    *counter = 0;
                }
            }
        });
        is_new
    }

    /// The number of counters that any input reached.
    pub fn reached(&self) -> usize {
        self.seen.iter().filter(|seen| **seen != 0).count()
    }
}

/// One bit: how often, roughly.
const fn magnitude(count: u64) -> u8 {
    match count {
        0..=1 => 1,
        2 => 2,
        3..=4 => 4,
        5..=8 => 8,
        9..=32 => 16,
        33..=256 => 32,
        257..=4096 => 64,
        _ => 128,
    }
}

#[cfg(feature = "coverage")]
#[expect(
    unsafe_code,
    reason = "LLVM's counters are between two symbols of its runtime"
)]
fn counters(with: impl FnOnce(&mut [u64])) {
    unsafe extern "C" {
        fn __llvm_profile_begin_counters() -> *mut u64;
        fn __llvm_profile_end_counters() -> *mut u64;
    }
    // SAFETY: both are functions of the profiler's runtime without preconditions.
    let (begin, end) = unsafe {
        (
            __llvm_profile_begin_counters(),
            __llvm_profile_end_counters(),
        )
    };
    let bytes = end.addr().saturating_sub(begin.addr());
    // SAFETY: the counters are one section of aligned 64-bit numbers, and no other thread runs.
    with(unsafe { std::slice::from_raw_parts_mut(begin, bytes / size_of::<u64>()) });
}

#[cfg(not(feature = "coverage"))]
fn counters(with: impl FnOnce(&mut [u64])) {
    with(&mut []);
}
