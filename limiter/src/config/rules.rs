//! Reading one rule.

use super::reader::{Cursor, Fields, Report};
use super::{NameKind, answers, cost, keys, limits, matches, name, overrides, warnings, when};
use crate::rule::{Cost, Match, Mode, OnError, OnMissingKey, Rule};

/// The fields of a rule.
pub(super) const FIELDS: &[&str] = &[
    "name",
    "match",
    "when",
    "key",
    "on_missing_key",
    "limits",
    "cost",
    "mode",
    "shadows",
    "stop",
    "on_error",
    "overrides",
    "penalty",
    "refuse",
    "respond",
];
/// The fields of a rule that `defaults` may have: all but the name.
pub(super) const DEFAULTABLE: &[&str] = match FIELDS.split_first() {
    Some((_name, rest)) => rest,
    None => &[],
};

pub(super) const MODES: [(&str, Mode); 3] = [
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];
pub(super) const MISSING: [(&str, OnMissingKey); 3] = [
    ("skip", OnMissingKey::Skip),
    ("refuse", OnMissingKey::Refuse),
    ("share", OnMissingKey::Share),
];
pub(super) const ERRORS: [(&str, OnError); 2] =
    [("admit", OnError::Admit), ("refuse", OnError::Refuse)];

/// The fields of a rule, with the defaults behind them.
struct WithDefaults<'a, 'c> {
    own: Fields<'a, 'c>,
    defaults: Option<&'c Fields<'a, 'c>>,
}

impl<'a, 'c> WithDefaults<'a, 'c> {
    fn get(&self, name: &str) -> Option<Cursor<'a, 'c>> {
        self.own.get(name).or_else(|| self.defaults?.get(name))
    }

    fn need(&self, name: &str, form: &str, report: &mut Report) -> Option<Cursor<'a, 'c>> {
        match self.get(name) {
            None => self.own.need(name, form, report),
            found => found,
        }
    }

    fn word<T: Copy + Default>(&self, name: &str, words: &[(&str, T)], report: &mut Report) -> T {
        self.get(name)
            .and_then(|cursor| cursor.word(words, report))
            .unwrap_or_default()
    }
}

pub(super) fn rule(
    cursor: &Cursor<'_, '_>,
    defaults: Option<&Fields<'_, '_>>,
    report: &mut Report,
) -> Option<Rule> {
    let own = cursor.object(FIELDS, report)?;
    let name = own.need("name", "1 to 63 of a-z, 0-9 and -", report);
    let name = name.and_then(|cursor| self::name(&cursor, NameKind::Rule, report));
    let fields = WithDefaults { own, defaults };
    let matches = match fields.get("match") {
        Some(cursor) => matches::matches(&cursor, report),
        None => Some(Match::default()),
    };
    let when = fields.get("when").map(|cursor| when::when(&cursor, report));
    let form = "a list of key parts; [] for one bucket for all";
    let key = fields.need("key", form, report);
    let key = key.map(|cursor| keys::key(&cursor, report));
    let limits = fields.need("limits", "a list of limits", report);
    let limits = limits.and_then(|cursor| limits::limits(&cursor, report));
    let cost = fields
        .get("cost")
        .map_or(Some(Cost::Fixed(1)), |cost| cost::cost(&cost, report));
    let on_missing_key = fields.word("on_missing_key", &MISSING, report);
    let mode = fields.word("mode", &MODES, report);
    let stop = fields
        .get("stop")
        .map_or(Some(false), |stop| stop.boolean(report));
    let shadows = fields
        .get("shadows")
        .map(|cursor| self::name(&cursor, NameKind::Rule, report));
    let on_error = fields.word("on_error", &ERRORS, report);
    let overrides = fields
        .get("overrides")
        .map(|cursor| overrides::overrides(&cursor, limits.as_ref(), report));
    let penalty = fields
        .get("penalty")
        .map(|cursor| overrides::penalty(&cursor, report));
    let refuse = fields
        .get("refuse")
        .map(|cursor| answers::refuse(&cursor, report));
    let respond = fields
        .get("respond")
        .map(|cursor| answers::respond(&cursor, report));
    let rule = Rule {
        name: name?,
        matches: matches?,
        when: when.flatten(),
        key: key?,
        on_missing_key,
        limits: limits?,
        cost: cost?,
        mode,
        shadows: shadows.flatten(),
        stop: stop?,
        on_error,
        overrides: overrides.unwrap_or_default(),
        penalty: penalty.flatten(),
        refuse: refuse.unwrap_or_default(),
        respond: respond.unwrap_or_default(),
    };
    if let Some(warning) = warnings::never_admits(&rule, &cursor.path()) {
        report.add(warning);
    }
    Some(rule)
}

/// Reports what is wrong in the defaults, whether a rule goes by them yet or not.
pub(super) fn check_defaults(defaults: &Fields<'_, '_>, report: &mut Report) {
    if let Some(cursor) = defaults.get("match") {
        matches::matches(&cursor, report);
    }
    if let Some(cursor) = defaults.get("when") {
        when::when(&cursor, report);
    }
    if let Some(cursor) = defaults.get("key") {
        keys::key(&cursor, report);
    }
    if let Some(cursor) = defaults.get("limits") {
        limits::limits(&cursor, report);
    }
    if let Some(cursor) = defaults.get("cost") {
        cost::cost(&cursor, report);
    }
    if let Some(cursor) = defaults.get("on_missing_key") {
        cursor.word(&MISSING, report);
    }
    if let Some(cursor) = defaults.get("mode") {
        cursor.word(&MODES, report);
    }
    if let Some(cursor) = defaults.get("stop") {
        cursor.boolean(report);
    }
    if let Some(cursor) = defaults.get("shadows") {
        name(&cursor, NameKind::Rule, report);
    }
    if let Some(cursor) = defaults.get("on_error") {
        cursor.word(&ERRORS, report);
    }
    if let Some(cursor) = defaults.get("overrides") {
        overrides::overrides(&cursor, None, report);
    }
    if let Some(cursor) = defaults.get("penalty") {
        overrides::penalty(&cursor, report);
    }
    if let Some(cursor) = defaults.get("refuse") {
        answers::refuse(&cursor, report);
    }
    if let Some(cursor) = defaults.get("respond") {
        answers::respond(&cursor, report);
    }
}
