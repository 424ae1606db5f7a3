//! Where we differ on purpose: which calls, and why.

use crate::number::{whole, whole_or_none};
use crate::redis_cell::{REPLY_REMAINING, REPLY_RESET, REPLY_RETRY};
use crate::replay::{MICRO, MILLI, SECOND, Seen};

/// A difference that is meant.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// How the names of its files begin.
    files: &'static str,
    /// Whether the two limiters are in different states afterwards.
    pub(crate) apart: bool,
    covers: fn(&Seen<'_>) -> bool,
    pub(crate) why: &'static str,
}

/// All of them, each named after what the other limiter does.
pub(crate) const CASES: [Case; 4] = [
    Case {
        name: "redis_cell_lets_the_clock_go_back",
        files: "redis_cell",
        apart: true,
        covers: |seen| seen.instant < seen.latest,
        why: "When the clock goes back, redis-cell waits for the same time once more. Here a bucket's clock \
              never goes back: no time has passed.",
    },
    Case {
        name: "redis_cell_fills_an_idle_key_beyond_its_capacity",
        files: "redis_cell",
        apart: false,
        covers: |seen| {
            let idle = whole_or_none(seen.call, "reset_after_ns").is_some_and(|reset| reset < 0);
            let never = whole(seen.call, "quantity") > whole(seen.call, "limit");
            never && idle && BEYOND.contains(&seen.difference.what)
        },
        why: "Asked for more than the capacity, redis-cell refuses but tells of an idle key as if it had \
              filled up for all that time: more remaining than there can be, and a negative time to \
              reset. Here remaining is at most the capacity, and no time is negative.",
    },
    Case {
        name: "redis_cell_tells_times_below_a_millisecond_as_none",
        files: "redis_cell",
        apart: false,
        covers: |seen| {
            let exact = match seen.difference.what {
                REPLY_RETRY => whole_or_none(seen.call, "retry_after_ns"),
                REPLY_RESET => whole_or_none(seen.call, "reset_after_ns"),
                _ => None,
            };
            exact.is_some_and(|ns| (1..MILLI).contains(&(ns % SECOND)))
        },
        why: "redis-cell cuts times to whole milliseconds before it rounds them up to seconds, so who comes \
              back after the told time may be early. Here seconds are rounded up from nanoseconds.",
    },
    Case {
        name: "redis_cell_counts_what_remains_in_microseconds",
        files: "redis_cell",
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
        why: "redis-cell divides whole microseconds to say what remains, and is one too high where less than \
              a microsecond is missing. Here it is rounded down from the exact level.",
    },
];

/// What is told of a key beyond its capacity.
const BEYOND: [&str; 4] = ["remaining", "reset_after", REPLY_REMAINING, REPLY_RESET];

/// The case that explains a difference.
pub(crate) fn find(seen: &Seen<'_>) -> Option<&'static Case> {
    let mut cases = CASES.iter();
    cases.find(|case| seen.file.starts_with(case.files) && (case.covers)(seen))
}
