//! The fields of `concurrency`.

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
    "After this time, or at most twice as long, a request whose end was not heard of no longer counts.",
);

pub(super) const CONCURRENCY: Entry = Entry {
    name: "concurrency",
    #[cfg(feature = "words")]
    phrase: Phrase::concurrency,
    doc: Doc::new("Requests under way at the same time; given back when they end."),
    fields: &[
        CAPACITY.meaning("How many may be in flight at once, in cost units."),
        LEASE_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let lease = numbers.duration("lease", report);
        let lease = numbers.or("lease", lease, LEASE);
        Some(Concurrency::new(capacity?.into(), lease?).map(Into::into))
    },
};

/// What these limits mean, as the end of a sentence.
#[cfg(feature = "words")]
impl Phrase {
    pub(super) fn concurrency(&self) -> Option<String> {
        let lease = self.span("lease")?;
        let twice = lease.saturating_add(lease);
        Some(format!(
            "may have {} under way at the same time; what is not heard to end stops counting after {lease} to {twice}",
            self.some(self.capacity)
        ))
    }
}
