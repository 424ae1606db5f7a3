//! The core's part of a request, natively: `cargo xtask bench core`. No time is asserted.
//!
//! - [`decisions`]: one decision of each algorithm, beside the `governor` crate's;
//! - [`pages`]: one decision of the store, which reads a page and writes it;
//! - [`evaluation`]: one request and the rules of a file.
//!
//! Each benchmark checks its verdicts before and after, so that no other case is measured than the one
//! that its name says. `cargo test --package loudou-rules --bench core` runs each once.

use std::time::Duration;

use criterion::Criterion;

mod decisions;
mod evaluation;
mod governed;
mod pages;

/// An error is a sentence: the cause is always in a benchmark.
type Checked<T = ()> = Result<T, String>;

fn main() -> Checked {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .without_plots()
        .configure_from_args();
    decisions::bench(&mut criterion)?;
    pages::bench(&mut criterion)?;
    evaluation::bench(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}
