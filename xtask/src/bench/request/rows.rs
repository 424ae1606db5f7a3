//! Defines the rows of the benchmark: listeners with different filters.

use std::path::{Path, PathBuf};

use loudou_tests::config::module;
use serde_json::{Value, json};

use crate::bench::parts::{TYPE, answer, listener, route, router};

/// Capacity of a limit that never refuses a request in a benchmark.
const NEVER: u64 = 1_000_000;
/// Number of tokens for Envoy's own filter that no row exhausts.
const MANY: u64 = 4_000_000_000;
/// Number of users in most rows.
const USERS: u64 = 1_000;

/// The filter that limits the requests of a row.
#[derive(Debug, Clone)]
pub(in crate::bench) enum Limits {
    Nothing,
    /// Envoy's own filter with this number of tokens per day, either in a single bucket or in one
    /// bucket per user.
    Native {
        per_user: bool,
        tokens: u64,
    },
    /// A filter from the examples in `tests/floor`.
    Floor(&'static str),
    /// This build of Loudou with these rules.
    Loudou {
        rules: Value,
        build: Build,
    },
}

/// Builds of Loudou that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Build {
    Wasm,
    /// The build from the option `--compare`.
    Other,
    /// The native module.
    Native,
}

/// A listener, and the requests that are sent to it.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Row {
    pub(in crate::bench) name: String,
    pub(in crate::bench) limits: Limits,
    pub(in crate::bench) users: u64,
    /// Expected status of the response to each request.
    pub(in crate::bench) status: u16,
}

/// Row with the empty filter, from which the differences of all rows are computed.
pub(super) const EMPTY: &str = "an empty filter, SDK";
/// Row with Envoy's own filter, to which the ratios of all rows are computed.
pub(super) const PER_USER: &str = "Envoy's local_ratelimit, per user";
/// Row in which one rule admits every request.
pub(super) const PLAIN: &str = "Loudou, one rule, admitted";

/// Files of the filters to measure.
#[derive(Debug)]
pub(super) struct Modules {
    pub(super) loudou: PathBuf,
    pub(super) other: Option<PathBuf>,
    pub(super) native: PathBuf,
    /// Directory of the examples in `tests/floor`.
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
        let build = Build::Wasm;
        let limits = Limits::Loudou { rules, build };
        Self::new(&format!("Loudou, {name}"), limits)
    }

    /// Returns the same row for another build of Loudou, with `name` in place of `Loudou` in the
    /// row's name.
    fn of(&self, other: Build, name: &str) -> Self {
        let mut row = self.clone();
        row.name = row.name.replacen("Loudou", name, 1);
        if let Limits::Loudou { build, .. } = &mut row.limits {
            *build = other;
        }
        row
    }

    /// Returns the row's filters; the filter that answers the requests follows them.
    fn filters(&self, id: &str, modules: &Modules) -> Vec<Value> {
        match &self.limits {
            Limits::Nothing => Vec::new(),
            Limits::Native { per_user, tokens } => vec![native(*per_user, *tokens)],
            Limits::Floor(example) => {
                let wasm = modules.floor.join(format!("{example}.wasm"));
                vec![module(id, id, &wasm, &json!({}))]
            }
            Limits::Loudou { rules, build } => {
                let (vm, name, file) = match build {
                    Build::Wasm => ("loudou", id, Some(&modules.loudou)),
                    Build::Other => ("other", id, modules.other.as_ref()),
                    Build::Native => ("", "loudou", Some(&modules.native)),
                };
                let path: &Path = file.unwrap_or(&modules.loudou);
                // Keys are assigned to pages at random. Without spare capacity, keys in full pages
                // would evict each other's buckets.
                let buckets = (self.users * 13 / 10).max(65_536);
                let store = json!({ "namespace": id, "buckets": buckets });
                let file = json!({ "version": 1, "store": store, "rules": rules });
                vec![module(vm, name, path, &file)]
            }
        }
    }

    /// Returns the row's listener, with `id` as its name.
    pub(super) fn listener(&self, id: &str, modules: &Modules) -> Value {
        let mut filters = self.filters(id, modules);
        filters.extend([answer(), router()]);
        listener(id, &json!([route("/")]), &Value::Array(filters))
    }
}

/// Returns all rows. For each number in `many`, also returns a row of Loudou with this many users.
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
        let of_other = |row: &Row| row.of(Build::Other, "the other build");
        rows.extend(of_loudou.iter().map(of_other));
    }
    let native = |row: &Row| row.of(Build::Native, "the native module");
    rows.extend(of_loudou.iter().map(native));
    rows.extend(of_loudou);
    rows
}

/// Returns a row in which Envoy's own filter refuses requests: it has one token per day for all
/// users.
fn refused_natively() -> Row {
    let limits = Limits::Native {
        per_user: false,
        tokens: 1,
    };
    let mut row = Row::new("Envoy's local_ratelimit, one bucket, refused", limits);
    row.status = 429;
    row
}

/// Returns the rows of Loudou.
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
                build: Build::Wasm,
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
        // No upstream receives the request, so the whole reservation is returned when the request
        // ends.
        Row::loudou(
            "a cost settled at the end",
            json!([rule(
                "settles",
                json!({ "cost": { "reserve": 2, "settle": { "status": { "2xx": 1 } }, "max": 2 } })
            )]),
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

/// Returns a rule that has one bucket per user and matches all requests; `fields` replaces its
/// defaults.
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

/// Returns a limit that would hold an excess request for up to a second.
fn waiting() -> Value {
    let mut limit = limit("waits", NEVER, "1000000/s");
    if let Some(limit) = limit.as_object_mut() {
        limit.insert("max_wait".to_owned(), json!("1s"));
    }
    limit
}

/// Returns rules that match only other paths.
fn elsewhere(count: usize) -> Value {
    let other = |number| {
        let path = json!({ "prefix": format!("/elsewhere-{number}") });
        rule(&format!("e{number}"), json!({ "match": { "path": path } }))
    };
    (0..count).map(other).collect()
}

/// Appends the plain rule to these rules.
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
        // Each value of the key gets its own bucket.
        let descriptor = json!({ "entries": [{ "key": "user" }], "token_bucket": bucket });
        config.insert("descriptors".to_owned(), json!([descriptor]));
        config.insert("max_dynamic_descriptors".to_owned(), json!(100_000));
    }
    json!({ "name": "local", "typed_config": config })
}
