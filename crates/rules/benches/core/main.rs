//! Measures the native time of a request's core parts: `cargo xtask bench core`. No time is
//! asserted.
//!
//! - [`decisions`] measures a decision of each algorithm, compared with the `governor` crate.
//! - [`pages`] measures a decision of the store, which reads a page and writes it.
//! - [`evaluation`] measures a request against the rules of a file.
//!
//! Each benchmark checks its verdicts before and after, so that it measures the case that its name
//! describes. `cargo test --package loudou-rules --bench core` runs each benchmark once.

use std::time::Duration;

use criterion::Criterion;

mod decisions;
mod evaluation;
mod governed;
mod pages;

/// An error is a sentence, because its cause is always a bug in a benchmark.
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
