//! Sends a change to all watched Envoys. Each connected Envoy receives the change once, and the
//! result is tracked for each Envoy.
//!
//! If the change fails at an Envoy, the user can repeat it, or press `a`, which offers to apply
//! changes that are in effect at other Envoys but missing at this one.

use std::collections::BTreeSet;

use loudou_client::ClientError;
use loudou_client::change::Change;
use loudou_client::change::verb::Answer;
use loudou_limiter::Nanos;
use loudou_words::text::escape;

use super::again;
use super::effects::Sending;
use super::msg::Failure;
use super::state::State;
use super::undoing::of_broadcast;

/// Reason why a change is not sent to an Envoy.
const AWAY: &str = "not connected";
const BEHIND: &str = "an earlier change of this rule is pending; repeat this one afterwards";
/// Reason why nothing is undone at an Envoy.
const RESTARTED: &str = "Envoy restarted since, so it is not known what to undo";

/// A change that is being sent to all watched Envoys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broadcast {
    /// Number of this broadcast, which is also stored in the change sent to each Envoy.
    number: u64,
    sending: Sending,
    /// One-line description of the change.
    title: String,
    /// Time at which the user confirmed the change.
    begun: Nanos,
    /// Result for each Envoy, indexed by the Envoy's number.
    results: Vec<Delivery>,
    /// Envoys at which the change may have been made although no answer confirms it.
    in_doubt: BTreeSet<usize>,
    /// If this change is an undo: the Envoys at which the undone change is in doubt. `since` is the
    /// time at which the undone change was confirmed.
    doubtful: BTreeSet<usize>,
    since: Nanos,
    /// True once the results of all Envoys have been reported to the user.
    is_reported: bool,
}

impl Broadcast {
    /// Creates a broadcast to the `marked` Envoys, or to all `envoys` if none is marked. `undone`
    /// is the broadcast that the new one undoes, if that broadcast is still known.
    pub(crate) fn new(
        number: u64,
        (mut sending, undone): (Sending, Option<&Self>),
        (envoys, marked): (usize, &BTreeSet<usize>),
        now: Nanos,
    ) -> Self {
        // The title is the equivalent command line, because it names the rule, the key and the
        // values, and the user can run it again.
        let verb = sending.change.verb();
        let title = verb.command(None).unwrap_or_else(|| verb.question().title);
        sending.broadcast = Some(number);
        let is_asked = |number: usize| marked.is_empty() || marked.contains(&number);
        let results = (0..envoys).map(|number| {
            if is_asked(number) {
                Delivery::Failed(AWAY.to_owned())
            } else {
                Delivery::NotAsked
            }
        });
        Self {
            number,
            results: results.collect(),
            title,
            begun: now,
            in_doubt: BTreeSet::new(),
            doubtful: undone.map(Self::doubtful).unwrap_or_default(),
            since: undone.map_or(Nanos::ZERO, |undone| undone.begun),
            is_reported: false,
            sending,
        }
    }

    /// Starts sending. Returns the changes to send now, each with the number of its Envoy. The
    /// change is sent to the Envoy `at`, where the user confirmed it, even if that Envoy is not
    /// connected.
    pub(crate) fn begin(
        &mut self,
        at: usize,
        states: &[State],
        earlier: &[Self],
    ) -> Vec<(usize, Sending)> {
        let mut sent = Vec::new();
        for (number, state) in states.iter().enumerate() {
            if self.results.get(number) == Some(&Delivery::NotAsked) {
                continue;
            }
            if earlier.iter().any(|earlier| earlier.precedes(self, number)) {
                self.set(number, Delivery::Failed(BEHIND.to_owned()));
            } else if number == at {
                self.set(number, Delivery::Sending);
                sent.push((number, self.sending.clone()));
            } else if !self.has_nothing_to_undo(number, state) && state.link.up == Some(true) {
                sent.extend(self.send(number, state));
            }
        }
        sent
    }

    /// Returns the reason why the change was not sent to an Envoy, or why it failed there.
    pub(crate) fn failure(&self, number: usize) -> Option<&str> {
        match self.results.get(number)? {
            Delivery::Failed(why) => Some(why),
            Delivery::NotAsked | Delivery::Sending | Delivery::Done(_) => None,
        }
    }

    /// Returns the change as the user confirmed it.
    pub(crate) const fn sending(&self) -> &Sending {
        &self.sending
    }

    /// Describes the result at an Envoy.
    pub(crate) fn outcome(&self, number: usize) -> String {
        let result = self.results.get(number);
        result.map(Delivery::words).unwrap_or_default()
    }

    /// Returns true if the change was sent to an Envoy and not yet answered.
    pub(crate) fn is_sending(&self, number: usize) -> bool {
        self.results.get(number) == Some(&Delivery::Sending)
    }

    /// Returns true if `later` must not be sent to an Envoy until that Envoy has answered this
    /// change. An edit builds on the earlier edits and overrides of its rule, and an override
    /// builds on the earlier edits.
    fn precedes(&self, later: &Self, number: usize) -> bool {
        let (own, theirs) = (&self.sending.change, &later.sending.change);
        let on_top = matches!(
            (own, theirs),
            (Change::Edit(_) | Change::Override(_), Change::Edit(_))
                | (Change::Edit(_), Change::Override(_))
        );
        self.is_sending(number) && on_top && own.verb().rule() == theirs.verb().rule()
    }

    fn set(&mut self, number: usize, outcome: Delivery) {
        if let Some(place) = self.results.get_mut(number) {
            *place = outcome;
        }
    }

    /// Returns true if this change is an undo and there is nothing to undo at an Envoy. If so,
    /// records this as the result at that Envoy.
    fn has_nothing_to_undo(&mut self, number: usize, state: &State) -> bool {
        let Some(undoes) = self.sending.undoes else {
            return false;
        };
        // After a restart, it is unknown what to undo: lost changes may have been applied again,
        // and a change in doubt was sent to the previous process.
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

    /// Returns the Envoys at which the change may have been made although no answer confirms it.
    fn doubtful(&self) -> BTreeSet<usize> {
        let results = self.results.iter().enumerate();
        let sending = results.filter(|(_, result)| **result == Delivery::Sending);
        let sending = sending.map(|(number, _)| number);
        self.in_doubt.iter().copied().chain(sending).collect()
    }

    /// Returns the change to send to one Envoy, based on that Envoy's version of the rule. An undo
    /// reverts the change that was made at that Envoy.
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
        let (rules, now_ns) = (state.rules_read(), state.polled_ns());
        match self.sending.change.at_another(rules, now_ns) {
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

    /// Returns true if this broadcast has the given number.
    pub(crate) const fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// Records that the change was not sent to an Envoy because the request queue for that Envoy
    /// was full.
    pub(crate) fn has_no_room(&mut self, number: usize, sending: &Sending) {
        let failure = Failure {
            text: "earlier requests are still in progress".to_owned(),
            ..Failure::default()
        };
        self.answered(number, sending, &Err(failure));
    }

    /// Records an Envoy's answer.
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
        let outcome = match result {
            Ok(answer) => {
                let text = sending.change.verb().outcome(answer).toast;
                if answer.failures().any(ClientError::is_in_doubt) {
                    self.in_doubt.insert(number);
                }
                match answer.failures().next() {
                    Some(_) => Delivery::Failed(text),
                    None => Delivery::Done(text),
                }
            }
            Err(failure) => {
                let text = &failure.text;
                if failure.problem.is_none() && failure.in_doubt {
                    self.in_doubt.insert(number);
                    Delivery::Failed(format!("{text}; it may be in force"))
                } else {
                    Delivery::Failed(text.clone())
                }
            }
        };
        self.set(number, outcome);
    }

    /// Returns true if all results have arrived.
    pub(crate) fn is_over(&self) -> bool {
        let mut results = self.results.iter();
        results.all(|result| *result != Delivery::Sending)
    }
}

// Display of a broadcast: the result at each Envoy, and a summary at the end.

/// Maximum number of Envoys that a message names.
const NAMED: usize = 2;

impl Broadcast {
    /// Returns the title of the change and the result at each Envoy.
    pub(crate) fn lines(&self) -> (String, Vec<Delivery>) {
        (self.title.clone(), self.results.clone())
    }

    /// Lists the Envoys at which the change may not be in effect, for the message that is printed
    /// when the app exits.
    pub(crate) fn unfinished(&self, states: &[State]) -> Vec<String> {
        let results = self.results.iter().zip(states);
        let open = results.filter_map(|(result, state)| {
            let outcome = match result {
                Delivery::Sending => "was sent, but not answered".to_owned(),
                // The screen reports failures only when all results have arrived, so the user has
                // not seen this failure yet.
                Delivery::Failed(why) if !self.is_over() => format!("failed: {why}"),
                Delivery::NotAsked | Delivery::Done(_) | Delivery::Failed(_) => return None,
            };
            let (title, url) = (escape(&self.title), escape(&state.settings.url));
            Some(format!("{title} {outcome}, at {url}"))
        });
        open.collect()
    }

    /// Once all Envoys have answered, returns a one-line summary, and true if the change failed or
    /// was lost at any of them. Later calls return `None`.
    pub(crate) fn news(&mut self, states: &[State]) -> Option<(String, bool)> {
        if self.is_reported || !self.is_over() {
            return None;
        }
        self.is_reported = true;
        Some(self.summary(states))
    }

    /// Returns `, FAILED at …` if the change failed at any Envoy.
    fn failures(&self, states: &[State]) -> String {
        let failed = self.at(states, |result| matches!(result, Delivery::Failed(_)));
        match failed.len() {
            0 => String::new(),
            _ => format!(", FAILED at {}", names(&failed)),
        }
    }

    fn summary(&self, states: &[State]) -> (String, bool) {
        let done = self.at(states, |result| matches!(result, Delivery::Done(_)));
        let of = self.at(states, |result| *result != Delivery::NotAsked);
        let failures = self.failures(states);
        let losses: String = of
            .iter()
            .filter_map(|state| {
                let gone = again::gone_since(state, self.begun, None)?;
                Some(format!(
                    "; {} restarted and lost {gone}",
                    state.settings.url
                ))
            })
            .collect();
        let is_bad = !failures.is_empty() || !losses.is_empty();
        let (done, of) = (done.len(), of.len());
        let offer = if is_bad {
            ", a offers what one lacks"
        } else {
            ""
        };
        let text = format!("done at {done} of {of} Envoys{failures}{losses}; 7 shows each{offer}");
        (text, is_bad)
    }

    /// Returns the Envoys whose result satisfies the predicate `is`.
    fn at<'a>(&self, states: &'a [State], is: fn(&Delivery) -> bool) -> Vec<&'a State> {
        let results = self.results.iter().zip(states);
        let found = results.filter(|(result, _)| is(result));
        found.map(|(_, state)| state).collect()
    }
}

/// Lists the first Envoys, and the number of further ones: `http://10.0.0.7:9911,
/// http://10.0.0.8:9911 and 3 more`.
fn names(states: &[&State]) -> String {
    let urls = states.iter().map(|state| state.settings.url.as_str());
    let urls: Vec<&str> = urls.take(NAMED).collect();
    let more = match states.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", urls.join(", "))
}

// Result of a broadcast at one Envoy.

/// Result of a broadcast at one Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The change is not sent to this Envoy because the user has not marked it.
    NotAsked,
    Sending,
    Done(String),
    Failed(String),
}

impl Delivery {
    /// Describes the result.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::NotAsked => "not asked".to_owned(),
            Self::Sending => "sending".to_owned(),
            Self::Done(text) => format!("done: {text}"),
            Self::Failed(why) => format!("FAILED: {why}"),
        }
    }
}
