//! The effect of an edit that is being made on the buckets that the screen has seen.

use loudou_rules::config::{parse_edit, parse_rule};
use loudou_rules::rule::{Mode, Rule};

use super::rows::Row;
use super::state::State;
use crate::change::edit::{Edit, EditTo};
use crate::preview::{Key, preview};

/// The lines of the preview; none if nothing is known, or nothing to be previewed.
pub(crate) fn lines(state: &State, edit: &Edit) -> Vec<String> {
    of_edit(state, edit).unwrap_or_default()
}

fn of_edit(state: &State, edit: &Edit) -> Option<Vec<String>> {
    let before = parse_rule(&edit.seen.rule).ok()?;
    let after = after(edit, &before)?;
    if before.mode == Mode::Off && after.mode == Mode::Enforce {
        let unknown =
            "the rule is off, so it is unknown how often keys come: try shadow mode first";
        return Some(vec![unknown.to_owned()]);
    }
    let rows = &state.data.as_ref()?.rows;
    let seen = rows.iter().filter(|row| row.id.rule == edit.rule);
    let mut keys: Vec<Key<'_>> = seen.filter_map(key).collect();
    let preview = preview(&before, &after, edit.carry, &mut keys)?;
    Some(preview.lines())
}

/// The rule after an edit.
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

/// A key whose rate is known.
fn key(row: &Row) -> Option<Key<'_>> {
    let rates = row.rates?;
    let limits = row.view.limits.iter();
    Some(Key {
        name: &row.id.key,
        used: limits
            .map(|limit| (limit.name.as_str(), limit.used))
            .collect(),
        per_second: rates.admitted + rates.refused + rates.shadow,
        is_banned: row.view.imposed().is_some(),
    })
}
