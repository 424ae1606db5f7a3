//! The fields of `funnel` and `token_bucket`.

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::{Funnel, Refill, TokenBucket};
use loudou_limiter::bounds::MAX_AMOUNT;

use super::field::{Field, Form, Numbers, about};
use super::{CAPACITY, Entry, MAX_WAIT_FIELD, RATE};

const REFILLS: [(&str, Refill); 2] = [("greedy", Refill::Greedy), ("interval", Refill::Interval)];

pub(super) const FUNNEL: Entry = Entry {
    name: "funnel",
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
    fields: &[
        CAPACITY,
        RATE,
        Field {
            name: "refill",
            form: Form::Word(&Refill::NAMES),
            default: Some("greedy"),
            doc: about(
                "Tokens come back continuously (greedy), or the rate's whole amount at the end of each period (interval).",
            ),
        },
        Field {
            name: "initial",
            form: Form::Integer(0, MAX_AMOUNT),
            default: Some("the capacity"),
            doc: about("The tokens a new bucket starts with."),
        },
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
