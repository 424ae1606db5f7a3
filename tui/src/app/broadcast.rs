//! A change for all Envoys that are watched: sent to each, repeated where an Envoy is away, with a result for each.

use std::collections::BTreeSet;

use loudou_limiter::Nanos;

use super::again;
use super::delivery::Delivery;
use super::effects::Sending;
use super::msg::Failure;
use super::state::State;
use super::undoing::of_broadcast;
use crate::change::Change;
use crate::change::edit::EditTo;
use crate::change::verb::Answer;

mod report;

/// How long a change waits for an Envoy that is away: what was meant for now is not meant for later.
const PATIENCE: Nanos = Nanos::from_secs(600);
/// Why a change is not sent to an Envoy yet.
const BEHIND: &str = "an earlier change of the rule is on its way";
/// Why nothing is undone at an Envoy.
const RESTARTED: &str = "Envoy restarted since, so it is not known what to undo";
/// Why a change is not sent late.
const OVER: &str = "it would have ended by now";
/// Why nothing more is sent of a change that another one took the place of.
const REPLACED: &str = "a later change of the same took its place";

/// A change on its way to all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broadcast {
    /// Its number, which is in each of its parts.
    number: u64,
    sending: Sending,
    /// Where a later change takes its place: there nothing of it is sent any more.
    replaced: BTreeSet<usize>,
    /// The change in a line.
    title: String,
    /// When it was decided.
    begun: Nanos,
    /// The result at each Envoy, by its number.
    results: Vec<Delivery>,
    /// Where it may have been made, although no answer says so.
    in_doubt: BTreeSet<usize>,
    /// Where what this one undoes is in doubt, and when that was decided.
    doubtful: BTreeSet<usize>,
    since: Nanos,
    /// Whether the results of all were reported, and where it was reported to wait and to have failed.
    is_reported: bool,
    reported: [BTreeSet<usize>; 2],
}

impl Broadcast {
    /// A change for all `envoys` or those that are `marked`, and the one that it undoes, if that is still followed.
    pub(crate) fn new(
        number: u64,
        (mut sending, undone): (Sending, Option<&Self>),
        (envoys, marked): (usize, &BTreeSet<usize>),
        now: Nanos,
    ) -> Self {
        // The command line names rule, key and values, and can be run again.
        let verb = sending.change.verb();
        let title = verb.command(None).unwrap_or_else(|| verb.question().title);
        sending.broadcast = Some(number);
        let is_asked = |number: usize| marked.is_empty() || marked.contains(&number);
        let results = (0..envoys).map(|number| {
            if is_asked(number) {
                Delivery::Waits("not connected".to_owned())
            } else {
                Delivery::NotAsked
            }
        });
        Self {
            number,
            replaced: BTreeSet::new(),
            results: results.collect(),
            title,
            begun: now,
            in_doubt: BTreeSet::new(),
            doubtful: undone.map(Self::doubtful).unwrap_or_default(),
            since: undone.map_or(Nanos::ZERO, |undone| undone.begun),
            is_reported: false,
            reported: [BTreeSet::new(), BTreeSet::new()],
            sending,
        }
    }

    /// Begins with the Envoy `at` that it was decided for. What to send to which.
    pub(crate) fn begin(
        &mut self,
        at: usize,
        states: &[State],
        earlier: &[Self],
    ) -> Vec<(usize, Sending)> {
        let mut sent = Vec::new();
        for (number, state) in states.iter().enumerate() {
            if !self.waits(number) {
                continue;
            }
            if earlier.iter().any(|earlier| earlier.precedes(self, number)) {
                self.set(number, Delivery::Waits(BEHIND.to_owned()));
            } else if number == at {
                self.set(number, Delivery::Sending);
                sent.push((number, self.sending.clone()));
            } else if !self.has_nothing_to_undo(number, state) && state.link.up == Some(true) {
                sent.extend(self.send(number, state));
            }
        }
        sent
    }

    /// Whether it is sent to an Envoy later.
    pub(crate) fn waits(&self, number: usize) -> bool {
        matches!(self.results.get(number), Some(Delivery::Waits(_)))
    }

    /// The change, as it was decided.
    pub(crate) const fn sending(&self) -> &Sending {
        &self.sending
    }

    /// How it fares at an Envoy, in words.
    pub(crate) fn fate(&self, number: usize) -> String {
        let result = self.results.get(number);
        result.map(Delivery::words).unwrap_or_default()
    }

    /// Whether it is on its way to an Envoy.
    pub(crate) fn is_sending(&self, number: usize) -> bool {
        self.results.get(number) == Some(&Delivery::Sending)
    }

    /// Whether a later change for all has to wait for this one at an Envoy: an edit is made on top of the edits and
    /// overrides of the rule before it, and an override on top of the edits.
    pub(crate) fn precedes(&self, later: &Self, number: usize) -> bool {
        let (own, theirs) = (&self.sending.change, &later.sending.change);
        let on_top = matches!(
            (own, theirs),
            (Change::Edit(_) | Change::Override(_), Change::Edit(_))
                | (Change::Edit(_), Change::Override(_))
        );
        let is_open = self.waits(number) || self.is_sending(number);
        is_open && on_top && own.verb().rule() == theirs.verb().rule()
    }

    fn set(&mut self, number: usize, outcome: Delivery) {
        if let Some(place) = self.results.get_mut(number) {
            *place = outcome;
        }
    }

    /// Whether this undoes a change that had no effect at an Envoy: then it is over there.
    fn has_nothing_to_undo(&mut self, number: usize, state: &State) -> bool {
        let Some(undoes) = self.sending.undoes else {
            return false;
        };
        // What was lost in a restart may have been applied again, and what was in doubt is of another process.
        let restarted = state.restarted_at.is_some_and(|at| at >= self.since);
        let is_doubtful = self.doubtful.contains(&number) && !restarted;
        let has_nothing = !is_doubtful && of_broadcast(state, undoes).is_none();
        match (has_nothing, restarted) {
            (true, false) => self.set(number, Delivery::Done("nothing to undo".to_owned())),
            (true, true) => self.set(number, Delivery::Failed(RESTARTED.to_owned())),
            (false, _) => {}
        }
        has_nothing
    }

    /// Where it may have been made, although no answer says so.
    fn doubtful(&self) -> BTreeSet<usize> {
        let results = self.results.iter().enumerate();
        let sending = results.filter(|(_, result)| **result == Delivery::Sending);
        let sending = sending.map(|(number, _)| number);
        self.in_doubt.iter().copied().chain(sending).collect()
    }

    /// The change for one Envoy, as its rule is there; an undo of what was made there.
    fn send(&mut self, number: usize, state: &State) -> Option<(usize, Sending)> {
        if self.has_nothing_to_undo(number, state) {
            return None;
        }
        let undoes = self.sending.undoes;
        if let Some(change) = undoes.and_then(|undoes| of_broadcast(state, undoes)) {
            self.set(number, Delivery::Sending);
            let sending = self.sending.clone();
            return Some((number, Sending { change, ..sending }));
        }
        let name = self.sending.change.verb().rule().to_owned();
        let Some(rule) = state.rule_read(&name) else {
            self.set(number, Delivery::Failed(format!("there is no rule {name}")));
            return None;
        };
        // This was decided on the rule with its changes. Made on what is left, it would be reported as done, although
        // the Envoys differ.
        if let Some(gone) = again::gone_since(state, self.begun, Some(&name)) {
            let why = format!(
                "restarted, a applies again what it lost, then repeat this: {gone} of {name}"
            );
            self.set(number, Delivery::Failed(why));
            return None;
        }
        // In whole seconds, which are shown.
        let waited = Nanos::from_secs(state.now.since(self.begun).as_millis() / 1_000);
        let now_ns = state.polled_ns();
        let change = self.sending.change.at_another(rule.clone(), now_ns);
        match change.and_then(|change| change.later(waited).ok_or_else(|| OVER.to_owned())) {
            Ok(change) => {
                self.set(number, Delivery::Sending);
                let sending = self.sending.clone();
                Some((number, Sending { change, ..sending }))
            }
            Err(why) => {
                self.set(number, Delivery::Failed(why));
                None
            }
        }
    }

    /// An Envoy answered a poll: what waits for it is sent again.
    pub(crate) fn is_back(&mut self, number: usize, state: &State) -> Option<(usize, Sending)> {
        self.waits(number).then(|| self.send(number, state))?
    }

    /// Whether it is the change for all of this number.
    pub(crate) const fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Whether a later change for all takes the place of this one: its undo, and any that is about the same. An edit
    /// leaves what another one changed, so that only the drop of all edits does.
    pub(crate) fn gives_way_to(&self, later: &Self) -> bool {
        if let Some(undoes) = later.sending.undoes {
            return self.number == undoes;
        }
        let adds = match &later.sending.change {
            Change::Edit(edit) => matches!(edit.to, EditTo::Put { .. }),
            Change::Override(_) | Change::Ban(_) | Change::Reset(_) => false,
        };
        let kind = |broadcast: &Self| std::mem::discriminant(&broadcast.sending.change);
        let (own, theirs) = (self.sending.change.verb(), later.sending.change.verb());
        !adds
            && kind(self) == kind(later)
            && own.rule() == theirs.rule()
            && own.key() == theirs.key()
    }

    /// A later change takes its place where that is for: sent after that one, this one would undo it.
    pub(crate) fn replace(&mut self, later: &Self) {
        for (number, (result, theirs)) in self.results.iter_mut().zip(&later.results).enumerate() {
            if *theirs == Delivery::NotAsked {
                continue;
            }
            self.replaced.insert(number);
            if matches!(result, Delivery::Waits(_)) {
                *result = Delivery::Failed(REPLACED.to_owned());
            }
        }
        // The user knows: the later one was asked for.
        self.is_reported |= self.is_over();
    }

    /// There was no room for its part for an Envoy: that waits for the next poll.
    pub(crate) fn has_no_room(&mut self, number: usize, sending: &Sending) {
        let failure = Failure {
            text: "earlier requests are still in progress".to_owned(),
            ..Failure::default()
        };
        self.answered(number, sending, &Err(failure));
    }

    /// An Envoy answered a change.
    pub(crate) fn answered(
        &mut self,
        number: usize,
        sending: &Sending,
        result: &Result<Answer, Failure>,
    ) {
        let is_it = sending.broadcast == Some(self.number);
        if !is_it || self.results.get(number) != Some(&Delivery::Sending) {
            return;
        }
        match result {
            Err(failure) if failure.problem.is_none() && failure.in_doubt => {
                self.in_doubt.insert(number);
            }
            // What was sent before an answer was seen by then.
            Ok(_) => {
                self.in_doubt.remove(&number);
            }
            Err(_) => {}
        }
        let outcome = match result {
            Ok(answer) => Delivery::Done(sending.change.verb().outcome(answer).toast),
            // It is away, or its answer was lost. The same change twice is as good as once, but for a reset.
            Err(failure) if failure.problem.is_none() && !self.is_lost(failure) => {
                if self.replaced.contains(&number) {
                    Delivery::Failed(REPLACED.to_owned())
                } else {
                    Delivery::Waits(failure.text.clone())
                }
            }
            Err(failure) if self.in_doubt.contains(&number) => {
                let text = &failure.text;
                Delivery::Failed(format!(
                    "{text}; an earlier request, which was not answered, may have done it"
                ))
            }
            Err(failure) => Delivery::Failed(failure.text.clone()),
        };
        self.set(number, outcome);
    }

    /// Whether a change may have been made, and must not be made again.
    const fn is_lost(&self, failure: &Failure) -> bool {
        failure.in_doubt && matches!(self.sending.change, Change::Reset(_))
    }

    /// Gives up those that are away for too long.
    pub(crate) fn expire(&mut self, now: Nanos) {
        if now < self.begun.saturating_add(PATIENCE) {
            return;
        }
        for result in &mut self.results {
            if let Delivery::Waits(why) = result {
                *result = Delivery::Failed(format!("away for {PATIENCE}: {why}"));
            }
        }
    }

    /// Whether all results are in.
    pub(crate) fn is_over(&self) -> bool {
        let mut results = self.results.iter();
        results.all(|result| !matches!(result, Delivery::Sending | Delivery::Waits(_)))
    }
}
