//! Every seed stays within its bounds: those of the targets, and inputs that once failed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use loudou_fuzz::driver::{self, Settings};
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
        let seeds = driver::seeds(target)?;
        ensure!(!seeds.is_empty(), "{} has no seeds", target.name);
        for seed in seeds {
            let ran = trial::run(target, &seed);
            ensure!(ran.is_ok(), "{}: {ran:?}: {seed:?}", target.name);
        }
    }
    Ok(())
}

/// A reader that is wrong in three ways.
fn broken(input: &[u8]) {
    match input {
        [b'x', b'y', ..] => assert_eq!(input.len(), usize::MAX, "two letters"),
        [b'l', ..] => drop(std::hint::black_box(vec![1_u8; 9 << 20])),
        _ => {}
    }
}

const BROKEN: Target = Target {
    name: "broken",
    about: "a reader that fails",
    run: broken,
    seeds: || vec![b"abc".to_vec()],
    words: &[b"xy"],
    longest: 100,
    bounds: Bounds {
        us: 1_000_000,
        ns_per_byte: 0,
        kib: 8 << 10,
        bytes_per_byte: 0,
    },
};

#[test]
fn a_defect_is_found_and_its_input_is_small() -> Result<()> {
    let _alone = alone();
    let settings = Settings {
        seconds: 60,
        seed: 1,
        current: None,
    };
    let report = driver::run(&BROKEN, &settings)?;
    let (input, wrong) = report.failure.expect("a failure");
    ensure!(input == b"xy" || input == b"l", "{input:?}: {wrong}");
    let again = driver::run(&BROKEN, &settings)?;
    ensure!(again.inputs == report.inputs, "the same seed, other inputs");
    Ok(())
}

#[test]
fn memory_beyond_the_bound_is_reported() {
    let _alone = alone();
    let wrong = trial::run(&BROKEN, b"l").expect_err("too much");
    assert!(wrong.contains("bytes of memory"), "{wrong}");
}
