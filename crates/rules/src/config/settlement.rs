//! Reads a cost that is reserved when a request arrives and settled when the request ends, and checks that the rule's
//! limits can settle this cost.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::bounds::MAX_AMOUNT;
use loudou_limiter::{Decimal, Limit, Limits, Nanos, Settling};
use serde_json::{Map, Value};

use super::grammar::{Field, Form, List, Names, Object, Text, object};
use super::limits::duration;
use super::named::{HEADER_NAME, METADATA_PATH, Named, metadata_path, name};
use super::overrides::is_printable;
use super::problem::{Path, Problem};
use super::reader::{Cursor, Fields, Report, several, written};
use crate::rule::settlement::{Reserve, StatusCosts, Usage, Weights};
use crate::rule::{Cost, Override, Overrides, Rule, Settlement};

/// Maximum number of entries in a list of sources.
const MAX_SOURCES: usize = 8;
/// Maximum number of entries in a table that maps statuses to costs.
const MAX_STATUSES: usize = 64;
/// Maximum number of models with their own weights.
const MAX_MODELS: usize = 64;
/// Maximum size of a model's name, in bytes.
const MAX_MODEL: usize = 128;

/// A fixed reservation. If it is 0, a request is charged only when it ends.
const AMOUNT: Form = Form::Integer(0, MAX_AMOUNT);
const BYTES: Form = Form::Integer(1, u32::MAX);
const REQUEST_BYTES: Field = Field::optional(
    "request_bytes",
    BYTES,
    "",
    "One unit per this many bytes of the content length, rounded up.",
);
/// Grammar of a reservation source in object form.
pub(super) const RESERVE: Object = object!(
    [
        Field::optional(
            "header",
            HEADER_NAME,
            "",
            "The value of this header of the request.",
        ),
        Field::optional(
            "metadata",
            METADATA_PATH,
            "",
            "The value in the dynamic metadata of earlier filters: the namespace, and the keys below it.",
        ),
        REQUEST_BYTES,
    ],
    &["header", "metadata", "request_bytes"]
);
const RESERVE_ONE: [Field; 2] = [
    Field::value(AMOUNT, ""),
    Field::value(Form::Defined("reserve"), ""),
];
/// Grammar of a reservation's sources.
pub(super) const RESERVES: Form = Form::Or(&[
    Field::value(AMOUNT, ""),
    Field::value(Form::Defined("reserve"), ""),
    Field::value(
        Form::List(&List {
            fewest: 1,
            most: MAX_SOURCES,
            item: Field::value(Form::Or(&RESERVE_ONE), "One source."),
        }),
        "",
    ),
]);

const TOKEN_USAGE: &str = "token_usage";
const RESPONSE_BYTES: Field = Field::optional(
    "response_bytes",
    BYTES,
    "",
    "One unit per this many bytes of the body of the response, rounded up.",
);
const DURATION: [Nanos; 2] = [Nanos::from_millis(1), Nanos::from_secs(86_400)];
/// Grammar of an actual-cost source in object form.
pub(super) const USAGE: Object = object!(
    [
        Field::optional(
            "metadata",
            METADATA_PATH,
            "",
            "The value in the dynamic metadata that other filters have read from the response.",
        ),
        Field::optional(
            "response_header",
            HEADER_NAME,
            "",
            "The value of this header of the response.",
        ),
        RESPONSE_BYTES,
        Field::optional(
            "duration",
            Form::Duration(&DURATION),
            "",
            "One unit per span of this length that the request took, rounded up.",
        ),
        Field::optional(
            "status",
            Form::Map(&Names {
                most: MAX_STATUSES,
                name: Text::like("^[1-5]([0-9][0-9]|xx)$", 3),
                not: [&[], &[]],
                value: Form::Integer(0, MAX_AMOUNT),
            }),
            "",
            "A cost for each status of the response: `401` for a code, `5xx` for a class of codes.",
        ),
    ],
    &[
        "metadata",
        "response_header",
        "response_bytes",
        "duration",
        "status"
    ]
);
const USAGE_ONE: [Field; 2] = [
    Field::value(Form::Word(&[TOKEN_USAGE]), ""),
    Field::value(Form::Defined("usage"), ""),
];
/// Grammar of an actual cost's sources.
pub(super) const USAGES: Form = Form::Or(&[
    Field::value(Form::Word(&[TOKEN_USAGE]), ""),
    Field::value(Form::Defined("usage"), ""),
    Field::value(
        Form::List(&List {
            fewest: 1,
            most: MAX_SOURCES,
            item: Field::value(Form::Or(&USAGE_ONE), "One source."),
        }),
        "",
    ),
]);

const WEIGHT: Form = Form::Decimal(
    Decimal::from_thousandths(0),
    Decimal::from_thousandths(1_000_000),
);
const INPUT: Field = Field::optional("input", WEIGHT, "1", "The cost of a token of the request.");
const OUTPUT: Field = Field::optional(
    "output",
    WEIGHT,
    "1",
    "The cost of a token of the response.",
);
const CACHED: Field = Field::optional(
    "cached",
    WEIGHT,
    "input",
    "The cost of a token of the request that the upstream had in its cache.",
);
/// Grammar of a single model's token weights.
pub(super) const MODEL_WEIGHTS: Object = object!([INPUT, OUTPUT, CACHED]);
/// Grammar of the token weights.
pub(super) const WEIGHTS: Object = object!([
    INPUT,
    OUTPUT,
    CACHED,
    Field::optional(
        "models",
        Form::Map(&Names {
            most: MAX_MODELS,
            name: Text::like("^[!-~]+$", MAX_MODEL),
            not: [&[], &[]],
            value: Form::Defined("model_weights"),
        }),
        "",
        "The weights of single models, by the name of the model in the response, or by a prefix that ends with `*`. All \
         other models have the weights beside `models`.",
    ),
]);

/// Name of the predefined cost for language model requests.
pub(super) const LLM_TOKENS: &str = "llm_tokens";
/// Metadata path from which the `llm_tokens` cost reads a request's maximum number of response tokens.
const MAX_TOKENS: [&str; 2] = ["llm", "max_tokens"];
/// Reservation for a request whose metadata lacks this number, and maximum reservation.
const LLM_RESERVES: [u32; 2] = [500, 4_000];

/// Returns the cost that the word `llm_tokens` stands for:
///
/// ```yaml
/// { reserve: [ { metadata: [llm, max_tokens] }, 500 ], settle: token_usage, max: 4000 }
/// ```
pub(super) fn llm_tokens() -> Cost {
    let [usual, max] = LLM_RESERVES;
    let path = MAX_TOKENS.map(String::from).into();
    Cost::Settled(Box::new(Settlement {
        reserve: [Reserve::Metadata(path), Reserve::Fixed(usual)].into(),
        settle: [Usage::TokenUsage].into(),
        weights: Weights::default(),
        max,
        beyond_reservation: false,
    }))
}

/// Reads a cost with `settle`.
pub(super) fn settlement(
    fields: &Fields<'_, '_>,
    settle: &Cursor<'_, '_>,
    report: &mut Report,
) -> Option<Cost> {
    let form = "a number, or `header`, `metadata` or `request_bytes`, or a list of them";
    let reserve = fields.need("reserve", form, report);
    let reserve = reserve.map(|reserve| sources(&reserve, report, self::reserve));
    let settle_by = sources(settle, report, usage);
    let weights = fields.get("weights");
    if let Some(weights) = &weights
        && !settle_by.contains(&Usage::TokenUsage)
    {
        let message = "without effect: the sources in `settle` count no tokens";
        report.error(weights, message, "weights with `settle: [token_usage]`");
    }
    let weights = match weights {
        Some(weights) => self::weights(&weights, report),
        None => Some(Weights::default()),
    };
    let max = fields.need("max", "the largest reservation of a request", report);
    let max = max.and_then(|max| max.integer(1, MAX_AMOUNT, report));
    let beyond_reservation = match fields.get("beyond_reservation") {
        Some(beyond) => beyond.boolean(report),
        None => Some(false),
    };
    if let (Some(max), Some(given)) = (max, fields.get("reserve"))
        && let Some(Reserve::Fixed(cost)) =
            reserve.iter().flatten().find(|source| exceeds(source, max))
    {
        let message = format!("the reservation {cost} is above `max`");
        report.error(&given, &message, &format!("a whole number from 0 to {max}"));
    }
    Some(Cost::Settled(Box::new(Settlement {
        reserve: reserve?,
        settle: settle_by,
        weights: weights?,
        max: max?,
        beyond_reservation: beyond_reservation?,
    })))
}

const fn exceeds(source: &Reserve, max: u32) -> bool {
    matches!(source, Reserve::Fixed(cost) if *cost > max)
}

/// Reads a single source, or a non-empty list of sources.
fn sources<T>(
    cursor: &Cursor<'_, '_>,
    report: &mut Report,
    read: impl Fn(&Cursor<'_, '_>, &mut Report) -> Option<T>,
) -> Vec<T> {
    if !cursor.value.is_array() {
        return read(cursor, report).into_iter().collect();
    }
    if cursor.value.as_array().is_some_and(Vec::is_empty) {
        report.error(cursor, "the list is empty", "at least one source");
    }
    several(cursor, MAX_SOURCES, report, read)
}

fn reserve(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Reserve> {
    if !cursor.value.is_object() {
        return cursor.integer(0, MAX_AMOUNT, report).map(Reserve::Fixed);
    }
    let fields = cursor.object(RESERVE.names, report)?;
    let (kind, value) = fields.one_of(RESERVE.choice, report)?;
    Some(match kind {
        "header" => Reserve::Header(name(&value, Named::Header, report)?),
        "metadata" => Reserve::Metadata(metadata_path(&value, report)?),
        _ => Reserve::RequestBytes(value.integer_of(REQUEST_BYTES, report)?),
    })
}

fn usage(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Usage> {
    if !cursor.value.is_object() {
        return cursor
            .word(&[(TOKEN_USAGE, ())], report)
            .map(|()| Usage::TokenUsage);
    }
    let fields = cursor.object(USAGE.names, report)?;
    let (kind, value) = fields.one_of(USAGE.choice, report)?;
    Some(match kind {
        "metadata" => Usage::Metadata(metadata_path(&value, report)?),
        "response_header" => Usage::ResponseHeader(name(&value, Named::Header, report)?),
        "response_bytes" => Usage::ResponseBytes(value.integer_of(RESPONSE_BYTES, report)?),
        "duration" => Usage::Duration(duration(&value, Form::Duration(&DURATION), report)?),
        _ => Usage::Status(status(&value, report)),
    })
}

fn status(cursor: &Cursor<'_, '_>, report: &mut Report) -> StatusCosts {
    let mut costs = StatusCosts::default();
    let form = "costs by status: { 401: 1, 2xx: 0 }";
    let members = cursor.members(form, report);
    if cursor.value.as_object().is_some_and(Map::is_empty) {
        report.error(cursor, "the table is empty", form);
    }
    if members.len() > MAX_STATUSES {
        let allowed = format!("at most {MAX_STATUSES}");
        report.error(cursor, "too many statuses", &allowed);
        return costs;
    }
    for (status, cost) in members {
        let class = status.strip_suffix("xx");
        let digits = class.unwrap_or(status).parse::<u16>().ok();
        let range = if class.is_some() { 1..=5 } else { 100..=599 };
        let Some(number) = digits.filter(|number| range.contains(number) && status.len() == 3)
        else {
            let problem = cost.wrong_name("unknown status");
            report.add(problem.allowed("a code such as 401, or a class such as 5xx"));
            continue;
        };
        let Some(cost) = cost.integer(0, MAX_AMOUNT, report) else {
            continue;
        };
        let costs = if class.is_some() {
            &mut costs.classes
        } else {
            &mut costs.codes
        };
        costs.push((number, cost));
    }
    costs
}

fn weights(cursor: &Cursor<'_, '_>, report: &mut Report) -> Option<Weights> {
    let fields = cursor.object(WEIGHTS.names, report)?;
    let weights = of_model(&fields, report)?;
    let models = fields.get("models");
    Some(Weights {
        models: models.map_or_else(Vec::new, |models| self::models(&models, report)),
        ..weights
    })
}

fn models(cursor: &Cursor<'_, '_>, report: &mut Report) -> Vec<(String, Weights)> {
    let form = "weights by model: { \"gpt-4o*\": { output: 4 } }";
    let members = cursor.members(form, report);
    if members.len() > MAX_MODELS {
        report.error(cursor, "too many models", &format!("at most {MAX_MODELS}"));
        return Vec::new();
    }
    let model = |(name, weights): (&str, Cursor<'_, '_>)| {
        if name.is_empty() || name.len() > MAX_MODEL || !is_printable(name) {
            let problem = weights.wrong_name("invalid model");
            let allowed = format!(
                "1 to {MAX_MODEL} printable characters of ASCII, without spaces; a `*` at the end stands for the rest of a name"
            );
            report.add(problem.allowed(allowed));
            return None;
        }
        let fields = weights.object(MODEL_WEIGHTS.names, report)?;
        Some((String::from(name), of_model(&fields, report)?))
    };
    members.into_iter().filter_map(model).collect()
}

/// Reads the weights of a model.
fn of_model(fields: &Fields<'_, '_>, report: &mut Report) -> Option<Weights> {
    let one = Decimal::from_thousandths(1_000);
    let mut weight = |field: Field, default: Option<Decimal>| match fields.get(field.name) {
        Some(weight) => weight.decimal_of(field, report),
        None => default,
    };
    let input = weight(INPUT, Some(one));
    let output = weight(OUTPUT, Some(one));
    let cached = weight(CACHED, input);
    Some(Weights {
        input: input?,
        output: output?,
        cached: cached?,
        models: Vec::new(),
    })
}

/// Returns a problem for each limit of the rule or its overrides that does not support settling the rule's costs. The
/// problems' paths are relative to the rule.
pub fn unsettled(rule: &Rule) -> Vec<Problem> {
    let Some(settlement) = rule.cost.settlement() else {
        return Vec::new();
    };
    let [limits, overrides] = ["limits", "overrides"].map(|field| Path::root().field(field));
    each_limit(
        (&rule.limits, &limits),
        (&rule.overrides, &overrides),
        &|limit, at| unfit(settlement, limit, at),
    )
}

/// Returns the problems found by [`unsettled`], and a problem for each limit whose capacity is below the largest
/// reservation. [`unsettled`] omits the second check, because an edit is allowed to lower a capacity below the largest
/// reservation. Requests that reserve more than the capacity are then refused.
pub(super) fn check(
    settlement: &Settlement,
    limits: (&Limits, &Path),
    overrides: (&Overrides, &Path),
) -> Vec<Problem> {
    each_limit(limits, overrides, &|limit, at| {
        unfit(settlement, limit, at).or_else(|| too_small(settlement, limit, at))
    })
}

/// Calls `find` with each limit of a rule and its overrides, and with the limit's path. Returns the problems that
/// `find` returns.
fn each_limit(
    (limits, at): (&Limits, &Path),
    (overrides, at_overrides): (&Overrides, &Path),
    find: &dyn Fn(&Limit, &Path) -> Option<Problem>,
) -> Vec<Problem> {
    let find = |limits: &Limits, at: &Path| {
        let largest = limits.largest();
        let limits = largest.iter().enumerate();
        let problems = limits.filter_map(|(index, limit)| find(limit, &at.index(index)));
        problems.collect::<Vec<_>>()
    };
    let mut problems = find(limits, at);
    for (pattern, own) in overrides.iter() {
        if let Override::Limits(limits) = own {
            let at = at_overrides.field(&pattern);
            problems.extend(find(limits, &at.field("limits")));
        }
    }
    problems
}

/// Returns a problem if a request may reserve 0 units under a rule with fleet scope. An Envoy learns of a key's debts
/// at other Envoys only when it asks for tokens, which it never does for a request that takes none. `at` is the path of
/// the reservation.
pub(super) fn unshared(settlement: &Settlement, at: Path) -> Option<Problem> {
    if settlement.least() > 0 {
        return None;
    }
    let message = "with `scope: fleet`, a request that reserves nothing does not learn what the key owes at other Envoys";
    let problem = Problem::error(at, &Value::from(0), message);
    Some(problem.allowed("a reservation of at least 1, or `scope: envoy`"))
}

/// Returns an error for a field of a limit.
fn problem(limit: &Limit, at: &Path, field: &str, message: String, allowed: &str) -> Problem {
    let value = written(limit).get(field).cloned().unwrap_or_default();
    Problem::error(at.field(field), &value, message).allowed(allowed)
}

/// Returns a problem if the limit does not support settling the costs.
fn unfit(settlement: &Settlement, limit: &Limit, at: &Path) -> Option<Problem> {
    let (algorithm, name) = (limit.algorithm(), limit.name());
    match algorithm.settling() {
        Settling::WithDebt => None,
        Settling::WithinReservation if !settlement.may_owe() => None,
        Settling::WithinReservation => {
            let message = format!(
                "the limit `{name}` cannot have a debt, because it forgets its count at the end of a window, \
                 but a request may cost more than it reserves"
            );
            let allowed = "funnel; token_bucket, for a budget a day with `refill: interval` and `align: clock`; any \
                           window if `settle` is a `status` table without costs above the reservation";
            Some(problem(limit, at, "algorithm", message, allowed))
        }
        Settling::Never if written(limit).contains_key("max_wait") => {
            let message =
                format!("a request whose cost is settled cannot wait for the limit `{name}`");
            Some(problem(
                limit,
                at,
                "max_wait",
                message,
                "no `max_wait` with `settle`",
            ))
        }
        Settling::Never => {
            let message = format!("the limit `{name}` cannot settle costs");
            let allowed =
                "funnel, token_bucket, fixed_window, sliding_window, sliding_log, sliding_counter";
            Some(problem(limit, at, "algorithm", message, allowed))
        }
    }
}

/// Returns a problem if the limit's capacity is below the largest reservation.
fn too_small(settlement: &Settlement, limit: &Limit, at: &Path) -> Option<Problem> {
    let (max, most) = (settlement.max, limit.algorithm().max_cost());
    if u64::from(max) <= most {
        return None;
    }
    let name = limit.name();
    let message = format!("the limit `{name}` never admits the largest reservation, {max}");
    let allowed = format!("at least {max}, or a `max` of at most {most} in `cost`");
    Some(problem(limit, at, "capacity", message, &allowed))
}
