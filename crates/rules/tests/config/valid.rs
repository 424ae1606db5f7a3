//! Random valid rule files, with every field.

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::calendar::WEEKDAYS;
use loudou_limiter::{Decimal, Nanos};
use loudou_rules::config::{Field, Form, limit_fields, parse_limits};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

type Values = BoxedStrategy<Value>;

fn text(pattern: &'static str) -> Values {
    pattern.prop_map(Value::from).boxed()
}

fn one_of(words: &'static [&'static str]) -> Values {
    prop::sample::select(words).prop_map(Value::from).boxed()
}

fn list(items: Values, most: usize) -> Values {
    prop::collection::vec(items, 0..most)
        .prop_map(Value::from)
        .boxed()
}

/// An object in which each field is present, absent or null.
fn optional(fields: Vec<(&'static str, Values)>) -> Values {
    let fields = fields.into_iter().map(|(name, value)| {
        let value = prop_oneof![
            3 => value.prop_map(Some),
            2 => Just(None),
            1 => Just(Some(Value::Null)),
        ];
        value.prop_map(move |value| value.map(|value| (name.to_string(), value)))
    });
    let fields: Vec<_> = fields.collect();
    let object = |fields: Vec<Option<(String, Value)>>| {
        Value::from(fields.into_iter().flatten().collect::<Map<_, _>>())
    };
    fields.prop_map(object).boxed()
}

fn with(object: Values, fields: Vec<(&'static str, Values)>) -> Values {
    fields.into_iter().fold(object, |object, (name, value)| {
        let both = (object, value).prop_map(move |(mut object, value)| {
            object[name] = value;
            object
        });
        both.boxed()
    })
}

fn duration(least: Nanos, most: Nanos) -> Values {
    const UNITS: [&str; 7] = ["d", "h", "m", "s", "ms", "us", "ns"];
    (0..2000_u32, prop::sample::select(&UNITS[..]))
        .prop_map(|(number, unit)| format!("{number}{unit}"))
        .prop_map(move |text| match Nanos::parse(&text) {
            Some(span) if (least..=most).contains(&span) => text,
            _ => most.to_string(),
        })
        .prop_map(Value::from)
        .boxed()
}

fn value(field: Field) -> Values {
    let fixed = fixed(field);
    let number = json!({ "metadata": ["jwt", field.name], "default": 1, "max": 9 });
    match field.sourced {
        None => fixed,
        Some("rate_from_metadata") => {
            let rate = json!({ "amount": number, "per": "1m" });
            prop_oneof![4 => fixed, 1 => Just(rate)].boxed()
        }
        Some(_) => prop_oneof![4 => fixed, 1 => Just(number)].boxed(),
    }
}

fn fixed(field: Field) -> Values {
    match field.form {
        Form::Integer(least, most) => {
            let small = (least..=least.saturating_add(20).min(most)).prop_map(Value::from);
            let double = (least..=most).prop_map(|number| Value::from(f64::from(number)));
            prop_oneof![3 => small, 1 => double].boxed()
        }
        Form::Decimal(least, most) => {
            let (least, most) = (least.thousandths(), most.thousandths());
            let thousandths = least..=least.saturating_add(5_000).min(most);
            let decimal = thousandths.prop_map(|n| json!(Decimal::from_thousandths(n)));
            prop_oneof![3 => decimal, 1 => Just(json!(most / 1_000))].boxed()
        }
        Form::Rate => text("0{0,2}[1-9][0-9]{0,4}/[1-9]?[0-9]{0,2}[1-9](ms|s|m|h)|[1-9]/(s|m|h|d)"),
        Form::Duration([least, most]) => duration(*least, *most),
        Form::Word(words) => one_of(words),
        Form::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Form::Or([duration, _]) => fixed(*duration),
        other => panic!("{other:?} in a limit"),
    }
}

fn limit(algorithm: &'static str) -> Values {
    // Periods of the calendar are generated separately.
    let is_plain = |field: &Field| !matches!(field.name, "zone" | "starts");
    let table = limit_fields(algorithm).iter().copied().filter(is_plain);
    let (needed, others): (Vec<Field>, Vec<Field>) =
        table.partition(|field| field.default.is_none());
    let mut others: Vec<_> = others.into_iter().map(|f| (f.name, value(f))).collect();
    others.push(("name", text("[a-z0-9_-]{1,20}")));
    let needed = needed.into_iter().map(|field| (field.name, value(field)));
    let all = needed.chain([("algorithm", Just(Value::from(algorithm)).boxed())]);
    // Numbers that do not fit together are not tested here.
    with(optional(others), all.collect())
        .prop_filter("fits", |limit| parse_limits(&json!([limit])).is_ok())
        .boxed()
}

/// A limit per period of the calendar.
fn periodic() -> Values {
    let starts = prop_oneof![
        Just(("day", json!(null))),
        one_of(&WEEKDAYS).prop_map(|weekday| ("week", json!({ "weekday": weekday }))),
        (1..=31).prop_map(|day| ("month", json!({ "day": day }))),
        (1..=12, 1..=31).prop_map(|(month, day)| ("year", json!({ "month": month, "day": day }))),
    ];
    let zone = text(
        "UTC|[+-](0[0-9]|1[0-4]):[0-5][0-9]|([A-Z]{3,5}|<[+-][0-9]{2}>)[+-]?[0-9](:30)?([A-Z]{3,4}(-2)?,M3\\.[1-5]\\.0,(J?[1-9]|M9\\.1\\.6/-?[0-9]{1,2}))?",
    );
    let limit = (1..9_u32, starts, zone).prop_map(|(capacity, (window, starts), zone)| {
        json!({
            "algorithm": "fixed_window", "capacity": capacity, "window": window, "zone": zone,
            "starts": starts,
        })
    });
    limit.boxed()
}

fn limits() -> Values {
    let each = prop::sample::select(Algorithm::NAMES).prop_flat_map(limit);
    let each = prop_oneof![9 => each, 1 => periodic()];
    let several = prop::collection::vec(each, 1..5).prop_map(|mut limits: Vec<Value>| {
        for (index, limit) in limits.iter_mut().enumerate().skip(1) {
            limit["name"] = json!(format!("limit-{index}"));
        }
        Value::from(limits)
    });
    several
        .prop_filter("fits", |limits| parse_limits(limits).is_ok())
        .boxed()
}

/// One of the tests `kinds`, in addition to the fields of `base`.
fn test(base: Values, kinds: &'static [&'static str]) -> Values {
    let asked = |kind: &str| match kind {
        "present" => any::<bool>().prop_map(Value::from).boxed(),
        "regex" => text("[a-z.]{1,5}([*+?]|\\{1,3\\})[a-z0-9/]{0,9}"),
        _ => text("\\PC{1,30}"),
    };
    prop::sample::select(kinds)
        .prop_flat_map(move |kind| with(base.clone(), vec![(kind, asked(kind))]))
        .boxed()
}

const TESTS: &[&str] = &["present", "exact", "prefix", "suffix", "regex"];

fn named(pattern: &'static str) -> Values {
    let base = with(Just(json!({})).boxed(), vec![("name", text(pattern))]);
    list(test(base, TESTS), 4)
}

fn metadata_path() -> Values {
    let steps = prop::collection::vec(text("\\PC{1,12}"), 2..=8);
    steps.prop_map(Value::from).boxed()
}

fn network() -> Values {
    let four = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|(address, length)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let bits = u32::from_be_bytes(address) & mask;
        format!("{}/{length}", std::net::Ipv4Addr::from_bits(bits))
    });
    let six = any::<[u16; 4]>().prop_map(|[a, b, c, d]| format!("{a:x}:{b:X}:{c:x}:{d:x}::/64"));
    let fixed = prop::sample::select(vec!["10.0.0.1", "::1", "::ffff:10.0.0.0/104", "::/0"]);
    prop_oneof![four, six, fixed.prop_map(str::to_string)]
        .prop_map(Value::from)
        .boxed()
}

fn key() -> Values {
    let token = || text("[A-Za-z0-9-]{1,20}");
    let part = prop_oneof![
        one_of(&[
            "source",
            "path",
            "route",
            "method",
            "host",
            "client_cert",
            "peer"
        ]),
        token().prop_map(|name| json!({ "header": name })),
        token().prop_map(|name| json!({ "cookie": name })),
        text("\\PC{1,16}").prop_map(|name| json!({ "query": name })),
        text("\\PC{1,16}").prop_map(|text| json!({ "literal": text, "header": null })),
        metadata_path().prop_map(|path| json!({ "metadata": path })),
        (1..=64_u8).prop_map(|n| json!({ "path": { "segments": n } })),
        any::<bool>().prop_map(|normal| json!({ "path": { "normalize": normal } })),
        Just(json!({ "path": {} })),
        (0..=32_u8).prop_map(|n| json!({ "source": { "v4_prefix": n } })),
        (0..=128_u8).prop_map(|n| json!({ "source": { "v6_prefix": n, "v4_prefix": 9.0 } })),
    ];
    list(part.boxed(), 6)
}

fn path() -> Values {
    let path = || text("/[a-z0-9/*.]{0,20}");
    let template = text("(/[a-z]{0,5}|/\\{[a-z_]{1,5}\\}){1,5}");
    prop_oneof![
        path().prop_map(|path| json!({ "prefix": path })),
        path().prop_map(|path| json!({ "exact": path })),
        text("[a-z0-9/*.]{1,20}").prop_map(|path| json!({ "suffix": path })),
        template.prop_map(|path| json!({ "template": path })),
        one_of(&["/v[0-9](/.*)?", "(?i)/a|/b", "/x{2,3}"])
            .prop_map(|path| json!({ "regex": path })),
    ]
    .boxed()
}

/// A match, possibly with nested ones.
fn matching(depth: u32) -> Values {
    let empty = || Just(json!({})).boxed();
    let host = text("[A-Za-z0-9.-]{1,20}");
    let host = (
        prop::sample::select(&["exact", "prefix", "suffix"][..]),
        host,
    );
    let mut fields = vec![
        ("methods", list(text("[A-Z_-]{1,12}"), 4)),
        ("path", path()),
        (
            "host",
            host.prop_map(|(kind, host)| json!({ kind: host })).boxed(),
        ),
        ("headers", named("[A-Za-z0-9!#$%&'*+.^_`|~:-]{1,30}")),
        ("query", named("\\PC{1,16}")),
        ("cookies", named("[A-Za-z0-9_.-]{1,16}")),
        ("source", list(network(), 4)),
        ("route", test(empty(), &["exact", "prefix"])),
        (
            "metadata",
            list(
                test(with(empty(), vec![("path", metadata_path())]), TESTS),
                3,
            ),
        ),
    ];
    if depth > 0 {
        fields.push(("not", matching(depth - 1)));
    }
    optional(fields)
}

fn cost() -> Values {
    prop_oneof![
        3 => (1..=1_000_000_000_u32).prop_map(Value::from),
        1 => (1..100_u32).prop_map(|n| json!({ "request_bytes": n, "header": null })),
        1 => (1..100_u32).prop_map(|n| json!({ "header": "x-cost", "default": n, "max": 2 * n })),
        1 => Just(json!({ "header": "X-Cost", "max": 100.0, "request_bytes": null })),
    ]
    .boxed()
}

/// A cost that is settled at the end, for limits with a capacity of 4000.
fn settled() -> Values {
    let amount = || (1..=1_000_u32).prop_map(Value::from).boxed();
    let of = |name: &'static str, value: Values| {
        value.prop_map(move |value| json!({ name: value })).boxed()
    };
    let several = |one: Values| {
        prop_oneof![
            one.clone(),
            prop::collection::vec(one, 1..=8).prop_map(Value::from)
        ]
        .boxed()
    };
    let header = || text("[A-Za-z0-9-]{1,12}");
    let reserve = prop_oneof![
        amount(),
        of("header", header()),
        of("metadata", metadata_path()),
        of("request_bytes", amount()),
    ];
    let status = prop::collection::vec(("[1-5]([0-9][0-9]|xx)", 0..=9_u32), 1..4);
    let status = status.prop_map(|costs| {
        let costs = costs
            .into_iter()
            .map(|(status, cost)| (status, Value::from(cost)));
        Value::from(costs.collect::<Map<_, _>>())
    });
    let usage = prop_oneof![
        Just(json!("token_usage")),
        of("metadata", metadata_path()),
        of("response_header", header()),
        of("response_bytes", amount()),
        of(
            "duration",
            duration(Nanos::from_millis(1), Nanos::from_secs(86_400))
        ),
        of("status", status.boxed()),
    ];
    let beyond = any::<bool>().prop_map(Value::from).boxed();
    let weight = || {
        (0..=1_000_000_u32)
            .prop_map(|n| json!(Decimal::from_thousandths(n)))
            .boxed()
    };
    let of_model = || {
        vec![
            ("input", weight()),
            ("output", weight()),
            ("cached", weight()),
        ]
    };
    let models = prop::collection::vec(("[!-~]{1,20}[*]?", optional(of_model())), 0..4);
    let models = models.prop_map(|models| Value::from(models.into_iter().collect::<Map<_, _>>()));
    let weights = optional([of_model(), vec![("models", models.boxed())]].concat());
    let any_usage = with(
        optional(vec![("beyond_reservation", beyond.clone())]),
        vec![
            ("settle", several(usage.boxed())),
            ("reserve", several(reserve.clone().boxed())),
        ],
    );
    let tokens = with(
        optional(vec![("beyond_reservation", beyond), ("weights", weights)]),
        vec![
            ("settle", Just(json!(["token_usage"])).boxed()),
            ("reserve", several(reserve.boxed())),
        ],
    );
    let written = prop_oneof![any_usage, tokens].prop_map(|mut cost| {
        cost["max"] = json!(1_000);
        cost
    });
    prop_oneof![9 => written, 1 => Just(json!("llm_tokens"))].boxed()
}

/// The response to refused requests.
fn refuse() -> Values {
    let value = || text("[!-~]([ -~]{0,20}[!-~])?");
    let text_body = with(
        optional(vec![(
            "content_type",
            text("[a-z]{1,8}/[a-z+; =-]{0,8}[a-z]"),
        )]),
        vec![("text", text("\\PC{1,40}"))],
    );
    let body = prop_oneof![one_of(&["problem", "none"]), text_body];
    let names = prop::collection::vec(("x-[a-z]{1,8}", value()), 0..4);
    let headers = names.prop_map(|headers| Value::from(headers.into_iter().collect::<Map<_, _>>()));
    optional(vec![
        ("status", (400..=599_u32).prop_map(Value::from).boxed()),
        ("body", body.boxed()),
        ("headers", headers.boxed()),
        ("grpc", one_of(&["resource_exhausted", "unavailable"])),
    ])
}

/// Only while an upstream fails.
fn when() -> Values {
    let decimal = |thousandths: u32| json!(Decimal::from_thousandths(thousandths));
    let shares = (1..=1_000_u32, 1..=1_000_u32).prop_map(move |(one, two)| {
        json!({ "upstream_error_rate_over": decimal(one.max(two)), "until_under": decimal(one.min(two)) })
    });
    let shares = prop_oneof![3 => shares, 1 => Just(json!({ "upstream_error_rate_over": 1.0 }))];
    let within = duration(Nanos::from_secs(1), Nanos::from_secs(3_600));
    let least = (1..=1_000_000_u32).prop_map(Value::from).boxed();
    let others = optional(vec![("within", within), ("least", least)]);
    let both = (shares, others).prop_map(|(mut shares, others)| {
        for (name, value) in others.as_object().expect("an object") {
            shares[name] = value.clone();
        }
        shares
    });
    both.boxed()
}

/// The fields of rules and of `defaults`.
fn defaultable() -> Vec<(&'static str, Values)> {
    let matches = matching(2);
    let mode = prop_oneof![4 => one_of(&["enforce", "shadow", "off"]), 1 => Just(json!(false))];
    let headers = one_of(&["refused", "draft11", "legacy", "both", "openai", "none"]);
    let jitter = (0..=1_000_u32).prop_map(|n| json!(Decimal::from_thousandths(n)));
    let respond = vec![
        ("ratelimit_headers", headers),
        ("retry_after_jitter", jitter.boxed()),
        (
            "explain_header",
            any::<bool>().prop_map(Value::from).boxed(),
        ),
    ];
    vec![
        ("match", matches),
        ("when", when()),
        ("on_long_value", one_of(&["apply", "skip", "refuse"])),
        ("on_missing_key", one_of(&["skip", "refuse", "share"])),
        ("on_ambiguous_key", one_of(&["first", "refuse"])),
        ("cost", cost()),
        ("mode", mode.boxed()),
        ("stop", any::<bool>().prop_map(Value::from).boxed()),
        ("scope", one_of(&["envoy"])),
        ("on_error", one_of(&["admit", "refuse"])),
        ("refuse", refuse()),
        ("respond", optional(respond)),
    ]
}

fn store() -> Values {
    optional(vec![
        (
            "buckets",
            (64..=16_777_216_u32).prop_map(Value::from).boxed(),
        ),
        ("namespace", text("[a-z0-9_-]{1,12}")),
    ])
}

fn fleet() -> Values {
    let settings = optional(vec![
        (
            "lease",
            duration(Nanos::from_millis(10), Nanos::from_secs(10)),
        ),
        (
            "timeout",
            duration(Nanos::from_millis(1), Nanos::from_secs(1)),
        ),
        ("credit", (0..=1_000_u32).prop_map(Value::from).boxed()),
        ("on_outage", one_of(&["local", "admit", "refuse"])),
        ("token", text("[!-~]{1,256}")),
    ]);
    with(settings, vec![("cluster", text(".{1,64}"))])
}

/// A rule file.
pub(super) fn valid_file() -> impl Strategy<Value = Value> {
    let rule = with(
        optional(defaultable()),
        vec![("key", key()), ("limits", limits())],
    );
    let mut defaults = defaultable();
    defaults.extend([("key", key()), ("limits", limits())]);
    let large = json!([{ "algorithm": "funnel", "capacity": 4_000, "rate": "7/s" }]);
    let settled_rule = with(
        optional(defaultable()),
        vec![
            ("key", key()),
            ("limits", Just(large).boxed()),
            ("cost", settled()),
        ],
    );
    let rule = prop_oneof![5 => rule, 1 => settled_rule];
    let rules = prop::collection::vec(rule, 0..4).prop_map(|mut rules: Vec<Value>| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule["name"] = json!(format!("rule-{index}"));
        }
        Value::from(rules)
    });
    let file = optional(vec![
        ("store", store()),
        ("fleet", fleet()),
        ("defaults", optional(defaults)),
        ("admin", embedded_admin()),
    ]);
    with(
        file,
        vec![
            ("version", Just(json!(1)).boxed()),
            ("rules", rules.boxed()),
        ],
    )
}

/// An admin configuration.
fn embedded_admin() -> Values {
    let tokens = prop::collection::vec(token(), 1..3).prop_map(Value::from);
    with(
        Just(json!({})).boxed(),
        vec![
            ("at", text("(/[0-9A-Za-z._~-]{1,9}){1,3}")),
            ("tokens", tokens.boxed()),
        ],
    )
}

fn token() -> Values {
    with(
        Just(json!({})).boxed(),
        vec![
            ("name", text("[!-~]{1,63}")),
            ("sha256", text("[0-9a-fA-F]{64}")),
            ("may", one_of(&["view", "edit"])),
        ],
    )
}

pub(super) fn valid_admin() -> impl Strategy<Value = Value> {
    let admin = with(
        optional(vec![("tokens", list(token(), 3))]),
        vec![("role", Just(json!("admin")).boxed())],
    );
    let version = Just(json!(1)).boxed();
    with(
        optional(vec![("store", store()), ("version", version)]),
        vec![("admin", admin)],
    )
}
