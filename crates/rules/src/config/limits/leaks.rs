//! Reads the fields of `funnel` and `token_bucket`.

#[cfg(feature = "words")]
use alloc::borrow::ToOwned as _;
#[cfg(feature = "words")]
use alloc::format;
#[cfg(feature = "words")]
use alloc::string::{String, ToString as _};

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::{Funnel, Refill, TokenBucket};
use loudou_limiter::bounds::MAX_AMOUNT;

use super::numbers::Numbers;
#[cfg(feature = "words")]
use super::phrase::{Phrase, time};
use super::windows::{ALIGN, align};
use super::{CAPACITY, Entry, MAX_WAIT_FIELD, RATE};
use crate::config::grammar::{Doc, Field, Form};

const REFILLS: [(&str, Refill); 2] = [("greedy", Refill::Greedy), ("interval", Refill::Interval)];

pub(super) const FUNNEL: Entry = Entry {
    name: "funnel",
    #[cfg(feature = "words")]
    phrase: Phrase::leaking,
    doc: Doc::new(
        "A leaky bucket as a meter (GCRA): each request adds its cost, which drains at the \
         rate; a request passes if it still fits.",
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
    #[cfg(feature = "words")]
    phrase: Phrase::tokens,
    doc: Doc::new(
        "A bucket of tokens, refilled continuously or at intervals; each request takes its cost.",
    ),
    fields: &[
        CAPACITY,
        RATE,
        Field::optional(
            "refill",
            Form::Word(&Refill::NAMES),
            "greedy",
            "Tokens are refilled continuously (greedy), or by the rate's whole amount at the end of each period (interval).",
        ),
        ALIGN,
        Field::optional(
            "initial",
            Form::Integer(0, MAX_AMOUNT),
            "the capacity",
            "The tokens of a new bucket.",
        ),
        MAX_WAIT_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let capacity = numbers.integer("capacity", report);
        let rate = numbers.rate("rate", report);
        let refill = numbers.word("refill", &REFILLS, report);
        let refill = numbers.or("refill", refill, Refill::Greedy);
        let align = align(numbers, report);
        let most = capacity.unwrap_or(MAX_AMOUNT);
        let initial = numbers.integer_up_to("initial", most, report);
        let initial = numbers.or("initial", initial, most);
        let max_wait = numbers.max_wait(Nanos::ZERO, report);
        let (capacity, initial) = (capacity?.into(), initial?.into());
        let (rate, refill, align, max_wait) = (rate?, refill?, align?, max_wait?);
        let bucket = TokenBucket::new(capacity, rate, refill, initial)
            .and_then(|bucket| bucket.aligned(align))
            .and_then(|bucket| bucket.waiting(max_wait));
        Some(bucket.map(Into::into))
    },
};

/// Phrases that describe `funnel` and `token_bucket` limits.
#[cfg(feature = "words")]
impl Phrase {
    pub(super) fn leaking(&self) -> Option<String> {
        let (may, pace) = (self.may(self.capacity), self.pace(self.rate()?));
        Some(format!("{may} at once, then {pace}{}", self.early()?))
    }

    pub(super) fn tokens(&self) -> Option<String> {
        let may = self.may(self.capacity);
        let mut phrase = if self.is("refill", "interval") {
            let rate = self.rate()?;
            let amount = u64::from(rate.amount());
            let back = match amount {
                _ if amount >= self.capacity => "all of it comes".to_owned(),
                1 => format!("{} comes", self.some(1)),
                _ => format!("{} come", self.some(amount)),
            };
            format!(
                "{may} at once, and {back} back every {}, in one go{}",
                time(rate.period()),
                self.by_clock()
            )
        } else {
            format!("{may} at once, then {}", self.pace(self.rate()?))
        };
        let initial = self.number("initial").unwrap_or(self.capacity);
        if initial == 0 {
            phrase.push_str("; a new bucket starts empty");
        } else if initial < self.capacity {
            phrase.push_str("; a new bucket starts with ");
            phrase.push_str(&initial.to_string());
        }
        phrase.push_str(&self.early()?);
        Some(phrase)
    }
}
