//! Finds the changes that are missing at an Envoy: changes that it lost in a restart, and changes
//! that are in effect only at other watched Envoys. The key `a` offers to apply the missing
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use loudou_limiter::Nanos;

use super::msg::{Failure, Snapshot};
use super::question::{Action, Pending};
use super::state::{Mode, State};
use loudou_client::live::apply::Done;
use loudou_client::live::ledger::{Lost, Poll};
use loudou_client::live::{Clocks, Id, Item, TimeLeft, counts};
use loudou_words::num::{count, whole_seconds};
use loudou_words::text::{counted, date, humanise};

/// Maximum number of changes that the confirmation question lists.
const NAMED: usize = 8;

/// Records a poll's live changes in the ledger, even while the screen is frozen.
pub(crate) fn note(state: &mut State, snapshot: &Snapshot) {
    let status = &snapshot.status;
    let restarted = state.ledger.poll(&Poll {
        instance: &status.instance,
        started_unix_ms: status.started_unix_ms,
        clocks: Clocks::of(status),
        rules: snapshot.rules.as_ref(),
        events: &snapshot.events,
    });
    let buckets = snapshot.buckets.iter().map(|(_, bucket)| bucket);
    state.ledger.buckets(buckets, !snapshot.truncated);
    let gone = snapshot.gone.iter();
    state
        .ledger
        .gone(gone.map(|id| (id.rule.as_str(), id.key.as_str())));
    if !restarted {
        return;
    }
    // After a restart, Envoy's counters start at 0, and changes made before the restart can no
    // longer be undone.
    state.history.restart();
    state.undos.clear();
    state.unasked = None;
    let lost = state.ledger.lost();
    let line = lost.map(|lost| (lost.line(), lost.items().len() > 0));
    if let Some((line, has_items)) = line {
        state.offers = has_items;
        state.restarted_at = Some(state.now);
        state.toast(true, line);
    }
}

/// How long the restart banner stays visible if no change was lost.
const SHOWN: Nanos = Nanos::from_secs(60);

/// Returns the banner shown after a restart. The banner lists the lost changes until the user
/// applies or dismisses them. Its text is short, so that the offer at its end fits on the screen.
pub(crate) fn banner(state: &State) -> Option<String> {
    let restarted_at = state.restarted_at?;
    let lost = state.ledger.lost()?;
    let at = date(lost.started_unix_ms);
    let at = at.rsplit(' ').next().unwrap_or_default();
    let counts = counts(lost.items());
    if counts.is_empty() {
        let is_new = state.now.since(restarted_at) < SHOWN;
        let text =
            format!("RESTARTED at {at}, buckets and penalties were reset; no changes were lost");
        return is_new.then_some(text);
    }
    let offer = if state.locked().is_some() {
        String::new()
    } else {
        " - a: apply again".to_owned()
    };
    state
        .offers
        .then(|| format!("RESTARTED at {at}, gone: {counts}{offer}"))
}

/// If Envoy restarted at or after `since`, summarizes the lost changes that are still missing for
/// `rule`, or for all rules: `2 bans, 1 edit`.
pub(crate) fn gone_since(state: &State, since: Nanos, rule: Option<&str>) -> Option<String> {
    let lost = state.ledger.lost()?;
    let restarted = state.restarted_at.is_some_and(|at| at >= since);
    let is_of = |item: &&Item| restarted && rule.is_none_or(|rule| item.rule == rule);
    Some(counts(lost.items().filter(is_of))).filter(|counts| !counts.is_empty())
}

/// Message shown when there is no change to apply.
pub(crate) const NOTHING: &str =
    "no changes were lost, and none from other Envoys are missing here";

/// Returns the changes that are missing at this Envoy: changes that it lost in a restart, and
/// changes that are in effect at `others`, for rules that this Envoy has. A change at `others` is
/// skipped if this Envoy already has a change of that kind for the same rule and key. If a missing
/// change has several versions, the most recent one is returned.
pub(crate) fn lacking<'a>(state: &State, others: impl Iterator<Item = &'a State>) -> Vec<Item> {
    let lost = state.ledger.lost();
    let lost = lost.into_iter().flat_map(Lost::items);
    let mut lacking: BTreeMap<Id, Item> = lost.map(|item| (item.id(), item.clone())).collect();
    let own: BTreeSet<Id> = state.ledger.items().map(Item::id).collect();
    let unix_ms = state.unix_ms();
    for item in others.flat_map(|other| other.ledger.items()) {
        let id = item.id();
        let is_over = item.left(unix_ms) == TimeLeft::Nothing;
        if !is_over && !own.contains(&id) && state.rule_read(&item.rule).is_some() {
            let known = lacking.get(&id).and_then(|known| known.made_unix_ms);
            if known.is_none() || known < item.made_unix_ms {
                lacking.insert(id, item.clone());
            }
        }
    }
    lacking.into_values().collect()
}

/// Opens a question that asks whether to apply these changes.
pub(crate) fn ask(state: &mut State, items: Vec<Item>) {
    let lost = state.ledger.lost();
    let lost = lost.filter(|lost| lost.items().len() == items.len());
    let question = match lost {
        Some(lost) => format!("{}. Apply again?", lost.line()),
        None => format!("Missing at this Envoy: {}. Apply?", counts(items.iter())),
    };
    let unix_ms = state.unix_ms();
    // The key `a` may have switched the screen to another Envoy, so the question names the Envoy.
    let place = format!("At {}:", state.settings.url);
    let mut detail: Vec<String> = Some(place)
        .filter(|_| state.targets.len() > 1)
        .into_iter()
        .chain(items.iter().take(NAMED).map(|item| in_short(item, unix_ms)))
        .collect();
    let more = items.len().saturating_sub(NAMED);
    if more > 0 {
        detail.push(format!("and {}", counted(count(more), "more change")));
    }
    state.mode = Mode::Confirm(Box::new(Pending {
        question,
        detail,
        action: Action::Again(items),
        opened: None,
        top: 0,
    }));
}

/// Describes a change briefly: `per-user: ban of mallory, 9m left`.
fn in_short(item: &Item, unix_ms: u64) -> String {
    let left = match item.left(unix_ms) {
        TimeLeft::Endless => String::new(),
        TimeLeft::For(span) => format!(", {} left", humanise(whole_seconds(span.get()).get())),
        TimeLeft::Nothing => ", expired".to_owned(),
    };
    format!("{}: {}{left}", item.rule, item.words())
}

/// Handles the result of applying missing changes.
pub(crate) fn answered(state: &mut State, result: Result<Vec<(Item, Done)>, Failure>) {
    state.link.hurry(state.now);
    // The applied bans may have created buckets, so the bucket searches restart.
    state.searches_anew = true;
    let results = match result {
        Ok(results) => results,
        Err(failure) => {
            state.offers = true;
            return state.toast(true, format!("not applied: {}", failure.text));
        }
    };
    let applied = results
        .iter()
        .filter(|(_, done)| matches!(done, Done::Applied(_)));
    let applied = counts(applied.map(|(item, _)| item));
    let failed = results.iter().filter(|(_, done)| done.is_failure());
    let gone = counts(failed.clone().map(|(item, _)| item));
    let failed: Vec<String> = failed
        .map(|(item, done)| format!("{}: {}: {}", item.rule, item.words(), done.words(false)))
        .collect();
    if !applied.is_empty() {
        state.toast(false, format!("applied: {applied}"));
    } else if failed.is_empty() {
        state.toast(false, "there was nothing left to apply");
    }
    if let Some(first) = failed.first() {
        // The banner stays and lists the changes that are still missing.
        state.offers = true;
        let more = match failed.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        state.toast(
            true,
            format!("still missing: {gone}; {first}{more}; press a to try again"),
        );
    }
}
