//! The fields of `funnel` and `token_bucket`.

use super::field::{Field, Form, Numbers};
use super::{CAPACITY, Entry, RATE};
use crate::algorithm::{Funnel, MAX_AMOUNT, Refill, TokenBucket};

const REFILLS: [(&str, Refill); 2] = [("greedy", Refill::Greedy), ("interval", Refill::Interval)];

pub(super) const FUNNEL: Entry = Entry {
    name: "funnel",
    fields: &[CAPACITY, RATE],
    read: |numbers: &Numbers<'_>, report| {
        let capacity = numbers.integer("capacity", report);
        let rate = numbers.rate("rate", report);
        Some(Funnel::new(capacity?.into(), rate?).map(Into::into))
    },
};

pub(super) const TOKEN_BUCKET: Entry = Entry {
    name: "token_bucket",
    fields: &[
        CAPACITY,
        RATE,
        Field {
            name: "refill",
            form: Form::Word(&Refill::NAMES),
            default: Some("greedy"),
            doc: "Tokens come back continuously (greedy), or the rate's whole amount at the end of each period (interval).",
        },
        Field {
            name: "initial",
            form: Form::Integer(0, MAX_AMOUNT),
            default: Some("the capacity"),
            doc: "The tokens a new bucket starts with.",
        },
    ],
    read: |numbers: &Numbers<'_>, report| {
        let capacity = numbers.integer("capacity", report);
        let rate = numbers.rate("rate", report);
        let refill = numbers.word("refill", &REFILLS, report);
        let refill = numbers.or("refill", refill, Refill::Greedy);
        let most = capacity.unwrap_or(MAX_AMOUNT);
        let initial = numbers.integer_up_to("initial", most, report);
        let initial = numbers.or("initial", initial, most);
        let (capacity, initial) = (capacity?.into(), initial?.into());
        Some(TokenBucket::new(capacity, rate?, refill?, initial).map(Into::into))
    },
};
