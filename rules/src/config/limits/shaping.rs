//! The fields of the algorithms that shape: `leaky_queue` and the smooth ones.

#[cfg(feature = "words")]
use alloc::format;
#[cfg(feature = "words")]
use alloc::string::String;

use loudou_limiter::algorithm::smooth_bursty::MAX_BURST;
use loudou_limiter::algorithm::smooth_warmup::{COLD_FACTORS, MAX_WARMUP};
use loudou_limiter::algorithm::{LeakyQueue, SmoothBursty, SmoothWarmup};
use loudou_limiter::bounds::{MAX_AMOUNT, MAX_WAIT};
use loudou_limiter::{Decimal, Nanos};

use super::numbers::Numbers;
#[cfg(feature = "words")]
use super::phrase::{Phrase, time_of};
use super::{CAPACITY, Entry, MAX_WAIT_FIELD, RATE};
use crate::config::grammar::{Doc, Field, Form};

pub(super) const LEAKY_QUEUE: Entry = Entry {
    name: "leaky_queue",
    #[cfg(feature = "words")]
    phrase: Phrase::queue,
    doc: Doc::new(
        "A leaky bucket as a queue: requests pass one at a time at the rate, and wait \
         their turn.",
    ),
    fields: &[
        CAPACITY.meaning("How many may wait at once, in cost units; more are refused."),
        RATE.meaning("How fast requests pass."),
        Field::optional(
            "immediate",
            Form::Integer(0, MAX_AMOUNT),
            "0",
            "How much of a backlog passes without waiting, in cost units.",
        ),
        Field {
            default: Some("1h"),
            doc: Doc::new("How long a request may be held; what would wait longer is refused."),
            ..MAX_WAIT_FIELD
        },
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
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

const ONE: Decimal = Decimal::from_thousandths(1_000);

pub(super) const SMOOTH_BURSTY: Entry = Entry {
    name: "smooth_bursty",
    #[cfg(feature = "words")]
    phrase: Phrase::bursty,
    doc: Doc::new(
        "Pay later: a request of any cost passes once the debt of those before is paid \
         off; idle time is saved up.",
    ),
    fields: &[
        RATE.meaning("How fast permits come."),
        Field::optional(
            "burst_seconds",
            Form::Decimal(Decimal::from_thousandths(0), MAX_BURST),
            "1",
            "The permits of so many seconds are stored while nothing is asked for.",
        ),
        MAX_WAIT_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let rate = numbers.rate("rate", report);
        let burst = numbers.decimal("burst_seconds", report);
        let burst = numbers.or("burst_seconds", burst, ONE);
        let max_wait = numbers.max_wait(Nanos::ZERO, report);
        let (rate, burst, max_wait) = (rate?, burst?, max_wait?);
        let bursty = SmoothBursty::new(rate, burst).and_then(|bursty| bursty.waiting(max_wait));
        Some(bursty.map(Into::into))
    },
};

pub(super) const WARMUP: Field = Field::required(
    "warmup",
    Form::Duration(&[Nanos::new(1), MAX_WARMUP]),
    "How long it takes to be warm, in steady use, and to be cold again, without requests.",
);
pub(super) const COLD_FACTOR: Field = Field::optional(
    "cold_factor",
    Form::Decimal(COLD_FACTORS[0], COLD_FACTORS[1]),
    "3",
    "How many times as long as at the rate a permit takes when it is cold.",
);
const THREE: Decimal = Decimal::from_thousandths(3_000);

pub(super) const SMOOTH_WARMUP: Entry = Entry {
    name: "smooth_warmup",
    #[cfg(feature = "words")]
    phrase: Phrase::warmup,
    doc: Doc::new(
        "Pay later, and slower after idle time: for what has to warm up before it is \
         fast.",
    ),
    fields: &[
        RATE.meaning("How fast permits come when it is warm."),
        WARMUP,
        COLD_FACTOR,
        MAX_WAIT_FIELD,
    ],
    read: |numbers: &Numbers<'_, '_>, report| {
        let rate = numbers.rate("rate", report);
        let warmup = numbers.duration("warmup", report);
        let factor = numbers.decimal("cold_factor", report);
        let factor = numbers.or("cold_factor", factor, THREE);
        let max_wait = numbers.max_wait(Nanos::ZERO, report);
        let (rate, warmup, factor, max_wait) = (rate?, warmup?, factor?, max_wait?);
        let limit = SmoothWarmup::new(rate, warmup, factor).and_then(|w| w.waiting(max_wait));
        Some(limit.map(Into::into))
    },
};

/// What these limits mean, as the end of a sentence.
#[cfg(feature = "words")]
impl Phrase {
    pub(super) fn queue(&self) -> Option<String> {
        let rate = self.rate()?;
        let pace = self.pace(rate);
        let verb = if self.in_units { "take" } else { "do" };
        let (immediate, wait) = (self.number("immediate")?, self.span("max_wait")?);
        if immediate >= self.capacity {
            let all = self.capacity.saturating_add(1);
            return Some(format!("{} at once, then {pace}", self.may(all)));
        }
        if wait == Nanos::ZERO {
            let more = match immediate {
                0 => String::new(),
                _ => format!(", and up to {} ahead of that pace", self.some(immediate)),
            };
            return Some(format!(
                "may {verb} {pace}{more}; what would have to wait is refused"
            ));
        }
        let mut said = format!(
            "may {verb} {pace}, and up to {} more wait their turn",
            self.some(self.capacity)
        );
        if immediate > 0 {
            let more = format!(" (the first {immediate} of them pass at once)");
            said.push_str(&more);
        }
        // The longest wait is that of the last place.
        let waiting = self.capacity.saturating_sub(immediate);
        if time_of(waiting, rate) > wait {
            let more = format!("; what would wait longer than {wait} is refused");
            said.push_str(&more);
        }
        Some(said)
    }

    pub(super) fn bursty(&self) -> Option<String> {
        let rate = self.rate()?;
        let verb = if self.in_units { "take" } else { "do" };
        let mut said = format!("may {verb} {}", self.pace(rate));
        let stored = self.capacity.saturating_sub(1);
        if stored > 0 {
            let more = format!("; idle time saves up to {} for later", self.some(stored));
            said.push_str(&more);
        }
        if self.in_units {
            said.push_str("; a request passes once those before it are paid off");
        }
        said.push_str(&self.early()?);
        Some(said)
    }

    pub(super) fn warmup(&self) -> Option<String> {
        let (rate, warmup) = (self.rate()?, self.span("warmup")?);
        let factor = Decimal::parse(&self.text("cold_factor")?)?;
        let verb = if self.in_units { "take" } else { "do" };
        let mut said = format!("may {verb} {}", self.pace(rate));
        if factor > Decimal::from_thousandths(1_000) {
            let more = format!(
                " when warm; when cold (at first, and after {warmup} without requests) {factor} times as \
                 slowly, until {warmup} of use have warmed it up"
            );
            said.push_str(&more);
        }
        if self.in_units {
            said.push_str("; a request passes once those before it are paid off");
        }
        said.push_str(&self.early()?);
        Some(said)
    }
}
