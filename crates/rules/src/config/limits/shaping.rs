//! Reads the fields of the algorithms that shape traffic: `leaky_queue` and the smooth algorithms.

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
        "A leaky bucket as a queue: requests pass one at a time at the rate; the others are \
        held.",
    ),
    fields: &[
        CAPACITY.meaning("The maximum cost of the held requests; more are refused."),
        RATE.meaning("The rate at which requests pass."),
        Field::optional(
            "immediate",
            Form::Integer(0, MAX_AMOUNT),
            "0",
            "The part of a backlog that passes without waiting, in cost units.",
        ),
        Field {
            default: Some("1h"),
            doc: Doc::new("The maximum time that a request is held; longer waits are refused."),
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
        "Pay later: a request of any cost passes once the debt of earlier requests is paid \
         off; permits of idle time are stored.",
    ),
    fields: &[
        RATE.meaning("The rate of permits."),
        Field::optional(
            "burst_seconds",
            Form::Decimal(Decimal::from_thousandths(0), MAX_BURST),
            "1",
            "The number of seconds whose permits are stored while there are no requests.",
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
    "The time to warm up in steady use, and to cool down without requests.",
);
pub(super) const COLD_FACTOR: Field = Field::optional(
    "cold_factor",
    Form::Decimal(COLD_FACTORS[0], COLD_FACTORS[1]),
    "3",
    "The factor by which permits take longer when the limiter is cold.",
);
const THREE: Decimal = Decimal::from_thousandths(3_000);

pub(super) const SMOOTH_WARMUP: Entry = Entry {
    name: "smooth_warmup",
    #[cfg(feature = "words")]
    phrase: Phrase::warmup,
    doc: Doc::new(
        "Pay later, and slower after idle time: for services that have to warm up before they are \
        fast.",
    ),
    fields: &[
        Field {
            sourced: None,
            ..RATE.meaning("The rate of permits when the limiter is warm.")
        },
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

/// Phrases that describe limits that use these algorithms.
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
                "may {verb} {pace}{more}; requests that would have to wait are refused"
            ));
        }
        let mut phrase = format!(
            "may {verb} {pace}, and up to {} more are held",
            self.some(self.capacity)
        );
        if immediate > 0 {
            let more = format!(" (the first {immediate} of them pass at once)");
            phrase.push_str(&more);
        }
        // The last request in the queue waits the longest.
        let waiting = self.capacity.saturating_sub(immediate);
        if time_of(waiting, rate) > wait {
            let more = format!("; requests that would wait longer than {wait} are refused");
            phrase.push_str(&more);
        }
        Some(phrase)
    }

    pub(super) fn bursty(&self) -> Option<String> {
        let rate = self.rate()?;
        let verb = if self.in_units { "take" } else { "do" };
        let mut phrase = format!("may {verb} {}", self.pace(rate));
        let stored = self.capacity.saturating_sub(1);
        if stored > 0 {
            let more = format!("; idle time saves up to {} for later", self.some(stored));
            phrase.push_str(&more);
        }
        if self.in_units {
            phrase.push_str("; a request passes once earlier ones are paid off");
        }
        phrase.push_str(&self.early()?);
        Some(phrase)
    }

    pub(super) fn warmup(&self) -> Option<String> {
        let (rate, warmup) = (self.rate()?, self.span("warmup")?);
        let factor = Decimal::parse(&self.text("cold_factor")?)?;
        let verb = if self.in_units { "take" } else { "do" };
        let mut phrase = format!("may {verb} {}", self.pace(rate));
        if factor > Decimal::from_thousandths(1_000) {
            let more = format!(
                " when warm; when cold (at first, and after {warmup} without requests) {factor} times as \
                 slowly, until {warmup} of use have warmed it up"
            );
            phrase.push_str(&more);
        }
        if self.in_units {
            phrase.push_str("; a request passes once earlier ones are paid off");
        }
        phrase.push_str(&self.early()?);
        Some(phrase)
    }
}
