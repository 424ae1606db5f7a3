//! The command palette's search. It finds commands, rules, Envoys and keys whose names contain the
//! typed letters in order, and ranks matches at the starts of words first. Text that begins with a
//! verb finds an action on a key: `ban bob`.

use super::command::{Binding, Command};
use super::keys;
use super::rows::BucketName;
use super::screen::BROWSE;
use super::state::State;
use loudou_words::num::count;

/// Score from which a match in the name of a rule, an Envoy or a key is ignored, because its
/// letters are too scattered.
const MAX_SKIPPED: u64 = 24;
/// Maximum number of rules and Envoys in the results, and maximum number of keys.
const MAX_NAMED: usize = 12;
const MAX_KEYS: usize = 8;
/// Score added to a match in the name of a rule, an Envoy or a key, so that it ranks after the
/// names of commands.
const NAMED: u64 = 50;
/// Score of a match in a description, which ranks after all names.
const DESCRIBED: u64 = 100;
/// Score of the filter entry, which is offered for any text.
const ANY: u64 = 1_000;
/// Score added to a match whose letters are not together at the start of a word.
const SCATTERED: u64 = 8;

/// Subcommands of `loudou` that have no key in the app.
const COMMAND_LINES: [(&str, &str); 4] = [
    ("export", "loudou export"),
    ("import", "loudou import FILE"),
    ("replay", "loudou replay --config FILE --trace FILE"),
    ("check", "loudou check FILE"),
];

/// A line of the palette.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    Command(&'static Binding),
    /// The buckets of the rule with this name.
    Buckets(String),
    /// The Envoy with this number, and its address.
    Watch(usize, String),
    /// A command to run for a bucket, and the bucket's name.
    Act(&'static Binding, BucketName),
    /// The buckets that pass this filter.
    Filter(String),
    /// A command line to copy.
    CommandLine(&'static str, &'static str),
}

impl Found {
    /// Returns the description of the line.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Command(binding) => binding.help.to_owned(),
            Self::Buckets(rule) => format!("buckets of {rule}"),
            Self::Watch(_, url) => format!("watch {url}"),
            Self::Act(binding, id) => format!("{} {} in {}", binding.short, id.key, id.rule),
            Self::Filter(text) => format!("filter by {text}"),
            Self::CommandLine(_, line) => format!("copy the command line: {line}"),
        }
    }

    /// Returns the name of the line, to which Tab completes the typed text.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Command(binding) => binding.short.to_owned(),
            Self::Act(binding, id) => format!("{} {}", binding.short, id.key),
            Self::Filter(text) => text.clone(),
            Self::CommandLine(name, _) => (*name).to_owned(),
            named => named.text(),
        }
    }
}

/// Returns the matching commands, rules, Envoys and keys, best first. An empty text matches all
/// commands.
pub(crate) fn search(state: &State, text: &str) -> Vec<Found> {
    let wanted = text.trim().to_lowercase();
    let commands = keys::all().filter(|b| b.places & BROWSE != 0 && keys::is_listed(state, b));
    let mut seen = Vec::new();
    let mut found: Vec<(u64, Found)> = commands
        // A command with bindings on several screens is listed only once.
        .filter(|binding| {
            let is_new = !seen.contains(&binding.help);
            seen.push(binding.help);
            is_new
        })
        .filter_map(|binding| {
            let name = score(&wanted, binding.short);
            // Descriptions are sentences, in which scattered letters would match almost anything.
            // Therefore, a description must contain the whole typed text.
            let described = binding.help.to_lowercase().contains(&wanted);
            let best = name.or_else(|| described.then_some(DESCRIBED))?;
            Some((best, Found::Command(binding)))
        })
        .collect();
    found.extend(named(state, &wanted));
    if !wanted.is_empty() {
        found.extend(of_keys(state, text.trim()));
        found.extend(COMMAND_LINES.iter().filter_map(|(name, line)| {
            let is_it = name.starts_with(&wanted);
            is_it.then_some((SCATTERED, Found::CommandLine(name, line)))
        }));
        found.push((ANY, Found::Filter(text.trim().to_owned())));
    }
    // The sort is stable, so equal scores keep the order of the key table.
    found.sort_by_key(|(score, _)| *score);
    found.into_iter().map(|(_, found)| found).collect()
}

/// Returns the lines for the matching keys. If the text begins with a verb, the lines offer that
/// action, otherwise they offer to open the keys.
fn of_keys(state: &State, text: &str) -> Vec<(u64, Found)> {
    if state.hides_keys {
        return Vec::new();
    }
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let verb = keys::all().find(|binding| {
        let acts = matches!(binding.command, Command::Start(_) | Command::Open);
        acts && !rest.is_empty() && binding.short.eq_ignore_ascii_case(first)
    });
    let open = keys::all().find(|binding| binding.command == Command::Open);
    let wanted = if verb.is_some() { rest.trim() } else { text }.to_lowercase();
    let Some(binding) = verb.or(open) else {
        return Vec::new();
    };
    // Text that begins with a verb names a key, so keys rank first.
    let rank = if verb.is_some() { 0 } else { NAMED };
    let rows = state.data.iter().flat_map(|data| &data.rows);
    let mut found: Vec<(u64, Found)> = rows
        .filter_map(|row| {
            let score = within(&wanted, &row.id.key, rank)?;
            Some((score, Found::Act(binding, row.id.clone())))
        })
        .collect();
    found.sort_by_key(|(score, _)| *score);
    found.truncate(MAX_KEYS);
    found
}

/// Returns the rules that match best and, if several Envoys are watched, the Envoys that match
/// best.
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
    named.truncate(MAX_NAMED);
    named
}

/// Returns the score of `text` plus `rank`, or `None` if `text` does not match or its matching
/// letters are too scattered.
fn within(wanted: &str, text: &str, rank: u64) -> Option<u64> {
    let score = score(wanted, text).filter(|score| *score < MAX_SKIPPED)?;
    Some(score.saturating_add(rank))
}

/// Returns the score of `text`, where lower scores are better, or `None` if `text` does not match.
/// The score is mainly the number of characters skipped before and between the letters. A text that
/// contains the letters together at the start of a word ranks before texts with scattered letters.
fn score(wanted: &str, text: &str) -> Option<u64> {
    let lower = text.to_lowercase();
    let length = count(text.len()) / 8;
    let mut starts = lower.match_indices(wanted).filter(|(at, _)| {
        let before = lower
            .get(..*at)
            .and_then(|before| before.chars().next_back());
        before.is_none_or(|before| !before.is_alphanumeric())
    });
    if let Some((at, _)) = starts.next() {
        let word = u64::from(at > 0);
        return Some(word.saturating_add(length));
    }
    let mut skipped = SCATTERED;
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
    Some(skipped.saturating_add(length))
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
        // A text that matches nothing else is offered as a filter.
        assert_eq!(first("zzzz").as_deref(), Some("zzzz"));
        assert_eq!(first("expo").as_deref(), Some("export"));
        assert_eq!(first("fre").as_deref(), Some("freeze"));
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
        // Commands come first.
        assert_eq!(first("buckets").as_deref(), Some("buckets"));
        let all = names(&state, "buckets of");
        assert_eq!(
            all.iter()
                .filter(|name| name.starts_with("buckets of "))
                .count(),
            3
        );
    }

    /// Typing a verb and the beginning of a key finds that action on the key.
    #[test]
    fn keys_are_found_with_and_without_a_verb() {
        let mut state = state((80, 24), 1);
        let first = |state: &State, text: &str| names(state, text).first().cloned();
        assert_eq!(first(&state, "ban mal").as_deref(), Some("ban mallory"));
        assert_eq!(
            first(&state, "override BO").as_deref(),
            Some("override bob")
        );
        assert_eq!(first(&state, "mallory").as_deref(), Some("open mallory"));
        assert_eq!(first(&state, "key-17").as_deref(), Some("open key-17"));
        // If many keys match, only the best are offered. No key is offered while keys are hidden.
        let found = names(&state, "reset key").into_iter();
        assert_eq!(
            found.filter(|name| name.starts_with("reset key-")).count(),
            MAX_KEYS
        );
        state.hides_keys = true;
        assert_eq!(names(&state, "ban mal"), ["ban mal"]);
    }

    /// If many Envoys match, only the best are offered.
    #[test]
    fn envoys_are_found_by_address_if_there_are_several() {
        let mut state = State::default();
        let target = |last: usize| TargetSummary {
            url: format!("http://10.0.0.{last}:9911"),
            ..TargetSummary::default()
        };
        state.targets = vec![target(7)];
        assert_eq!(names(&state, "watch 10"), ["watch 10"]);
        state.targets = (0..40).map(target).collect();
        let found = names(&state, "0.39");
        assert_eq!(
            found.first().map(String::as_str),
            Some("watch http://10.0.0.39:9911")
        );
        assert_eq!(names(&state, "watch http").len(), MAX_NAMED + 1);
    }
}
