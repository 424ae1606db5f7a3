//! The fields of `concurrency`.

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::Concurrency;
use loudou_limiter::algorithm::concurrency::{LEASE, MAX_LEASE};

use super::field::{Field, Form, Numbers, about};
use super::{CAPACITY, Entry};

pub(super) const LEASE_FIELD: Field = Field {
    name: "lease",
    form: Form::Duration(Nanos::new(1), MAX_LEASE),
    default: Some("5m"),
    doc: about(
        "After this time, or at most twice as long, a request whose end was not heard of no longer counts.",
    ),
};

pub(super) const CONCURRENCY: Entry = Entry {
    name: "concurrency",
    fields: &[
        Field {
            doc: about("How many may be in flight at once, in cost units."),
            ..CAPACITY
        },
        LEASE_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let lease = numbers.duration("lease", report);
        let lease = numbers.or("lease", lease, LEASE);
        Some(Concurrency::new(capacity?.into(), lease?).map(Into::into))
    },
};
