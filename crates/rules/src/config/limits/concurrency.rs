//! Reads the fields of `concurrency`.

#[cfg(feature = "words")]
use alloc::format;
#[cfg(feature = "words")]
use alloc::string::String;

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::Concurrency;
use loudou_limiter::algorithm::concurrency::{LEASE, MAX_LEASE};

use super::numbers::Numbers;
#[cfg(feature = "words")]
use super::phrase::Phrase;
use super::{CAPACITY, Entry};
use crate::config::grammar::{Doc, Field, Form};

pub(super) const LEASE_FIELD: Field = Field::optional(
    "lease",
    Form::Duration(&[Nanos::new(1), MAX_LEASE]),
    "5m",
    "A request whose end was not reported stops counting after this time to twice this time.",
);

pub(super) const CONCURRENCY: Entry = Entry {
    name: "concurrency",
    #[cfg(feature = "words")]
    phrase: Phrase::concurrency,
    doc: Doc::new("Limits concurrent requests: capacity is returned when a request ends."),
    fields: &[
        CAPACITY.meaning("The maximum cost of the requests in flight."),
        LEASE_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let lease = numbers.duration("lease", report);
        let lease = numbers.or("lease", lease, LEASE);
        Some(Concurrency::new(capacity?.into(), lease?).map(Into::into))
    },
};

/// Phrases that describe `concurrency` limits.
#[cfg(feature = "words")]
impl Phrase {
    pub(super) fn concurrency(&self) -> Option<String> {
        let lease = self.span("lease")?;
        let twice = lease.saturating_add(lease);
        Some(format!(
            "may have {} in flight at the same time; a request whose end is not reported stops counting after {lease} to {twice}",
            self.some(self.capacity)
        ))
    }
}
