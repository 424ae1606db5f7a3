//! Fuzz targets for everything in Loudou that reads input from outside: requests, admin calls, rule files,
//! logs, and shared data.
//!
//! LLVM's libFuzzer makes the inputs and keeps inputs that reach new code; `cargo xtask fuzz` runs
//! it. Each input runs within bounds of CPU time and memory. An input that failed becomes a test by
//! putting it into `tests/fuzz/corpus/TARGET`.

pub mod memory;
pub mod targets;
pub mod trial;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
