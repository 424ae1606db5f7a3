//! The requests in flight at an instant, for `concurrency`.

use super::super::timeline::State;
use super::{Breach, Case, Event, Promise};

/// No request is admitted while other requests certainly take all slots.
pub(super) fn at_most(case: &Case<'_>, admitted: &[&Event]) -> Option<Breach> {
    let lease = case.segments.iter().flat_map(|segment| &segment.states);
    let lease = lease.map(|state| state.refill).min().unwrap_or(0);
    // A reset forgets the requests in flight.
    let is_forgotten = |other: &Event, event: &Event| {
        let mut resets = case.resets.iter().flat_map(|list| list.iter());
        resets.any(|(sent, answered)| other.sent <= *answered && *sent <= event.answered)
    };
    admitted.iter().find_map(|event| {
        let is_in_flight = |other: &&&Event| {
            let is_held = other.held_until.is_some_and(|until| until > event.answered);
            let counts = event.answered.saturating_sub(other.sent) < lease;
            is_held && counts && other.answered < event.sent && !is_forgotten(other, event)
        };
        let count = admitted.iter().filter(is_in_flight).count();
        let states = case.states(event.sent, event.answered);
        let most = states.map(State::capacity).max()?;
        let what = format!("admitted beside {count} in flight, where {most} may be");
        (u64::try_from(count).unwrap_or(u64::MAX) >= most).then_some(Breach {
            promise: Promise::AtMost,
            at: event.answered,
            what,
        })
    })
}
