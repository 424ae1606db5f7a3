//! Reads a rule file: converts a JSON tree into valid rules, or returns a list of *all* problems in
//! the file.
//!
//! The reader continues after each problem, so that a single pass finds them all. A [`Problem`]
//! contains the path of the invalid value, the value itself, the allowed values and a suggestion. A
//! caller that has the text of the file can map the path to a line and column.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use loudou_limiter::Limits;
use loudou_store::MAX_BUCKETS;
use serde_json::Value;

use crate::joined::joined;
use crate::rule::{Rule, RuleFile, StoreSettings, Version, tried};

mod admin;
mod answers;
mod cost;
mod edit;
mod fields;
mod fleet;
mod grammar;
mod json;
mod keys;
mod limits;
mod matches;
mod mode;
mod named;
mod native;
mod overrides;
mod problem;
mod reader;
mod rules;
mod sample;
mod scale;
mod schema;
mod settlement;
mod spoken;
mod suggest;
mod warnings;

pub use admin::{Access, AdminSettings, EmbeddedAdmin, Token, is_admin, parse_admin};
pub use edit::{FIELDS as EDIT_FIELDS, RuleEdit, misfits, parse_edit, parse_override};
pub use fields::fields_markdown;
pub use fleet::unshared;
pub use grammar::{Doc, Field, Form, List, Names, Object, Text};
pub use json::{JsonError, parse_json};
#[cfg(feature = "words")]
pub use limits::phrase;
pub use limits::{COMMON as COMMON_LIMIT_FIELDS, fields as limit_fields};
pub use mode::MODE_NAMES;
pub use native::{FILE_IN_WASM, unsupported_in_wasm, unsupported_natively};
pub use overrides::{MAX_OVERRIDES, is_key};
pub use problem::{Path, Problem, Severity, Step};
pub use reader::{Cursor, Fields, Report, written};
pub use sample::{SAMPLE as SAMPLE_FIELDS, parse_metadata, parse_sample};
pub(crate) use scale::fits_scale;
pub use scale::scaled;
pub use schema::schema;
pub use settlement::unsettled;
pub use spoken::{
    short, short_with_algorithm, short_with_name, spoken, spoken_value, text as spoken_text,
};
pub use suggest::nearest;
pub use warnings::impossible_key;
pub use warnings::patterns::worst_ns;
pub use warnings::{advice, preflight_advice};

use grammar::object;
use rules::Context;

/// Maximum number of rules in a file.
pub const MAX_RULES: usize = 256;
/// Maximum size of a rule file, in bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;
/// Maximum number of problems to report. If a file has more problems than this, most of them
/// usually have the same cause.
const MAX_PROBLEMS: usize = 100;

/// Grammar of a rule file.
const RULE_FILE: Object = object!([
    Field::required("version", Form::Only(1), "The version of this format."),
    Field::optional(
        "store",
        Form::Defined("store"),
        "",
        "The store that holds the buckets."
    ),
    Field::optional(
        "fleet",
        Form::Defined("fleet"),
        "",
        "The fleet of Envoys that share the buckets of rules with `scope: fleet`.",
    ),
    Field::optional(
        "admin",
        Form::Defined("embedded_admin"),
        "no admin API here",
        "The admin API, answered by this plugin itself: where there can be no listener for it.",
    ),
    Field::optional(
        "defaults",
        Form::Defined("defaults"),
        "",
        "Default values for fields of rules.",
    ),
    Field::required(
        "rules",
        Form::List(&List {
            fewest: 0,
            most: MAX_RULES,
            item: Field::value(Form::Defined("rule"), ""),
        }),
        "The rules, in evaluation order; every matching rule has to admit the request.",
    ),
]);
const BUCKETS: Field = Field::optional(
    "buckets",
    Form::Integer(64, MAX_BUCKETS),
    "65536",
    "The maximum number of live buckets; it determines the memory. Fixed when Envoy starts.",
);
const HELD: Field = Field::optional(
    "requests",
    Form::Integer(0, 65_536),
    "65536",
    "Maximum number of requests that a worker holds at once. Further requests are refused.",
);
const MEMORY: Field = Field::optional(
    "memory_mib",
    Form::Integer(1, 65_536),
    "64",
    "Maximum memory for held requests per worker, in MiB.",
);
const BODY: Field = Field::optional(
    "body_kib",
    Form::Integer(0, 1_048_576),
    "1024",
    "Maximum body size that Envoy buffers while a request is held, in KiB. This is Envoy's `per_connection_buffer_limit_bytes`.",
);
/// Grammar of the field `store.waiting`.
const WAITING: Object = object!([HELD, MEMORY, BODY]);
/// Grammar of the field `store`.
const STORE: Object = object!([
    BUCKETS,
    Field::optional(
        "namespace",
        Form::Text(Text::like("^[a-z0-9_-]{1,12}$", 0)),
        "loudou",
        "The prefix of all keys in Envoy's shared data and of all metrics. A namespace has one rule set.",
    ),
    FILE,
    Field::optional(
        "waiting",
        Form::Defined("waiting"),
        "",
        "Bounds on the requests that each worker holds.",
    ),
]);
/// Maximum size of the path of `store.file`, in bytes.
const MAX_PATH: usize = 1_024;
const FILE: Field = Field::optional(
    "file",
    Form::Text(Text::like("^/", MAX_PATH)),
    "none",
    "The file that keeps the buckets, bans and edits while Envoy restarts. Only the native module can keep one.",
);

/// Result of reading a rule file.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The rules; `None` if there are errors.
    pub file: Option<RuleFile>,
    /// Settings of the embedded admin API, which the plugin serves in addition to rate limiting.
    /// `None` if the file does not configure an embedded API, or if it has errors.
    pub admin: Option<EmbeddedAdmin>,
    /// Errors and warnings, in the order in which they were found.
    pub problems: Vec<Problem>,
}

/// Reads a rule file.
pub fn parse(document: &Value) -> Parsed {
    let mut report = Report::default();
    let file = file(&Cursor::root(document), &mut report);
    let (file, admin) = file.unzip();
    finish(file, admin.flatten(), report)
}

/// Reads a single rule, without `defaults`. Exported rules and the rules listed by the admin API have this form. Also
/// accepts trials, although their names are invalid in a rule file.
pub fn parse_rule(document: &Value) -> Result<Rule, Vec<Problem>> {
    let name = document.get("name").and_then(Value::as_str);
    let Some((name, of_rule)) = name.and_then(|name| Some((name, tried(name)?))) else {
        return parse_rule_of_file(document);
    };
    let mut document = document.clone();
    if let Some(fields) = document.as_object_mut() {
        fields.insert(String::from("name"), of_rule.into());
    }
    let rule = parse_rule_of_file(&document)?;
    Ok(Rule {
        name: String::from(name),
        ..rule
    })
}

fn parse_rule_of_file(document: &Value) -> Result<Rule, Vec<Problem>> {
    let mut report = Report::default();
    // The rule is assumed to come from a valid file, so if it has fleet scope, that file configures
    // a fleet.
    let context = Context {
        defaults: None,
        has_fleet: true,
    };
    let rule = rules::rule(&Cursor::root(document), context, &mut report);
    report.unless_invalid(rule)
}

/// Reads a list of limits.
pub fn parse_limits(document: &Value) -> Result<Limits, Vec<Problem>> {
    let mut report = Report::default();
    let limits = limits::limits(&Cursor::root(document), &mut report);
    report.unless_invalid(limits)
}

/// Reads the field `store` of a plugin configuration that has no rules.
pub fn parse_store(document: &Value) -> Result<StoreSettings, Vec<Problem>> {
    let mut report = Report::default();
    let settings = store(Some(&Cursor::root(document)), &mut report);
    report.unless_invalid(Some(settings))
}

fn finish(file: Option<RuleFile>, admin: Option<EmbeddedAdmin>, report: Report) -> Parsed {
    let mut problems: Vec<Problem> = Vec::new();
    for problem in report.problems {
        // Skips duplicates, because a problem in `defaults` is found once per rule.
        if problems.len() < MAX_PROBLEMS && !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    let valid = problems
        .iter()
        .all(|problem| problem.severity == Severity::Warning);
    Parsed {
        file: file.filter(|_| valid),
        admin: admin.filter(|_| valid),
        problems,
    }
}

fn file(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<(RuleFile, Option<EmbeddedAdmin>)> {
    if !cursor.value.is_object() {
        let what = match cursor.value {
            Value::Null => "the file is empty",
            _ => "this is not a rule file",
        };
        let allowed = format!("an object with {}", joined(RULE_FILE.names, ", "));
        report.error(cursor, what, &allowed);
        return None;
    }
    let fields = cursor.object(RULE_FILE.names, report)?;
    match fields.get("version") {
        None => report.add(
            cursor
                .with(&Value::Null)
                .wrong("`version` is missing; write `version: 1`"),
        ),
        Some(version) if version.integer(1, 1, &mut Report::default()).is_none() => {
            report.error(&version, "unknown version", "1");
        }
        Some(_) => {}
    }
    let store = store(fields.get("store").as_ref(), report);
    let admin = fields.get("admin");
    let admin = admin.and_then(|admin| admin::embedded(&admin, &store, report));
    let fleet = fields.get("fleet");
    let settings = fleet.and_then(|fleet| fleet::settings(&fleet, report));
    let defaults = fields.get("defaults");
    let defaults = defaults
        .as_ref()
        .and_then(|defaults| defaults.object(rules::DEFAULTS.names, report));
    let context = Context {
        defaults: defaults.as_ref(),
        has_fleet: fleet.is_some(),
    };
    if defaults.is_some() {
        rules::check_defaults(context, report);
    }
    let list = fields.need("rules", "a list of rules", report)?;
    let rules = list.list(report)?;
    if rules.len() > MAX_RULES {
        let message = format!("{} rules are too many", rules.len());
        let allowed = format!("at most {MAX_RULES}");
        report.error(&list.with(&Value::Null), &message, &allowed);
        return None;
    }
    let rules = all_rules(&rules, context, report);
    let file = RuleFile {
        version: Version,
        store,
        fleet: settings,
        rules,
    };
    Some((file, admin))
}

fn all_rules(
    cursors: &[Cursor<'_, '_>],
    context: Context<'_, '_>,
    report: &mut Report,
) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::with_capacity(cursors.len());
    let mut names: Vec<&str> = Vec::with_capacity(cursors.len());
    for cursor in cursors {
        let rule = rules::rule(cursor, context, report);
        let defaults = context.defaults.and_then(|fields| fields.get("overrides"));
        let own = cursor.value.get("overrides");
        if let (Some(defaults), Some(own)) = (defaults, own) {
            let at = cursor.path().field("overrides");
            if let Some(warning) = warnings::dropped_bans(defaults.value, own, at) {
                report.add(warning);
            }
        }
        // The name of an invalid rule also counts as taken.
        if let Some(name) = cursor.value.get("name").and_then(Value::as_str) {
            if names.contains(&name) {
                let at = cursor.path().field("name");
                let message = "duplicate rule name";
                report.add(Problem::error(at, &Value::from(name), message));
                continue;
            }
            names.push(name);
        }
        let Some(rule) = rule else { continue };
        if let Some(other) = rules.iter().find(|other| other.tag() == rule.tag()) {
            // The store identifies rules by a 32-bit tag, so two rules collide with a probability
            // of 1 in 2^32.
            let message = format!(
                "this name has the same tag as `{}`; choose another",
                other.name
            );
            let name = Value::from(rule.name.as_str());
            report.add(Problem::error(cursor.path().field("name"), &name, message));
        }
        rules.push(rule);
    }
    check_shadows(cursors, &names, report);
    rules
}

/// Checks that each `shadows` field names another rule in the file.
fn check_shadows(cursors: &[Cursor<'_, '_>], names: &[&str], report: &mut Report) {
    for cursor in cursors {
        let text = |field: &str| cursor.value.get(field).and_then(Value::as_str);
        let Some(shadows) = text("shadows") else {
            continue;
        };
        let this = text("name");
        if names.contains(&shadows) && this != Some(shadows) {
            continue;
        }
        let others: Vec<&str> = names.iter().copied().filter(|n| this != Some(*n)).collect();
        let at = cursor.path().field("shadows");
        let problem = Problem::error(at, &Value::from(shadows), "no other rule has this name");
        let near = nearest(shadows, &others);
        report.add(problem.allowed("the name of another rule").suggest(near));
    }
}

fn store(cursor: Option<&Cursor<'_, '_>>, report: &mut Report) -> StoreSettings {
    let mut settings = StoreSettings::default();
    let Some(fields) = cursor.and_then(|store| store.object(STORE.names, report)) else {
        return settings;
    };
    if let Some(buckets) = fields.get(BUCKETS.name) {
        let buckets = buckets.integer_of(BUCKETS, report);
        settings.buckets = buckets.unwrap_or(settings.buckets);
    }
    if let Some(namespace) = fields.get("namespace") {
        let name = name(&namespace, NameKind::Namespace, report);
        settings.namespace = name.unwrap_or(settings.namespace);
    }
    if let Some(file) = fields.get(FILE.name) {
        settings.file = file_path(&file, report);
    }
    if let Some(waiting) = fields.get("waiting")
        && let Some(bounds) = waiting.object(WAITING.names, report)
    {
        let mut read = |field: Field, bound: &mut u32| {
            let number = bounds.get(field.name);
            let number = number.and_then(|number| number.integer_of(field, report));
            *bound = number.unwrap_or(*bound);
        };
        read(HELD, &mut settings.waiting.requests);
        read(MEMORY, &mut settings.waiting.memory_mib);
        read(BODY, &mut settings.waiting.body_kib);
    }
    settings
}

fn file_path(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<String> {
    let path = cursor.value.as_str().unwrap_or("");
    let is_sound = path.starts_with('/') && path.len() <= MAX_PATH && !path.contains('\0');
    if !is_sound || path.ends_with('/') {
        let problem = cursor.wrong("invalid path");
        let allowed = format!("the absolute path of a file, of at most {MAX_PATH} bytes");
        let suggestion = Some("/var/lib/loudou/buckets");
        report.add(problem.allowed(&allowed).suggest(suggestion));
        return None;
    }
    Some(path.to_string())
}

/// Kind of name, which determines the maximum length and the allowed characters.
#[derive(Clone, Copy)]
enum NameKind {
    Rule,
    Limit,
    Namespace,
}

impl NameKind {
    const fn form(self) -> (usize, bool, &'static str) {
        match self {
            Self::Rule => (63, false, "1 to 63 of a-z, 0-9 and -"),
            Self::Limit => (63, true, "1 to 63 of a-z, 0-9, - and _"),
            Self::Namespace => (12, true, "1 to 12 of a-z, 0-9, - and _"),
        }
    }
}

fn name(cursor: &Cursor<'_, '_>, kind: NameKind, report: &mut Report) -> Option<String> {
    let (longest, underscore, form) = kind.form();
    let fits = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-') || (underscore && c == '_');
    let name = cursor.value.as_str().unwrap_or("");
    if name.is_empty() || name.len() > longest || !name.chars().all(fits) {
        let meant: String = name
            .to_ascii_lowercase()
            .chars()
            .map(|c| if fits(c) { c } else { '-' })
            .collect();
        let suggestion = Some(meant.as_str()).filter(|m| !m.is_empty() && m.len() <= longest);
        let problem = cursor.wrong("invalid name");
        report.add(problem.allowed(form).suggest(suggestion));
        return None;
    }
    Some(name.to_string())
}
