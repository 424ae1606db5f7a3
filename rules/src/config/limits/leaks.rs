//! The fields of `funnel` and `token_bucket`.

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::{Funnel, Refill, TokenBucket};
use loudou_limiter::bounds::MAX_AMOUNT;

use super::numbers::Numbers;
use super::{CAPACITY, Entry, MAX_WAIT_FIELD, RATE};
use crate::config::grammar::{Doc, Field, Form};

const REFILLS: [(&str, Refill); 2] = [("greedy", Refill::Greedy), ("interval", Refill::Interval)];

pub(super) const FUNNEL: Entry = Entry {
    name: "funnel",
    doc: Doc::new(
        "A leaky bucket as a meter (GCRA): each request is water that leaks away at the \
         rate, and passes if it still fits.",
    ),
    fields: &[CAPACITY, RATE, MAX_WAIT_FIELD],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let rate = numbers.rate("rate", report);
        let max_wait = numbers.max_wait(Nanos::ZERO, report);
        let (capacity, rate, max_wait) = (capacity?.into(), rate?, max_wait?);
        let funnel = Funnel::new(capacity, rate).and_then(|funnel| funnel.waiting(max_wait));
        Some(funnel.map(Into::into))
    },
};

pub(super) const TOKEN_BUCKET: Entry = Entry {
    name: "token_bucket",
    doc: Doc::new("Tokens that come back, continuously or in lumps; each request takes some."),
    fields: &[
        CAPACITY,
        RATE,
        Field::optional(
            "refill",
            Form::Word(&Refill::NAMES),
            "greedy",
            "Tokens come back continuously (greedy), or the rate's whole amount at the end of each period (interval).",
        ),
        Field::optional(
            "initial",
            Form::Integer(0, MAX_AMOUNT),
            "the capacity",
            "The tokens a new bucket starts with.",
        ),
        MAX_WAIT_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let rate = numbers.rate("rate", report);
        let refill = numbers.word("refill", &REFILLS, report);
        let refill = numbers.or("refill", refill, Refill::Greedy);
        let most = capacity.unwrap_or(MAX_AMOUNT);
        let initial = numbers.integer_up_to("initial", most, report);
        let initial = numbers.or("initial", initial, most);
        let max_wait = numbers.max_wait(Nanos::ZERO, report);
        let (capacity, initial) = (capacity?.into(), initial?.into());
        let (rate, refill, max_wait) = (rate?, refill?, max_wait?);
        let bucket = TokenBucket::new(capacity, rate, refill, initial)
            .and_then(|bucket| bucket.waiting(max_wait));
        Some(bucket.map(Into::into))
    },
};
