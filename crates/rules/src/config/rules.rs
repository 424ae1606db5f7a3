//! Reads one rule.

use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::ban::Penalty;
use loudou_limiter::{Decimal, Limits, Nanos};
use loudou_store::UpstreamCondition;

use super::grammar::{Field, Form, Object, Text, object, words};
use super::limits::Numbers;
use super::reader::{Cursor, Fields, Report};
use super::{
    NameKind, answers, cost, fleet, keys, limits, matches, mode, name, overrides, settlement,
    warnings,
};
use crate::rule::{
    Cost, KeyPart, Match, Mode, OnAmbiguousKey, OnError, OnLongValue, OnMissingKey, Overrides,
    Refuse, Respond, Rule, Scope,
};

const MISSING: [(&str, OnMissingKey); 3] = [
    ("skip", OnMissingKey::Skip),
    ("refuse", OnMissingKey::Refuse),
    ("share", OnMissingKey::Share),
];
const LONG: [(&str, OnLongValue); 3] = [
    ("apply", OnLongValue::Apply),
    ("skip", OnLongValue::Skip),
    ("refuse", OnLongValue::Refuse),
];
const AMBIGUOUS: [(&str, OnAmbiguousKey); 2] = [
    ("first", OnAmbiguousKey::First),
    ("refuse", OnAmbiguousKey::Refuse),
];
const ERRORS: [(&str, OnError); 2] = [("admit", OnError::Admit), ("refuse", OnError::Refuse)];

const fn part(name: &'static str, form: Form, default: &'static str, doc: &'static str) -> Field {
    Field::optional(name, form, default, doc)
}

/// Grammar of a rule.
pub(super) const RULE: Object = object!([
    Field::required("name", Form::Text(NAME), "Its name, unique in the file."),
    part(
        "match",
        Form::Defined("match"),
        "all",
        "The requests that the rule matches; all given parts must match.",
    ),
    part(
        "on_long_value",
        Form::Word(&words(&LONG)),
        "apply",
        "The decision for requests with a value that is longer than a regular expression of the match tests: \
         apply this rule, skip it, or refuse.",
    ),
    part(
        "when",
        Form::Defined("when"),
        "always",
        "Only while an upstream fails: the rule applies to requests for an upstream when too many of its \
         recent responses are errors.",
    ),
    part(
        "key",
        Form::Defined("key"),
        "",
        "The key of the bucket: one bucket per combination of these parts. []: one bucket for all requests.",
    ),
    part(
        "on_missing_key",
        Form::Word(&words(&MISSING)),
        "skip",
        "The decision for requests without a part of the key: skip this rule, refuse, or share one bucket \
         with all such requests.",
    ),
    part(
        "on_ambiguous_key",
        Form::Word(&words(&AMBIGUOUS)),
        "first",
        "The decision for requests that repeat a header of the key, or a cookie or query parameter with \
         different values: the first value that is not empty is the key, or the request is refused.",
    ),
    part(
        "limits",
        Form::Defined("limits"),
        "",
        "The limits of a bucket. A request passes all limits or takes from none.",
    ),
    fleet::SCOPE,
    part(
        "cost",
        cost::COSTS,
        "1",
        "The cost of a request: a number, the value of a header or of metadata, by the length of the body, or \
         reserved at first and settled at the end. `llm_tokens` stands for `{ reserve: [ { metadata: [llm, max_tokens] }, \
         500 ], settle: token_usage, max: 4000 }`.",
    ),
    mode::MODE,
    part(
        "shadows",
        Form::Text(NAME),
        "",
        "The rule with which this one, in shadow mode, is compared.",
    ),
    part(
        "stop",
        Form::Boolean,
        "false",
        "If true, later rules are skipped for a request that this rule matches, except those in shadow mode. \
         In shadow mode it has no effect.",
    ),
    part(
        "on_error",
        Form::Word(&words(&ERRORS)),
        "admit",
        "The decision for a request when the store fails; such failures are counted in both cases.",
    ),
    part(
        "overrides",
        Form::Defined("overrides"),
        "",
        "Exceptions from the limits for some keys. A key is written as buckets show it; a * at its end \
         matches any rest.",
    ),
    part(
        "penalty",
        Form::Defined("penalty"),
        "",
        "Bans for keys that are refused too often.",
    ),
    part(
        "refuse",
        Form::Defined("refuse"),
        "",
        "The response to refused requests.",
    ),
    part(
        "respond",
        Form::Defined("respond"),
        "",
        "Headers of responses."
    ),
]);
const NAME: Text = Text::like("^[a-z0-9-]{1,63}$", 0);
/// Fields that are required unless `defaults` contains them, with their allowed values.
pub(super) const NEEDED: [(&str, &str); 2] = [
    ("key", "a list of key parts; [] for one bucket for all"),
    ("limits", "a list of limits"),
];
/// Grammar of `defaults`: all fields of a rule except the name.
pub(super) const DEFAULTS: Object = match (RULE.fields.split_first(), RULE.names.split_first()) {
    (Some((_, fields)), Some((_, names))) => Object {
        fields,
        names,
        choice: &[],
    },
    _ => RULE,
};

/// Parts of a rule file that affect how its rules are parsed.
#[derive(Clone, Copy)]
pub(super) struct Context<'a, 'c> {
    pub(super) defaults: Option<&'c Fields<'a, 'c>>,
    pub(super) has_fleet: bool,
}

/// The fields of a rule. Absent fields fall back to `defaults`.
struct WithDefaults<'a, 'c> {
    given: Option<&'c Fields<'a, 'c>>,
    context: Context<'a, 'c>,
}

impl<'a, 'c> WithDefaults<'a, 'c> {
    fn get(&self, name: &str) -> Option<Cursor<'a, 'c>> {
        let given = self.given.and_then(|given| given.get(name));
        given.or_else(|| self.context.defaults?.get(name))
    }

    fn word<T: Copy + Default>(&self, name: &str, words: &[(&str, T)], report: &mut Report) -> T {
        self.get(name)
            .and_then(|cursor| cursor.word(words, report))
            .unwrap_or_default()
    }

    fn scope(&self, report: &mut Report) -> Scope {
        let scope = self.word(fleet::SCOPE.name, &fleet::SCOPES, report);
        if let (Scope::Fleet, false, Some(cursor)) =
            (scope, self.context.has_fleet, self.get(fleet::SCOPE.name))
        {
            fleet::no_fleet(&cursor, report);
        }
        scope
    }
}

/// The fields of a rule that may also appear in `defaults`. A required field is `None` if it is
/// absent or invalid.
struct Parts {
    matches: Option<Match>,
    on_long_value: OnLongValue,
    when: Option<UpstreamCondition>,
    key: Option<Vec<KeyPart>>,
    on_missing_key: OnMissingKey,
    on_ambiguous_key: OnAmbiguousKey,
    limits: Option<Limits>,
    scope: Scope,
    cost: Option<Cost>,
    mode: Mode,
    shadows: Option<String>,
    stop: Option<bool>,
    on_error: OnError,
    overrides: Overrides,
    penalty: Option<Penalty>,
    refuse: Refuse,
    respond: Respond,
}

impl Parts {
    fn read(fields: &WithDefaults<'_, '_>, report: &mut Report) -> Self {
        let matches = match fields.get("match") {
            Some(cursor) => matches::matches(&cursor, report),
            None => Some(Match::default()),
        };
        let on_long_value = fields.word("on_long_value", &LONG, report);
        let when = fields.get("when");
        let when = when.and_then(|cursor| self::when(&cursor, report));
        let key = fields.get("key").map(|cursor| keys::key(&cursor, report));
        let scope = fields.scope(report);
        let limits = fields.get("limits");
        let limits = limits.and_then(|cursor| limits::limits(&cursor, report));
        let cost = match fields.get("cost") {
            Some(cursor) => cost::cost(&cursor, report),
            None => Some(Cost::Fixed(1)),
        };
        let on_missing_key = fields.word("on_missing_key", &MISSING, report);
        let on_ambiguous_key = fields.word("on_ambiguous_key", &AMBIGUOUS, report);
        let mode = fields.word(mode::MODE.name, &mode::MODES, report);
        let stop = match fields.get("stop") {
            Some(cursor) => cursor.boolean(report),
            None => Some(false),
        };
        let shadows = fields.get("shadows");
        let shadows = shadows.and_then(|cursor| name(&cursor, NameKind::Rule, report));
        let on_error = fields.word("on_error", &ERRORS, report);
        let overrides = fields.get("overrides");
        let overrides =
            overrides.map(|cursor| overrides::overrides(&cursor, limits.as_ref(), report));
        let penalty = fields.get("penalty");
        let penalty = penalty.and_then(|cursor| overrides::penalty(&cursor, report));
        let refuse = fields.get("refuse");
        let refuse = refuse.map(|cursor| answers::refuse(&cursor, report));
        let respond = fields.get("respond");
        let respond = respond.map(|cursor| answers::respond(&cursor, report));
        Self {
            matches,
            on_long_value,
            when,
            key,
            on_missing_key,
            on_ambiguous_key,
            limits,
            scope,
            cost,
            mode,
            shadows,
            stop,
            on_error,
            overrides: overrides.unwrap_or_default(),
            penalty,
            refuse: refuse.unwrap_or_default(),
            respond: respond.unwrap_or_default(),
        }
    }

    /// If the rule has fleet scope, reports each limit that cannot be shared by a fleet.
    fn check_shared(&self, fields: &WithDefaults<'_, '_>, report: &mut Report) {
        if self.scope != Scope::Fleet {
            return;
        }
        if let (Some(limits), Some(at)) = (&self.limits, fields.get("limits")) {
            let unshared = fleet::of_limits(limits, &at.path());
            report.problems.extend(unshared);
        }
        if let Some(at) = fields.get("overrides") {
            let unshared = fleet::of_overrides(&self.overrides, &at.path());
            report.problems.extend(unshared);
        }
    }

    /// Reports each limit that does not support settling the rule's costs.
    fn check_settled(&self, fields: &WithDefaults<'_, '_>, report: &mut Report) {
        let settlement = self.cost.as_ref().and_then(Cost::settlement);
        let at = |name| fields.get(name).map(|at| at.path()).unwrap_or_default();
        if let (Some(settlement), Some(limits)) = (settlement, &self.limits) {
            let overrides = (&self.overrides, &at("overrides"));
            let problems = settlement::check(settlement, (limits, &at("limits")), overrides);
            report.problems.extend(problems);
        }
        if let Some(settlement) = settlement.filter(|_| self.scope == Scope::Fleet) {
            let problem = settlement::unshared(settlement, at("cost").field("reserve"));
            report.problems.extend(problem);
        }
    }
}

pub(super) fn rule(
    cursor: &Cursor<'_, '_>,
    context: Context<'_, '_>,
    report: &mut Report,
) -> Option<Rule> {
    let given = cursor.object(RULE.names, report)?;
    let name = given.need("name", "1 to 63 of a-z, 0-9 and -", report);
    let name = name.and_then(|cursor| self::name(&cursor, NameKind::Rule, report));
    let fields = WithDefaults {
        given: Some(&given),
        context,
    };
    for (name, form) in NEEDED {
        if fields.get(name).is_none() {
            given.need(name, form, report);
        }
    }
    let parts = Parts::read(&fields, report);
    parts.check_shared(&fields, report);
    parts.check_settled(&fields, report);
    let rule = Rule {
        name: name?,
        matches: parts.matches?,
        on_long_value: parts.on_long_value,
        when: parts.when,
        key: parts.key?,
        on_missing_key: parts.on_missing_key,
        on_ambiguous_key: parts.on_ambiguous_key,
        limits: parts.limits?,
        scope: parts.scope,
        cost: parts.cost?,
        mode: parts.mode,
        shadows: parts.shadows,
        stop: parts.stop?,
        on_error: parts.on_error,
        overrides: parts.overrides,
        penalty: parts.penalty,
        refuse: parts.refuse,
        respond: parts.respond,
    };
    if let Some(warning) = warnings::never_admits(&rule, &cursor.path()) {
        report.add(warning);
    }
    Some(rule)
}

/// Reports problems in `defaults` even if every rule replaces the affected fields.
pub(super) fn check_defaults(context: Context<'_, '_>, report: &mut Report) {
    let fields = WithDefaults {
        given: None,
        context,
    };
    Parts::read(&fields, report).check_shared(&fields, report);
}

// Reads the field `when`.

const SMALLEST: Decimal = Decimal::from_thousandths(1);
const ALL: Decimal = Decimal::from_thousandths(1_000);
const DEFAULT_WITHIN: Nanos = Nanos::from_secs(10);
const DEFAULT_LEAST: u32 = 20;

/// Grammar of the field `when`.
pub(super) const WHEN: Object = object!([
    Field::required(
        "upstream_error_rate_over",
        Form::Decimal(SMALLEST, ALL),
        "The rule starts to apply when more than this share of an upstream's responses are errors: its \
         own 5xx and 429, timeouts, resets, and failed connections."
    ),
    Field::optional(
        "until_under",
        Form::Decimal(SMALLEST, ALL),
        "half of upstream_error_rate_over",
        "The rule applies until the share is below this, or until there are no responses; at most \
             upstream_error_rate_over."
    ),
    Field::optional(
        "within",
        Form::Duration(&[Nanos::from_secs(1), Nanos::from_secs(3_600)]),
        "10s",
        "The period in which responses are counted."
    ),
    Field::optional(
        "least",
        Form::Integer(1, 1_000_000),
        "20",
        "The minimum number of responses; with fewer, the rule does not start to apply."
    ),
]);

fn when(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<UpstreamCondition> {
    let numbers = Numbers {
        fields: cursor.object(WHEN.names, report)?,
        table: WHEN.fields,
    };
    let over = numbers.decimal("upstream_error_rate_over", report);
    let until_under = numbers.decimal_up_to("until_under", over.unwrap_or(ALL), report);
    let within = numbers.duration("within", report);
    let least = numbers.integer("least", report);
    let half = Decimal::from_thousandths(over.unwrap_or(ALL).thousandths() / 2).max(SMALLEST);
    Some(UpstreamCondition {
        over: over?,
        until_under: numbers.or("until_under", until_under, half)?,
        within: numbers.or("within", within, DEFAULT_WITHIN)?,
        least: numbers.or("least", least, DEFAULT_LEAST)?,
    })
}
