//! A change for all Envoys that are watched: sent once to each that is connected, with a result for each.
//!
//! Where it fails, the user repeats it, or has `a` offer what an Envoy lacks of the changes that are live at the others.

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

/// Why a change is not sent to an Envoy.
const AWAY: &str = "not connected";
const BEHIND: &str = "an earlier change of the rule is on its way; repeat this one then";
/// Why nothing is undone at an Envoy.
const RESTARTED: &str = "Envoy restarted since, so it is not known what to undo";

/// A change on its way to all.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broadcast {
    /// Its number, which is in each of its parts.
    number: u64,
    sending: Sending,
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
    /// Whether the results of all were reported.
    is_reported: bool,
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

    /// Sends it: also to the Envoy `at` that it was decided for, connected or not. What to send to which.
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

    /// Why it is not sent to an Envoy, or was not made there.
    pub(crate) fn failure(&self, number: usize) -> Option<&str> {
        match self.results.get(number)? {
            Delivery::Failed(why) => Some(why),
            Delivery::NotAsked | Delivery::Sending | Delivery::Done(_) => None,
        }
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

    /// Whether a later change for all cannot be sent to an Envoy before this one is answered there: an edit is made on top
    /// of the edits and overrides of the rule before it, and an override on top of the edits.
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

    /// Whether it is the change for all of this number.
    pub(crate) const fn is_number(&self, number: u64) -> bool {
        self.number == number
    }

    /// There was no room for its part for an Envoy.
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

    /// Whether all results are in.
    pub(crate) fn is_over(&self) -> bool {
        let mut results = self.results.iter();
        results.all(|result| *result != Delivery::Sending)
    }
}

// What is shown of a change for all Envoys: each result, and a message at the end.

/// The most Envoys that a message names.
const NAMED: usize = 2;

impl Broadcast {
    /// The change, and the result at each Envoy.
    pub(crate) fn lines(&self) -> (String, Vec<Delivery>) {
        (self.title.clone(), self.results.clone())
    }

    /// Where it is not known to be in force, in words, if the app ends now.
    pub(crate) fn unfinished(&self, states: &[State]) -> Vec<String> {
        let results = self.results.iter().zip(states);
        let open = results.filter_map(|(result, state)| {
            let fate = match result {
                Delivery::Sending => "was sent, but not answered".to_owned(),
                // The result of all was not reported.
                Delivery::Failed(why) if !self.is_over() => format!("failed: {why}"),
                Delivery::NotAsked | Delivery::Done(_) | Delivery::Failed(_) => return None,
            };
            let (title, url) = (escape(&self.title), escape(&state.settings.url));
            Some(format!("{title} {fate}, at {url}"))
        });
        open.collect()
    }

    /// The result of all in a line, and whether that is bad, once.
    pub(crate) fn news(&mut self, states: &[State]) -> Option<(String, bool)> {
        if self.is_reported || !self.is_over() {
            return None;
        }
        self.is_reported = true;
        Some(self.summary(states))
    }

    /// `, FAILED at …`, if it failed anywhere.
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

    /// The Envoys with such a result.
    fn at<'a>(&self, states: &'a [State], is: fn(&Delivery) -> bool) -> Vec<&'a State> {
        let results = self.results.iter().zip(states);
        let found = results.filter(|(result, _)| is(result));
        found.map(|(_, state)| state).collect()
    }
}

/// The first of these Envoys: `http://10.0.0.7:9911, http://10.0.0.8:9911 and 3 more`.
fn names(states: &[&State]) -> String {
    let urls = states.iter().map(|state| state.settings.url.as_str());
    let urls: Vec<&str> = urls.take(NAMED).collect();
    let more = match states.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", urls.join(", "))
}

// The result of a change for all Envoys, or for those that are marked, at one of them.

/// How a change fares at one Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The change is not for this one.
    NotAsked,
    Sending,
    Done(String),
    Failed(String),
}

impl Delivery {
    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::NotAsked => "not asked".to_owned(),
            Self::Sending => "sending".to_owned(),
            Self::Done(text) => format!("done: {text}"),
            Self::Failed(why) => format!("FAILED: {why}"),
        }
    }
}
