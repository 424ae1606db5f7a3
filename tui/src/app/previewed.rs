//! Previews the effect of an edit on the buckets that Envoy has reported to the app.

use loudou_rules::config::{parse_edit, parse_rule};
use loudou_rules::rule::{Mode, Override, Rule, tried};

use super::rows::Row;
use super::state::State;
use crate::preview::{Key, name, named, preview};
use loudou_client::change::edit::{Edit, EditTo};
use loudou_words::limit_edit::full_later;
use loudou_words::num::count;
use loudou_words::text::counted;

/// Returns the lines of the preview, or none if the effect of the edit is unknown or there is
/// nothing to preview.
pub(crate) fn lines(state: &State, edit: &Edit) -> Vec<String> {
    of_edit(state, edit).unwrap_or_default()
}

/// Like [`lines`], but first lists the limits whose used-up buckets will take longer to be full
/// again.
pub(crate) fn with_waits(state: &State, edit: &Edit) -> Vec<String> {
    let after = match &edit.to {
        EditTo::Put { body, .. } => body.clone(),
        EditTo::Drop => edit.without(),
    };
    let mut all = full_later(&edit.seen.rule, &after, edit.carry);
    all.extend(lines(state, edit));
    all
}

fn of_edit(state: &State, edit: &Edit) -> Option<Vec<String>> {
    // A trial refuses no requests, so there is nothing to preview.
    if tried(&edit.rule).is_some() {
        return None;
    }
    let before = parse_rule(&edit.seen.rule).ok()?;
    let after = after(edit, &before)?;
    let mut lines = of_keys(state, edit, [&before, &after]).unwrap_or_default();
    lines.extend(bans(state, &before, &after));
    Some(lines)
}

fn of_keys(state: &State, edit: &Edit, [before, after]: [&Rule; 2]) -> Option<Vec<String>> {
    if before.mode == Mode::Off && after.mode == Mode::Enforce {
        let unknown =
            "the rule is off, so it is unknown how often keys come: try shadow mode first";
        return Some(vec![unknown.to_owned()]);
    }
    let rows = &state.data.as_ref()?.rows;
    let seen = rows.iter().filter(|row| row.id.rule == edit.rule);
    let mut keys: Vec<Key<'_>> = seen.filter_map(key).collect();
    let preview = preview(before, after, edit.carry, &mut keys)?;
    let mut lines = preview.lines();
    if state.targets.len() > 1 {
        lines.push("- of the Envoy on the screen alone: at others it may be other keys".to_owned());
    }
    Some(lines)
}

/// Returns the rule as it will be after the edit.
fn after(edit: &Edit, before: &Rule) -> Option<Rule> {
    match &edit.to {
        EditTo::Put { body, .. } => {
            let mut after = before.clone();
            parse_edit(body).ok()?.apply(&mut after);
            Some(after)
        }
        EditTo::Drop => parse_rule(&edit.without()).ok(),
    }
}

/// Describes the bans that become enforced, or are no longer enforced, because the edit changes the
/// rule's mode.
fn bans(state: &State, before: &Rule, after: &Rule) -> Option<String> {
    let (one, many) = match [before, after].map(|rule| rule.mode == Mode::Enforce) {
        [true, false] => ("is no longer enforced", "are no longer enforced"),
        [false, true] => ("becomes enforced", "become enforced"),
        [true, true] | [false, false] => return None,
    };
    let data = state.data.as_ref()?;
    let rows = data.rows.iter();
    let rows = rows.filter(|row| row.id.rule == before.name && row.view.imposed().is_some());
    let overrides = after.overrides.iter();
    let overrides = overrides.filter(|(_, gives)| matches!(gives, Override::Banned));
    let names: Vec<String> = rows
        .map(|row| name(&row.id.key))
        .chain(overrides.map(|(pattern, _)| format!("{} (override)", name(&pattern))))
        .collect();
    let becomes = match names.len() {
        0 => return None,
        1 => one,
        _ => many,
    };
    let least = if data.truncated { "at least " } else { "" };
    let bans = counted(count(names.len()), "ban");
    Some(format!("- {least}{bans} {becomes}: {}", named(&names)))
}

/// Returns the data that the preview needs about a row's key, or `None` if the row's rate is
/// unknown.
fn key(row: &Row) -> Option<Key<'_>> {
    let rates = row.rates?;
    let limits = row.view.limits.iter();
    Some(Key {
        name: &row.id.key,
        used: limits
            .map(|limit| (limit.name.as_str(), limit.used))
            .collect(),
        numbers: &row.view.numbers,
        per_second: rates.admitted + rates.refused + rates.shadow,
        is_banned: row.view.imposed().is_some(),
    })
}
