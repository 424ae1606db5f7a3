//! Intended differences, with the affected calls and the reasons.

use crate::go::{self, SET_BURST, TOKENS};
use crate::guava::{self, FREE, SET_RATE, SETTINGS, STORED};
use crate::nginx::{self, EXCESS, interval};
use crate::number::{real, text, whole, whole_or_none};
use crate::redis_cell::{self, REPLY_REMAINING, REPLY_RESET, REPLY_RETRY};
use crate::replay::{Difference, MICRO, MILLI, SECOND, Seen};
use crate::sentinel::{self, BUSY, WAIT};

/// An intended difference.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    files: &'static [&'static str],
    /// True if the two limiters have different states afterwards.
    pub(crate) apart: bool,
    covers: fn(&Seen<'_>) -> bool,
    pub(crate) why: &'static str,
}

/// All of them, each named after what the other limiter does.
pub(crate) const CASES: [Case; 10] = [
    Case {
        name: "redis_cell_lets_the_clock_go_back",
        files: &[redis_cell::PURE.file, redis_cell::TTL.file],
        apart: true,
        covers: |seen| seen.instant < seen.latest,
        why: "When the clock goes back, redis-cell waits for the same time once more. Here a \
              bucket's clock never goes back: no time has passed.",
    },
    Case {
        name: "redis_cell_fills_an_idle_key_beyond_its_capacity",
        files: &[redis_cell::PURE.file, redis_cell::TTL.file],
        apart: false,
        covers: |seen| {
            let idle = whole_or_none(seen.call, "reset_after_ns").is_some_and(|reset| reset < 0);
            let never = whole(seen.call, "quantity") > whole(seen.call, "limit");
            never && idle && BEYOND.contains(&seen.difference.what)
        },
        why: "Asked for more than the capacity, redis-cell refuses but tells of an idle key as \
              if it had filled up for all that time: more remaining than there can be, and a \
              negative time to reset. Here remaining is at most the capacity, and no time is \
              negative.",
    },
    Case {
        name: "redis_cell_tells_times_below_a_millisecond_as_none",
        files: &[redis_cell::PURE.file, redis_cell::TTL.file],
        apart: false,
        covers: |seen| {
            let exact = match seen.difference.what {
                REPLY_RETRY => whole_or_none(seen.call, "retry_after_ns"),
                REPLY_RESET => whole_or_none(seen.call, "reset_after_ns"),
                _ => None,
            };
            exact.is_some_and(|ns| (1..MILLI).contains(&(ns % SECOND)))
        },
        why: "redis-cell cuts times to whole milliseconds before it rounds them up to seconds, \
              so who comes back after the told time may be early. Here seconds are rounded up \
              from nanoseconds.",
    },
    Case {
        name: "redis_cell_counts_what_remains_in_microseconds",
        files: &[redis_cell::PURE.file, redis_cell::TTL.file],
        apart: false,
        covers: |seen| {
            let what = seen.difference.what;
            let count = i128::from(whole(seen.trace, "count_per_period"));
            let interval = SECOND * i128::from(whole(seen.trace, "period_s")) / count;
            let reset = whole_or_none(seen.call, "reset_after_ns").unwrap_or(0);
            let left = interval * i128::from(whole(seen.call, "limit")) - reset;
            let (exact, cut) = (left / interval, (left / MICRO) / (interval / MICRO).max(1));
            let values = (seen.difference.theirs, seen.difference.ours);
            ["remaining", REPLY_REMAINING].contains(&what) && values == (Some(cut), Some(exact))
        },
        why: "redis-cell divides whole microseconds to say what remains, and is one too high \
              where less than a microsecond is missing. Here it is rounded down from the exact \
              level.",
    },
    Case {
        name: "go_keeps_the_tokens_left_when_the_burst_changes",
        files: &[go::SUITE.file],
        apart: true,
        covers: |seen| is_edit(seen, SET_BURST),
        why: "When the burst changes, Go keeps the tokens that are left; `carry: keep` keeps \
              what is used, so a raise can be spent at once and a cut is felt at once.",
    },
    Case {
        name: "nginx_cuts_what_flows_out_to_thousandths_of_a_request",
        files: &[nginx::SUITE.file],
        apart: true,
        covers: |seen| {
            let Difference { what, theirs, ours } = seen.difference;
            let more = theirs.unwrap_or(0) - ours.unwrap_or(0);
            // One rounding error in addition to the accepted tolerance.
            let most = MILLI + i128::from(interval(seen.trace)) / 1_000;
            what == EXCESS && (1..=most).contains(&more)
        },
        why: "nginx counts in thousandths of a request, and cuts what flows out between two \
              requests to whole ones: at rates that are not whole per second its excess is up \
              to that much higher each time. Here nothing is rounded.",
    },
    Case {
        name: "sentinel_charges_a_cost_to_the_request_itself",
        files: &[sentinel::SUITE.file],
        apart: true,
        covers: |seen| {
            let differs = ["verdict", WAIT, BUSY].contains(&seen.difference.what);
            whole(seen.call, "n") > 1 && differs
        },
        why: "In Sentinel a request of cost n waits for n intervals after the one before it, \
              and the one after it for a single interval. A leaky queue lets it pass at its \
              turn, and the next waits until all n have flowed out. With a cost of 1 the two \
              are the same.",
    },
    Case {
        name: "guava_keeps_the_time_until_the_next_is_free",
        files: &[guava::SUITE.file],
        apart: true,
        covers: |seen| {
            let is_edit = text(seen.call, "op") == SET_RATE;
            let owes = whole(&seen.call["after"], "next_free_ticket_us") > whole(seen.call, "t_us");
            is_edit && owes && [FREE, STORED].contains(&seen.difference.what)
        },
        why: "What is owed when the rate changes Guava keeps as a time. Here the same permits \
              are owed, so at a faster rate they are paid for sooner and at a slower one later.",
    },
    Case {
        name: "guava_takes_a_rate_without_end",
        files: &[guava::SUITE.file],
        apart: false,
        covers: |seen| {
            let endless = real(&seen.call["after"], "stable_interval_us") <= 0.0;
            endless && seen.difference.what == SETTINGS
        },
        why: "In Guava an infinite rate means no limit, and the way back from it leaves NaN \
              behind. Here a rule without a limit is a rule that is `off`.",
    },
    Case {
        name: "guava_takes_a_warm_up_of_no_time",
        files: &[guava::SUITE.file],
        apart: false,
        covers: |seen| {
            let none = whole_or_none(&seen.trace["limiter"], "warmup_us") == Some(0);
            none && seen.difference.what == SETTINGS
        },
        why: "With a warm-up of zero Guava divides by zero: after the first pause its state is \
              NaN and nothing is limited any more. Here such a warm-up is refused; without one \
              it is `smooth_bursty`.",
    },
];

fn is_edit(seen: &Seen<'_>, operation: &str) -> bool {
    text(seen.call, "op") == operation && seen.difference.what == TOKENS
}

/// The answer to a key beyond its capacity.
const BEYOND: [&str; 4] = ["remaining", "reset_after", REPLY_REMAINING, REPLY_RESET];

/// The case that explains a difference.
pub(crate) fn find(seen: &Seen<'_>) -> Option<&'static Case> {
    let mut cases = CASES.iter();
    cases.find(|case| case.files.contains(&seen.file) && (case.covers)(seen))
}
