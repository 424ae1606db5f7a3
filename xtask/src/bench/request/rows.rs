//! The listeners that are measured side by side.

use std::path::{Path, PathBuf};

use loudou_tests::config::module;
use serde_json::{Value, json};

use crate::bench::parts::{TYPE, answer, listener, route, router};

/// No request is refused by these numbers.
const NEVER: u64 = 1_000_000;
/// The tokens of Envoy's own filter that no row uses up.
const MANY: u64 = 4_000_000_000;
/// The users of most rows.
const USERS: u64 = 1_000;

/// What limits the requests of a listener.
#[derive(Debug, Clone)]
pub(in crate::bench) enum Limits {
    Nothing,
    /// Envoy's own filter, with one bucket or with one for each user, and its tokens a day.
    Native {
        per_user: bool,
        tokens: u64,
    },
    /// An example of `tests/floor`.
    Floor(&'static str),
    /// These rules; of the other build if there is one to compare with.
    Loudou {
        rules: Value,
        is_other: bool,
    },
}

/// A listener, and the requests it gets.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Row {
    pub(in crate::bench) name: String,
    pub(in crate::bench) limits: Limits,
    pub(in crate::bench) users: u64,
    /// The answer to each request.
    pub(in crate::bench) status: u16,
}

/// The row that all others are compared with.
pub(super) const EMPTY: &str = "an empty filter, SDK";
/// The row that the ratio is to.
pub(super) const PER_USER: &str = "Envoy's local_ratelimit, per user";
/// The row of one rule that admits.
pub(super) const PLAIN: &str = "Loudou, one rule, admitted";

/// The modules to measure.
#[derive(Debug)]
pub(super) struct Modules {
    pub(super) loudou: PathBuf,
    pub(super) other: Option<PathBuf>,
    /// The directory of the examples of `tests/floor`.
    pub(super) floor: PathBuf,
}

impl Row {
    fn new(name: &str, limits: Limits) -> Self {
        Self {
            name: name.to_owned(),
            limits,
            users: USERS,
            status: 200,
        }
    }

    fn loudou(name: &str, rules: Value) -> Self {
        let limits = Limits::Loudou {
            rules,
            is_other: false,
        };
        Self::new(&format!("Loudou, {name}"), limits)
    }

    /// The same of the other build.
    fn of_other(&self) -> Self {
        let mut row = self.clone();
        row.name = row.name.replacen("Loudou", "the other build", 1);
        if let Limits::Loudou { is_other, .. } = &mut row.limits {
            *is_other = true;
        }
        row
    }

    /// Its filters, before those that answer.
    fn filters(&self, id: &str, modules: &Modules) -> Vec<Value> {
        match &self.limits {
            Limits::Nothing => Vec::new(),
            Limits::Native { per_user, tokens } => vec![native(*per_user, *tokens)],
            Limits::Floor(example) => {
                let wasm = modules.floor.join(format!("{example}.wasm"));
                vec![module(id, id, &wasm, &json!({}))]
            }
            Limits::Loudou { rules, is_other } => {
                let wasm = if *is_other {
                    modules.other.as_ref()
                } else {
                    None
                };
                let vm = if *is_other { "other" } else { "loudou" };
                let wasm: &Path = wasm.unwrap_or(&modules.loudou);
                // Keys fall on pages at random: without some room, full pages would evict.
                let buckets = (self.users * 13 / 10).max(65_536);
                let store = json!({ "namespace": id, "buckets": buckets });
                let file = json!({ "version": 1, "store": store, "rules": rules });
                vec![module(vm, id, wasm, &file)]
            }
        }
    }

    /// Its listener, of this name.
    pub(super) fn listener(&self, id: &str, modules: &Modules) -> Value {
        let mut filters = self.filters(id, modules);
        filters.extend([answer(), router()]);
        listener(id, &json!([route("/")]), &Value::Array(filters))
    }
}

/// All rows; with `many`, also those of many users.
pub(super) fn all(many: &[u64], is_beside_other: bool) -> Vec<Row> {
    let mut rows = vec![
        Row::new("no filter", Limits::Nothing),
        Row::new(
            "Envoy's local_ratelimit, one bucket",
            Limits::Native {
                per_user: false,
                tokens: MANY,
            },
        ),
        Row::new(
            PER_USER,
            Limits::Native {
                per_user: true,
                tokens: MANY,
            },
        ),
        refused_natively(),
        Row::new(EMPTY, Limits::Floor("empty_sdk")),
        Row::new("a minimal check, SDK", Limits::Floor("check_sdk")),
        Row::new("a minimal check, bare ABI", Limits::Floor("check_abi")),
        Row::new(
            "a minimal check with Loudou's calls, bare ABI",
            Limits::Floor("check_page"),
        ),
        Row::new(
            "a minimal check without shared data",
            Limits::Floor("check_local"),
        ),
    ];
    let of_loudou = loudou(many);
    if is_beside_other {
        rows.extend(of_loudou.iter().map(Row::of_other));
    }
    rows.extend(of_loudou);
    rows
}

/// Envoy's own filter with one token a day for all.
fn refused_natively() -> Row {
    let limits = Limits::Native {
        per_user: false,
        tokens: 1,
    };
    let mut row = Row::new("Envoy's local_ratelimit, one bucket, refused", limits);
    row.status = 429;
    row
}

/// The rows of Loudou.
pub(in crate::bench) fn loudou(many: &[u64]) -> Vec<Row> {
    let plain = || json!([rule("plain", json!({}))]);
    let mut refused = Row::loudou(
        "one rule, refused",
        json!([rule(
            "refuses",
            json!({ "limits": [limit("one", 1, "1/d")] })
        )]),
    );
    refused.status = 429;
    let mut rows = vec![
        Row::new(
            PLAIN,
            Limits::Loudou {
                rules: plain(),
                is_other: false,
            },
        ),
        refused,
        Row::loudou("no rule that matches", elsewhere(1)),
        Row::loudou("four limits", four_limits()),
        Row::loudou("10 rules, one applies", with_plain(elsewhere(9))),
        Row::loudou(
            "10 rules, all apply",
            (0..10)
                .map(|number| rule(&format!("r{number}"), json!({})))
                .collect(),
        ),
        Row::loudou("256 rules, one applies", with_plain(elsewhere(255))),
        Row::loudou(
            "draft-11 headers on all",
            json!([rule(
                "headers",
                json!({ "respond": { "ratelimit_headers": "draft11" } })
            )]),
        ),
        Row::loudou(
            "a limit that may hold",
            json!([rule("holds", json!({ "limits": [waiting()] }))]),
        ),
        Row::loudou(
            "a regular expression",
            json!([rule(
                "regex",
                json!({ "match": { "path": { "regex": "/[a-z]*[0-9]*" } } })
            )]),
        ),
    ];
    for users in many {
        let mut row = Row::loudou(&format!("one rule, {users} users"), plain());
        row.users = *users;
        rows.push(row);
    }
    rows
}

/// A rule by the user for all requests, with these fields.
fn rule(name: &str, fields: Value) -> Value {
    let mut rule = json!({
        "name": name, "key": [{ "header": "x-user-id" }],
        "limits": [limit("l", NEVER, "1000000/s")],
    });
    if let (Some(rule), Value::Object(fields)) = (rule.as_object_mut(), fields) {
        rule.extend(fields);
    }
    rule
}

fn limit(name: &str, capacity: u64, rate: &str) -> Value {
    json!({ "name": name, "algorithm": "funnel", "capacity": capacity, "rate": rate })
}

fn four_limits() -> Value {
    let limits = ["a", "b", "c", "d"].map(|name| limit(name, NEVER, "1000000/s"));
    json!([rule("four", json!({ "limits": limits }))])
}

/// A limit that would hold a request for a second.
fn waiting() -> Value {
    let mut limit = limit("waits", NEVER, "1000000/s");
    if let Some(limit) = limit.as_object_mut() {
        limit.insert("max_wait".to_owned(), json!("1s"));
    }
    limit
}

/// Rules for other paths.
fn elsewhere(count: usize) -> Value {
    let other = |number| {
        let path = json!({ "prefix": format!("/elsewhere-{number}") });
        rule(&format!("e{number}"), json!({ "match": { "path": path } }))
    };
    (0..count).map(other).collect()
}

/// These rules, and at last the plain one.
fn with_plain(mut rules: Value) -> Value {
    if let Some(rules) = rules.as_array_mut() {
        rules.push(rule("plain", json!({})));
    }
    rules
}

fn native(per_user: bool, tokens: u64) -> Value {
    let bucket =
        json!({ "max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": "86400s" });
    let always = json!({ "default_value": { "numerator": 100 } });
    let mut config = json!({
        "@type": format!("{TYPE}filters.http.local_ratelimit.v3.LocalRateLimit"),
        "stat_prefix": "native", "token_bucket": bucket,
        "filter_enabled": always, "filter_enforced": always,
    });
    if let (true, Some(config)) = (per_user, config.as_object_mut()) {
        let user =
            json!({ "request_headers": { "header_name": "x-user-id", "descriptor_key": "user" } });
        config.insert("rate_limits".to_owned(), json!([{ "actions": [user] }]));
        // Any value of the key has a bucket of its own.
        let descriptor = json!({ "entries": [{ "key": "user" }], "token_bucket": bucket });
        config.insert("descriptors".to_owned(), json!([descriptor]));
        config.insert("max_dynamic_descriptors".to_owned(), json!(100_000));
    }
    json!({ "name": "local", "typed_config": config })
}
