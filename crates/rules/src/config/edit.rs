//! Reads edits, which replace parts of a rule. After an edit, [`misfits`] finds the overrides that
//! no longer fit the rule's limits.

use alloc::vec::Vec;

use loudou_limiter::Limits;
use loudou_limiter::ban::Penalty;
use serde::Serialize;
use serde_json::Value;

use super::problem::{Path, Problem};
use super::reader::{Cursor, Report};
use super::{fleet, limits, mode, overrides};
use crate::joined::joined;
use crate::rule::{Mode, Override, Overrides, Rule};

/// Names of the parts of a rule that an edit may replace.
pub const FIELDS: &[&str] = &["limits", "mode", "penalty", "overrides"];

/// New values for the parts of a rule that an edit replaces. `None` leaves a part unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleEdit {
    /// New limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The new mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The new penalty. `Some(None)` removes the penalty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<Option<Penalty>>,
    /// The new overrides, which replace all existing overrides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Overrides>,
}

impl RuleEdit {
    /// Applies the edit to a rule.
    pub fn apply(&self, rule: &mut Rule) {
        if let Some(limits) = &self.limits {
            rule.limits.clone_from(limits);
        }
        if let Some(mode) = self.mode {
            rule.mode = mode;
        }
        if let Some(penalty) = &self.penalty {
            rule.penalty.clone_from(penalty);
        }
        if let Some(overrides) = &self.overrides {
            rule.overrides.clone_from(overrides);
        }
    }

    /// Returns true if the edit replaces nothing.
    pub const fn is_empty(&self) -> bool {
        let (limits, mode) = (self.limits.is_none(), self.mode.is_none());
        limits && mode && self.penalty.is_none() && self.overrides.is_none()
    }

    /// Removes each part whose new value equals the current value in `rule`.
    #[must_use]
    pub fn beyond(self, rule: &Rule) -> Self {
        Self {
            limits: self.limits.filter(|limits| *limits != rule.limits),
            mode: self.mode.filter(|mode| *mode != rule.mode),
            penalty: self.penalty.filter(|penalty| *penalty != rule.penalty),
            overrides: self.overrides.filter(|own| *own != rule.overrides),
        }
    }
}

/// Reads the body of an edit, such as `{"limits": [...], "mode": "shadow"}`. An edit must replace
/// at least one part of the rule.
pub fn parse_edit(document: &Value) -> Result<RuleEdit, Vec<Problem>> {
    let mut report = Report::default();
    let edit = edit(&Cursor::root(document), &mut report);
    report.unless_invalid(edit)
}

/// Reads the override for a single key, such as `{"scale": 10}`. If `limits` contains the rule's
/// limits, a scale must be valid for them.
pub fn parse_override(
    pattern: &str,
    document: &Value,
    limits: Option<&Limits>,
) -> Result<Override, Vec<Problem>> {
    let mut report = Report::default();
    let cursor = Cursor::root(document);
    overrides::check_key(pattern, &cursor, &mut report);
    let value = overrides::one(&cursor, limits, &mut report);
    report.unless_invalid(value)
}

/// Returns a problem for each override whose scale is too large or too small for the rule's limits.
pub fn misfits(rule: &Rule) -> Vec<Problem> {
    let overrides = rule.overrides.iter();
    let scales = overrides.filter_map(|(pattern, own)| match own {
        Override::Scale(scale) => Some((pattern, *scale)),
        _ => None,
    });
    let misfits = scales.filter(|(_, scale)| !super::scale::fits_scale(&rule.limits, *scale));
    let problems = misfits.map(|(pattern, scale)| {
        let at = Path::root().field("overrides").field(&pattern);
        overrides::misfit(at.field("scale"), scale)
    });
    problems.collect()
}

fn edit(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<RuleEdit> {
    let fields = cursor.object(FIELDS, report)?;
    for problem in &mut report.problems {
        if problem.path == Path::root().field(fleet::SCOPE.name) {
            fleet::not_edited(problem);
        }
    }
    let limits = fields
        .get("limits")
        .and_then(|limits| limits::limits(&limits, report));
    let mode = fields
        .get("mode")
        .and_then(|mode| mode.word(&mode::MODES, report));
    let penalty = match cursor.value.get("penalty") {
        None => None,
        Some(Value::Null) => Some(None),
        Some(_) => fields
            .get("penalty")
            .and_then(|penalty| overrides::penalty(&penalty, report))
            .map(Some),
    };
    let overrides = fields
        .get("overrides")
        .map(|own| overrides::overrides(&own, limits.as_ref(), report));
    let has = |name: &&str| cursor.value.get(*name).is_some_and(|v| !v.is_null());
    if penalty.is_none() && !FIELDS.iter().any(has) {
        report.error(cursor, "nothing to change", &joined(FIELDS, ", "));
    }
    Some(RuleEdit {
        limits,
        mode,
        penalty,
        overrides,
    })
}
