//! A fuzzer for everything in Loudou that reads input from outside: requests, admin calls, rule files,
//! logs, and shared data.
//!
//! Inputs are made of known ones by mutation, and kept if they reach new code, as libFuzzer does. It is a
//! program of its own because coverage-guided engines need a nightly compiler. Each input runs within
//! bounds of CPU time and memory; the same seed makes the same inputs. A found input becomes a test by
//! putting it into `fuzz/corpus/TARGET`.

pub mod coverage;
pub mod driver;
pub mod memory;
pub mod mutate;
pub mod random;
pub mod targets;
pub mod trial;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
