//! A change for all Envoys that are watched: sent to each, repeated where an Envoy is away, with a result for each.

use loudou_limiter::Nanos;

use super::delivery::Delivery;
use super::effects::Sending;
use super::msg::Failure;
use super::state::State;
use crate::change::Change;
use crate::change::verb::Answer;

/// How long a change waits for an Envoy that is away: what was meant for now is not meant for later.
const PATIENCE: Nanos = Nanos::from_secs(600);

/// A change on its way to all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broadcast {
    sending: Sending,
    /// The change in a line.
    title: String,
    /// Until when it is sent again.
    until: Nanos,
    /// The result at each Envoy, by its number.
    results: Vec<Delivery>,
}

impl Broadcast {
    /// The change of the Envoy `at`, for all of these; with what to send to which.
    pub(crate) fn new(
        sending: Sending,
        at: usize,
        states: &[State],
        now: Nanos,
    ) -> (Self, Vec<(usize, Sending)>) {
        let title = sending.change.verb().question().title;
        let mut broadcast = Self {
            results: vec![Delivery::Waits("not connected".to_owned()); states.len()],
            title,
            until: now.saturating_add(PATIENCE),
            sending,
        };
        let mut sent = Vec::new();
        for (number, state) in states.iter().enumerate() {
            if number == at {
                broadcast.set(number, Delivery::Sending);
                sent.push((number, broadcast.sending.clone()));
            } else if state.link.up == Some(true) {
                sent.extend(broadcast.send(number, state));
            }
        }
        (broadcast, sent)
    }

    fn set(&mut self, number: usize, outcome: Delivery) {
        if let Some(place) = self.results.get_mut(number) {
            *place = outcome;
        }
    }

    /// The change for one Envoy, as its rule is there.
    fn send(&mut self, number: usize, state: &State) -> Option<(usize, Sending)> {
        let name = self.sending.change.verb().rule().to_owned();
        let Some(rule) = state.rule_named(&name) else {
            self.set(number, Delivery::Failed(format!("there is no rule {name}")));
            return None;
        };
        let mut sending = self.sending.clone();
        match &mut sending.change {
            // The ban that was seen is one of another Envoy.
            Change::Ban(ban) => ban.if_match = None,
            change => change.see(rule.clone()),
        }
        self.set(number, Delivery::Sending);
        Some((number, sending))
    }

    /// An Envoy answered a poll: what waits for it is sent again.
    pub(crate) fn is_back(&mut self, number: usize, state: &State) -> Option<(usize, Sending)> {
        let waits = matches!(self.results.get(number), Some(Delivery::Waits(_)));
        waits.then(|| self.send(number, state)).flatten()
    }

    /// An Envoy answered a change. True if that ends it.
    pub(crate) fn answered(
        &mut self,
        number: usize,
        sending: &Sending,
        result: &Result<Answer, Failure>,
    ) -> bool {
        let (own, other) = (self.sending.change.verb(), sending.change.verb());
        let is_it = own.rule() == other.rule() && own.key() == other.key();
        if !is_it || self.results.get(number) != Some(&Delivery::Sending) {
            return false;
        }
        let outcome = match result {
            Ok(answer) => Delivery::Done(other.outcome(answer).toast),
            // It is away, or its answer was lost. The same change twice is as good as once, but for a reset.
            Err(failure) if failure.problem.is_none() && !self.is_lost(failure) => {
                Delivery::Waits(failure.text.clone())
            }
            Err(failure) => Delivery::Failed(failure.text.clone()),
        };
        self.set(number, outcome);
        self.is_over()
    }

    /// Whether a change may have been made, and must not be made again.
    const fn is_lost(&self, failure: &Failure) -> bool {
        failure.in_doubt && matches!(self.sending.change, Change::Reset(_))
    }

    /// Gives up those that are away for too long. True if that ends it.
    pub(crate) fn expire(&mut self, now: Nanos) -> bool {
        if now < self.until {
            return false;
        }
        let mut has_ended = false;
        for result in &mut self.results {
            if let Delivery::Waits(why) = result {
                has_ended = true;
                *result = Delivery::Failed(format!("away for {PATIENCE}: {why}"));
            }
        }
        has_ended && self.is_over()
    }

    fn is_over(&self) -> bool {
        let mut results = self.results.iter();
        results.all(|result| matches!(result, Delivery::Done(_) | Delivery::Failed(_)))
    }

    /// The change, and the result at each Envoy.
    pub(crate) fn lines(&self) -> (String, Vec<Delivery>) {
        (self.title.clone(), self.results.clone())
    }

    /// The result of all in a line, and whether something failed.
    pub(crate) fn summary(&self) -> (String, bool) {
        let count = |is: fn(&Delivery) -> bool| self.results.iter().filter(|one| is(one)).count();
        let done = count(|one| matches!(one, Delivery::Done(_)));
        let failed = count(|one| matches!(one, Delivery::Failed(_)));
        let of = self.results.len();
        let failures = match failed {
            0 => String::new(),
            failed => format!(", failed at {failed}"),
        };
        let text = format!("done at {done} of {of} Envoys{failures}; 7 shows each");
        (text, failed > 0)
    }
}
