//! The fields of `concurrency`.

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::Concurrency;
use loudou_limiter::algorithm::concurrency::{LEASE, MAX_LEASE};

use super::numbers::Numbers;
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
