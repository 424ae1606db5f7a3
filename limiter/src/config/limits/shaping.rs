//! The fields of the algorithms that shape: `leaky_queue` and the smooth ones.

use super::field::{Field, Form, Numbers};
use super::{CAPACITY, Entry, MAX_WAIT_FIELD, RATE};
use crate::algorithm::{LeakyQueue, MAX_AMOUNT, MAX_WAIT};

pub(super) const LEAKY_QUEUE: Entry = Entry {
    name: "leaky_queue",
    fields: &[
        Field {
            doc: "How many may wait at once, in cost units; more are refused.",
            ..CAPACITY
        },
        Field {
            doc: "How fast requests pass.",
            ..RATE
        },
        Field {
            name: "immediate",
            form: Form::Integer(0, MAX_AMOUNT),
            default: Some("0"),
            doc: "How much of a backlog passes without waiting, in cost units.",
        },
        Field {
            default: Some("1h"),
            doc: "How long a request may be held; what would wait longer is refused.",
            ..MAX_WAIT_FIELD
        },
    ],
    read: |numbers: &Numbers<'_>, report| {
        let capacity = numbers.integer("capacity", report);
        let rate = numbers.rate("rate", report);
        let immediate = numbers.integer("immediate", report);
        let immediate = numbers.or("immediate", immediate, 0);
        let max_wait = numbers.max_wait(MAX_WAIT, report);
        let (capacity, rate) = (capacity?.into(), rate?);
        let (immediate, max_wait) = (immediate?, max_wait?);
        let queue = LeakyQueue::new(capacity, rate)
            .and_then(|queue| queue.immediate(immediate).waiting(max_wait));
        Some(queue.map(Into::into))
    },
};
