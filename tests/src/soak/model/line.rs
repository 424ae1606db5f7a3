//! Checks rules whose requests wait: at every time, requests pass at the rate in force.
//!
//! The model compares the instants at which requests passed, and not the answers. A request never
//! passes before it is due, but it may pass late, by as much as [`pulse`](super::super::heartbeat)
//! shows. There are three promises. In every interval, at most one request more passes than the
//! rates in force allow ([`Case::at_most`]). While a request waits, others pass at the slowest rate
//! or faster. And no request is refused while there is a free place.

use super::super::timeline::{At, Gives, State};
use super::{Between, Breach, Case, Event, ONE, Outcome, Pass, Promise};

/// Time after which a worker looks for changes (`LOOK` in `filter/src/data.rs`). Until then, it
/// lets requests pass by the old numbers. Requests that the new numbers would have let pass earlier
/// follow when it looks.
const LOOK: u64 = 20_000_000;

/// Returns the times between which a passed request was due.
pub(super) fn between(case: &Case<'_>, event: &Event) -> Option<Between> {
    let pass = event.pass?;
    Some(Between {
        from: due_from(case, &pass),
        until: pass.arrived,
    })
}

fn due_from(case: &Case<'_>, pass: &Pass) -> At {
    let before = pass.due_from.saturating_sub(LOOK).max(pass.came);
    let overlaps = |from: At, until: At| from <= pass.arrived && before < until;
    let segments = case.segments.iter();
    let near = segments.filter(|segment| overlaps(segment.from, segment.until));
    let mut states = near.flat_map(|segment| &segment.states);
    let first = states.next();
    if states.any(|state| Some(state) != first) {
        before
    } else {
        pass.due_from
    }
}

pub(super) fn at_least(case: &Case<'_>) -> Option<Breach> {
    case.events.iter().find_map(|event| {
        // A request that leaves, or that passes out of turn, leaves a gap. Gaps may remain for as
        // long as a queue can be.
        let (from, until) = (event.sent.saturating_sub(case.rest), event.end());
        let mut spans = case.record.spans.iter();
        let has_gaps = spans.any(|own| {
            let skips = matches!(own.gives, Gives::Unlimited | Gives::Banned);
            skips && own.touches(from, until)
        });
        let mut resets = case.record.resets.iter();
        if has_gaps || resets.any(|reset| reset.0 <= until && from <= reset.1) {
            return None;
        }
        match event.pass {
            Some(pass) => flows(case, event, &pass),
            None if event.outcome == Outcome::Refused => has_no_place(case, event),
            None => None,
        }
    })
}

/// Checks that a waiting request is not overdue: it waits at most for all requests that may be in
/// front of it, and for a request that has just passed.
fn flows(case: &Case<'_>, event: &Event, pass: &Pass) -> Option<Breach> {
    let due = due_from(case, pass);
    let may_be_in_front = |other: &&Event| match other.pass {
        _ if *other == event => false,
        Some(other) => due_from(case, &other) <= pass.arrived && pass.came <= other.arrived,
        // If a request left, or if its sandbox died, its place stays empty.
        None => other.outcome == Outcome::Unknown && other.sent <= pass.arrived,
    };
    let in_front = case.events.iter().filter(may_be_in_front).count();
    let most = u128::try_from(in_front)
        .unwrap_or(u128::MAX)
        .saturating_add(1);
    let least = lets_out(case, pass.decided_until, due);
    (least > most.saturating_mul(ONE)).then(|| {
        let time = due.saturating_sub(pass.decided_until) / 1_000_000;
        let what = format!(
            "waited for {time} ms behind at most {in_front}, while at least {}.{:03} had to pass",
            least / ONE,
            least % ONE / (ONE / 1_000),
        );
        breach(event, what)
    })
}

/// Returns the units that the slowest numbers let out between two instants, in fractions of
/// [`ONE`].
fn lets_out(case: &Case<'_>, from: At, until: At) -> u128 {
    let overlaps = case.segments.iter().filter_map(|segment| {
        let time = segment
            .until
            .min(until)
            .checked_sub(segment.from.max(from))?;
        let rate =
            |state: &State| ONE * u128::from(state.capacity()) / u128::from(state.refill.max(1));
        let slowest = segment.states.iter().map(rate).min()?;
        Some(slowest * u128::from(time))
    });
    overlaps.sum()
}

/// Checks that a refused request found no free place. Waiting requests take places, and so does a
/// request that has just passed.
fn has_no_place(case: &Case<'_>, event: &Event) -> Option<Breach> {
    let states = case.states(event.sent, event.answered);
    let places = states.map(State::capacity).min()?;
    let may_wait = |other: &&Event| {
        let waits = match other.pass {
            Some(pass) => event.sent <= pass.arrived,
            // A ban refuses waiting requests.
            None => other.outcome == Outcome::Unknown || event.sent <= other.answered,
        };
        *other != event && waits && other.sent <= event.answered
    };
    let waiting = case.events.iter().filter(may_wait).count();
    (u64::try_from(waiting).unwrap_or(u64::MAX) < places).then(|| {
        let what = format!("refused behind at most {waiting}, where {places} may wait");
        breach(event, what)
    })
}

const fn breach(event: &Event, what: String) -> Breach {
    Breach {
        promise: Promise::AtLeast,
        at: event.end(),
        what,
    }
}
