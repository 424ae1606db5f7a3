//! Every seed of a target, and every input that once failed, stays within its bounds.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use loudou_fuzz::targets::{self, Bounds, Target};
use loudou_fuzz::trial;

/// The allocator counts for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn seeds_stay_within_their_bounds() -> Result<()> {
    let _alone = alone();
    for target in targets::ALL {
        let seeds = targets::seeds(target)?;
        ensure!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in seeds {
            let ran = trial::run(target, &seed);
            ensure!(ran.is_ok(), "{}: {ran:?}: {seed:?}", target.name);
        }
    }
    Ok(())
}

/// A reader that takes 9 MiB.
fn broken(_input: &[u8]) {
    drop(std::hint::black_box(vec![1_u8; 9 << 20]));
}

const BROKEN: Target = Target {
    name: "broken",
    about: "a reader that fails",
    run: broken,
    seeds: Vec::new,
    words: &[],
    longest: 100,
    bounds: Bounds {
        us: 1_000_000,
        ns_per_byte: 0,
        kib: 8 << 10,
        bytes_per_byte: 0,
    },
};

#[test]
fn memory_beyond_the_bound_is_reported() {
    let _alone = alone();
    let wrong = trial::run(&BROKEN, b"l").expect_err("too much");
    assert!(wrong.contains("bytes of memory"), "{wrong}");
}
