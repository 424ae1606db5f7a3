//! What is shown of a change for all Envoys: each result, and a message at the end.

use super::Broadcast;
use crate::app::again;
use crate::app::delivery::Delivery;
use crate::app::state::State;
use loudou_words::text::escape;

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
