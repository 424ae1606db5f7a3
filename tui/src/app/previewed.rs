//! The effect of an edit that is being made on the buckets that the screen has seen.

use loudou_rules::config::{parse_edit, parse_rule};
use loudou_rules::rule::{Cost, Mode};

use super::form::Form;
use super::rows::Row;
use super::state::State;
use crate::preview::{Key, Side, preview};

/// The lines of the preview; none if nothing is known, or nothing to be previewed.
pub(crate) fn lines(state: &State, form: &Form) -> Vec<String> {
    of_edit(state, form).unwrap_or_default()
}

fn of_edit(state: &State, form: &Form) -> Option<Vec<String>> {
    let before = parse_rule(&form.base.rule).ok()?;
    let after = parse_edit(&form.body()).ok()?;
    let rows = &state.data.as_ref()?.rows;
    let seen = rows.iter().filter(|row| row.id.rule == form.base.name);
    // Keys with an override have limits of their own.
    let mut keys: Vec<Key<'_>> = seen
        .filter(|row| row.view.own.is_none())
        .filter_map(key)
        .collect();
    let side = |limits, mode| Side {
        limits,
        is_enforced: mode == Mode::Enforce,
    };
    let limits = after.limits.as_ref().unwrap_or(&before.limits);
    let cost = match before.cost {
        Cost::Fixed(cost) => cost,
        Cost::Header { .. } | Cost::RequestBytes(_) => 1,
    };
    let after = side(limits, after.mode.unwrap_or(before.mode));
    let before = side(&before.limits, before.mode);
    let preview = preview(before, after, (form.carry(), cost.into()), &mut keys)?;
    Some(preview.lines())
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
    })
}
