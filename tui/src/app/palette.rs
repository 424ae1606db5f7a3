//! The command palette's search: letters in order; matches that are closer together and earlier rank higher.

use super::command::Binding;
use super::keys;
use super::screen::BROWSE;
use super::state::State;
use loudou_words::num::count;

/// The most letters that a match in a description may skip.
const MOST_SKIPPED: u64 = 24;
/// The most rules and Envoys that are offered.
const MOST_NAMED: usize = 12;
/// The score of a match in the name of a rule or an Envoy: after the names of commands.
const NAMED: u64 = 50;
/// The score of a match in a description: after all names.
const DESCRIBED: u64 = 100;

/// A line of the palette.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Command(&'static Binding),
    /// The buckets of the rule with this name.
    Buckets(String),
    /// The Envoy with this number, and its address.
    Watch(usize, String),
}

impl Found {
    /// Its description.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Command(binding) => binding.help.to_owned(),
            Self::Buckets(rule) => format!("buckets of {rule}"),
            Self::Watch(_, url) => format!("watch {url}"),
        }
    }

    /// The text that finds it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Command(binding) => binding.short.to_owned(),
            named => named.text(),
        }
    }
}

/// The commands, rules and Envoys that match, best first; all commands for no text.
pub(crate) fn search(state: &State, text: &str) -> Vec<Found> {
    let wanted = text.trim().to_lowercase();
    let commands = keys::all().filter(|b| b.places & BROWSE != 0 && keys::is_listed(state, b));
    let mut found: Vec<(u64, Found)> = commands
        .filter_map(|binding| {
            let name = score(&wanted, binding.short);
            let best = name
                .into_iter()
                .chain(within(&wanted, binding.help, DESCRIBED));
            Some((best.min()?, Found::Command(binding)))
        })
        .collect();
    found.extend(named(state, &wanted));
    // The sort is stable: equal scores stay in the order of the table.
    found.sort_by_key(|(score, _)| *score);
    found.into_iter().map(|(_, found)| found).collect()
}

/// The rules, and the Envoys if there are several, that match best.
fn named(state: &State, wanted: &str) -> Vec<(u64, Found)> {
    let rules = state.data.iter().flat_map(|data| &data.rules.rules);
    let rules = rules.map(|rule| (rule.name.as_str(), Found::Buckets(rule.name.clone())));
    let envoys = state.targets.iter().enumerate();
    let envoys = envoys.filter(|_| state.targets.len() > 1);
    let envoys = envoys.map(|(number, target)| {
        let url = target.url.as_str();
        (url, Found::Watch(number, target.url.clone()))
    });
    let mut named: Vec<(u64, Found)> = rules
        .chain(envoys)
        .filter_map(|(name, found)| {
            let whole = within(wanted, &found.text(), NAMED);
            let best = whole.into_iter().chain(within(wanted, name, NAMED));
            Some((best.min()?, found))
        })
        .collect();
    named.sort_by_key(|(score, _)| *score);
    named.truncate(MOST_NAMED);
    named
}

/// The score of a text that ranks after others, whose letters must not be scattered over it.
fn within(wanted: &str, text: &str, rank: u64) -> Option<u64> {
    let score = score(wanted, text).filter(|score| *score < MOST_SKIPPED)?;
    Some(score.saturating_add(rank))
}

/// The score of `text`, lowest is best: the characters skipped before and between the letters.
fn score(wanted: &str, text: &str) -> Option<u64> {
    let mut skipped = 0_u64;
    let mut rest = text.char_indices();
    for letter in wanted.chars() {
        loop {
            let (_, c) = rest.next()?;
            if c.eq_ignore_ascii_case(&letter) {
                break;
            }
            skipped = skipped.saturating_add(1);
        }
    }
    Some(skipped.saturating_add(count(text.len()) / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixture::state;
    use crate::app::targets::TargetSummary;

    fn names(state: &State, text: &str) -> Vec<String> {
        search(state, text).iter().map(Found::name).collect()
    }

    #[test]
    fn finds_by_letters_in_order() {
        let state = State::default();
        let first = |text| names(&state, text).first().cloned();
        assert_eq!(first("undo").as_deref(), Some("undo"));
        assert_eq!(first("drop").as_deref(), Some("drop"));
        assert_eq!(first("unset").as_deref(), Some("drop"));
        assert_eq!(first("frz").as_deref(), Some("freeze"));
        assert_eq!(first("initial").as_deref(), Some("reset"));
        assert_eq!(first("zzzz"), None);
        assert!(search(&state, "").len() > 20);
    }

    #[test]
    fn rules_are_found_by_name() {
        let state = state((80, 24), 1);
        let first = |text| names(&state, text).first().cloned();
        assert_eq!(
            first("search").as_deref(),
            Some("buckets of search-per-key")
        );
        assert_eq!(
            first("rpuser").as_deref(),
            Some("buckets of reply-per-user")
        );
        // Commands go first.
        assert_eq!(first("buckets").as_deref(), Some("buckets"));
        let all = names(&state, "buckets of");
        assert_eq!(
            all.iter()
                .filter(|name| name.starts_with("buckets of "))
                .count(),
            3
        );
    }

    /// Of many, those that match best are offered.
    #[test]
    fn envoys_are_found_by_address_if_there_are_several() {
        let mut state = State::default();
        let target = |last: usize| TargetSummary {
            url: format!("http://10.0.0.{last}:9911"),
            ..TargetSummary::default()
        };
        state.targets = vec![target(7)];
        assert_eq!(names(&state, "watch 10"), [""; 0]);
        state.targets = (0..40).map(target).collect();
        let found = names(&state, "0.39");
        assert_eq!(
            found.first().map(String::as_str),
            Some("watch http://10.0.0.39:9911")
        );
        assert_eq!(names(&state, "watch http").len(), MOST_NAMED);
    }
}
