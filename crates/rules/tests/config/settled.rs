//! Costs that are settled at the end: what is wrong with them, and which limits can settle them.

use loudou_rules::config::{parse_edit, parse_rule, unsettled};
use serde_json::{Value, json};

use super::{of_rule, rule};

/// The problems of a cost, by their places in it.
fn of_cost(cost: &Value) -> Vec<String> {
    let limits = json!([{ "algorithm": "funnel", "capacity": 10_000, "rate": "1/s" }]);
    let lines = of_rule(&json!({ "limits": limits, "cost": cost }));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("cost.").unwrap_or(line));
    local.map(str::to_string).collect()
}

#[test]
fn wrong_costs() {
    let with = |field: &str, value: Value| {
        let mut cost = json!({ "reserve": 5, "settle": "token_usage", "max": 100 });
        cost[field] = value;
        cost
    };
    assert_eq!(of_cost(&with("beyond_reservation", json!(true))), [""; 0]);
    for (field, value, expected) in [
        (
            "reserve",
            Value::Null,
            "cost: `reserve` is missing; allowed: a number, or `header`, `metadata` or `request_bytes`, or a list of them",
        ),
        (
            "reserve",
            json!(-1),
            "reserve: -1: out of range; allowed: a whole number from 0 to 1000000000",
        ),
        (
            "reserve",
            json!(101),
            "reserve: 101: the reservation 101 is above `max`; allowed: a whole number from 0 to 100",
        ),
        (
            "reserve",
            json!([]),
            "reserve: []: the list is empty; allowed: at least one source",
        ),
        (
            "max",
            Value::Null,
            "cost: `max` is missing; allowed: the largest reservation of a request",
        ),
        (
            "max",
            json!(0),
            "max: 0: out of range; allowed: a whole number from 1 to 1000000000",
        ),
        (
            "settle",
            json!("tokens"),
            "settle: \"tokens\": unknown value; allowed: token_usage",
        ),
        (
            "settle",
            json!([]),
            "settle: []: the list is empty; allowed: at least one source",
        ),
        (
            "settle",
            json!({ "status": {} }),
            "settle.status: {}: the table is empty; allowed: costs by status: { 401: 1, 2xx: 0 }",
        ),
        (
            "settle",
            json!({ "status": { "6xx": 1 } }),
            "settle.status.6xx: unknown status; allowed: a code such as 401, or a class such as 5xx",
        ),
        (
            "settle",
            json!({ "status": { "099": 1 } }),
            "settle.status.099: unknown status; allowed: a code such as 401, or a class such as 5xx",
        ),
        (
            "settle",
            json!({ "status": { "401": -1 } }),
            "settle.status.401: -1: out of range; allowed: a whole number from 0 to 1000000000",
        ),
        (
            "settle",
            json!({ "response_header": "a b" }),
            "settle.response_header: \"a b\": invalid header name; allowed: letters, digits and !#$%&'*+-.^_`|~",
        ),
        (
            "settle",
            json!({ "duration": "0s" }),
            "settle.duration: \"0s\": out of range; allowed: a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d; from 1ms to 1d",
        ),
        (
            "weights",
            json!({ "output": -1 }),
            "weights.output: -1: out of range; allowed: a number from 0 to 1000 with at most 3 decimals",
        ),
        (
            "default",
            json!(1),
            "default: 1: without effect: a request without any source reserves `max`; allowed: a number at the end of `reserve`",
        ),
    ] {
        assert_eq!(of_cost(&with(field, value)), [expected], "{field}");
    }
}

/// The word is parsed as the cost that it stands for, so everything that shows a rule shows its numbers.
#[test]
fn the_word_for_tokens() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 4_000, "rate": "1/s" }]);
    let parsed = |cost: &Value| parse_rule(&rule(&json!({ "limits": limits, "cost": cost })));
    let written = json!({
        "reserve": [{ "metadata": ["llm", "max_tokens"] }, 500], "settle": "token_usage", "max": 4_000,
    });
    assert_eq!(parsed(&json!("llm_tokens")), parsed(&written));
    let allowed = "a whole number from 1 to 1000000000, llm_tokens, or an object with header, metadata, request_bytes, settle";
    assert_eq!(
        of_cost(&json!("llm-tokens")),
        [format!(
            "cost: \"llm-tokens\": unknown value; allowed: {allowed}; did you mean `llm_tokens`?"
        )]
    );
    assert_eq!(
        of_cost(&json!("5")),
        [format!("cost: \"5\": unknown value; allowed: {allowed}")]
    );
}

#[test]
fn wrong_models() {
    let of_models = |models: Value| {
        of_cost(
            &json!({ "reserve": 5, "settle": "token_usage", "max": 9, "weights": { "models": models } }),
        )
    };
    let long = "m".repeat(129);
    for (models, expected) in [
        (
            json!({ "gpt 4\u{1b}": {} }),
            "gpt 4\\u{1b}: invalid model; allowed: 1 to 128 printable characters of ASCII, without spaces; a `*` at the \
             end stands for the rest of a name",
        ),
        (
            json!({ "m": { "outptu": 4 } }),
            "m.outptu: unknown field; allowed: input, output, cached; did you mean `output`?",
        ),
        (
            json!({ "m": { "output": 1_001 } }),
            "m.output: 1001: out of range; allowed: a number from 0 to 1000 with at most 3 decimals",
        ),
    ] {
        assert_eq!(of_models(models), [format!("weights.models.{expected}")]);
    }
    assert_eq!(of_models(json!({ long: {} })).len(), 1);
    let many = |count: usize| {
        let models = (0..count).map(|n| (format!("m{n}"), json!({})));
        of_models(models.collect::<serde_json::Map<_, _>>().into())
    };
    assert_eq!(many(64), [""; 0]);
    let found = many(65);
    assert!(
        found.len() == 1 && found[0].ends_with("too many models; allowed: at most 64"),
        "{found:?}"
    );
}

#[test]
fn fields_that_need_another_one() {
    let weights =
        json!({ "reserve": 5, "settle": { "status": { "401": 1 } }, "max": 9, "weights": {} });
    assert_eq!(
        of_cost(&weights),
        [
            "weights: {}: without effect: the sources in `settle` count no tokens; allowed: weights with `settle: [token_usage]`"
        ]
    );
    let reserved = json!({ "header": "x-cost", "max": 9, "reserve": 5 });
    assert_eq!(
        of_cost(&reserved),
        ["reserve: 5: requires `settle`; allowed: `settle` beside it"]
    );
}

/// The problems of a limit under a cost, by their places in the limit.
fn of_limit(cost: &Value, limit: &Value) -> Vec<String> {
    let lines = of_rule(&json!({ "limits": [limit], "cost": cost }));
    let local = lines
        .iter()
        .map(|line| line.strip_prefix("limits[0].").unwrap_or(line));
    local.map(str::to_string).collect()
}

#[test]
fn limits_that_cannot_settle() {
    let tokens = json!({ "reserve": 5, "settle": "token_usage", "max": 100 });
    // A login reserves one try, and costs at most that.
    let login = json!({ "reserve": 1, "settle": { "status": { "401": 1, "2xx": 0 } }, "max": 1 });
    let limit = |algorithm: &str, fields: Value| {
        let mut limit = json!({ "algorithm": algorithm, "capacity": 100 });
        for (name, value) in fields.as_object().expect("an object") {
            limit[name] = value.clone();
        }
        limit
    };
    for fit in [
        limit("funnel", json!({ "rate": "1/s" })),
        limit("token_bucket", json!({ "rate": "1/s" })),
        limit(
            "token_bucket",
            json!({ "rate": "100/d", "refill": "interval", "align": "clock" }),
        ),
    ] {
        assert_eq!(of_limit(&tokens, &fit), [""; 0]);
        assert_eq!(of_limit(&login, &fit), [""; 0]);
    }
    let debt = |name: &str| {
        format!(
            "algorithm: \"{name}\": the limit `{name}` cannot have a debt, because it forgets its count at the end of \
             a window, but a request may cost more than it reserves; allowed: funnel; token_bucket, for a budget a day \
             with `refill: interval` and `align: clock`; any window if `settle` is a `status` table without costs above \
             the reservation"
        )
    };
    for window in [
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "sliding_counter",
    ] {
        let limit = limit(window, json!({ "window": "1m" }));
        assert_eq!(of_limit(&login, &limit), [""; 0]);
        assert_eq!(of_limit(&tokens, &limit), [debt(window)]);
    }
    let strict = json!({ "reserve": 1, "settle": { "status": { "401": 2 } }, "max": 2 });
    assert_eq!(
        of_limit(&strict, &limit("sliding_log", json!({ "window": "1m" }))),
        [debt("sliding_log")]
    );
    for (cannot, expected) in [
        (
            limit("funnel", json!({ "rate": "1/s", "max_wait": "5s" })),
            "max_wait: \"5s\": a request whose cost is settled cannot wait for the limit `funnel`; allowed: no \
             `max_wait` with `settle`",
        ),
        (
            limit("leaky_queue", json!({ "rate": "1/s" })),
            "algorithm: \"leaky_queue\": the limit `leaky_queue` cannot settle costs; allowed: funnel, token_bucket, \
             fixed_window, sliding_window, sliding_log, sliding_counter",
        ),
        (
            limit("concurrency", json!({ "lease": "1m" })),
            "algorithm: \"concurrency\": the limit `concurrency` cannot settle costs; allowed: funnel, token_bucket, \
             fixed_window, sliding_window, sliding_log, sliding_counter",
        ),
    ] {
        assert_eq!(of_limit(&login, &cannot), [expected]);
    }
    let small = json!({ "algorithm": "funnel", "capacity": 99, "rate": "1/s" });
    assert_eq!(
        of_limit(&tokens, &small),
        [
            "capacity: 99: the limit `funnel` never admits the largest reservation, 100; allowed: at least 100, or a \
          `max` of at most 99 in `cost`"
        ]
    );
}

/// A charge at the end is a debt, for which windows and fleets have no place.
#[test]
fn reservations_of_nothing() {
    let login = json!({ "reserve": 0, "settle": { "status": { "401": 1 } }, "max": 1 });
    let log = json!({ "algorithm": "sliding_log", "capacity": 5, "window": "1m" });
    let found = of_limit(&login, &log);
    assert!(
        found.len() == 1 && found[0].contains("cannot have a debt"),
        "{found:?}"
    );
    let funnel = json!({ "algorithm": "funnel", "capacity": 5, "rate": "1/s" });
    assert_eq!(of_limit(&login, &funnel), [""; 0]);
    for reserve in [json!(0), json!([{ "header": "x-max" }, 0])] {
        let mut cost = login.clone();
        cost["reserve"] = reserve;
        // The first problem is that the file has no fleet.
        let found = of_rule(&json!({ "limits": [funnel], "cost": cost, "scope": "fleet" }));
        assert_eq!(
            found[1..],
            [
                "cost.reserve: 0: with `scope: fleet`, a request that reserves nothing does not learn what the key owes \
                 at other Envoys; allowed: a reservation of at least 1, or `scope: envoy`"
            ]
        );
    }
}

/// An edit cannot set limits that cannot settle, but it may lower a capacity below the largest reservation.
#[test]
fn edited_rules() {
    let limits = json!([{ "algorithm": "funnel", "capacity": 100, "rate": "1/s" }]);
    let cost = json!({ "reserve": 5, "settle": "token_usage", "max": 100 });
    let edited = |edit: &Value| -> Vec<String> {
        let mut rule =
            parse_rule(&rule(&json!({ "limits": limits, "cost": cost }))).expect("valid");
        parse_edit(edit).expect("an edit").apply(&mut rule);
        unsettled(&rule)
            .iter()
            .map(|problem| problem.path.to_string())
            .collect()
    };
    let log = json!([{ "algorithm": "sliding_log", "capacity": 5, "window": "1m" }]);
    let small = json!([{ "algorithm": "token_bucket", "capacity": 5, "rate": "1/s" }]);
    assert_eq!(edited(&json!({ "limits": log })), ["limits[0].algorithm"]);
    assert_eq!(
        edited(&json!({ "overrides": { "a": { "limits": log } } })),
        ["overrides.a.limits[0].algorithm"]
    );
    assert_eq!(edited(&json!({ "limits": small })), [""; 0]);
    let in_file = of_rule(
        &json!({ "limits": limits, "cost": cost, "overrides": { "a": { "limits": small } } }),
    );
    assert_eq!(in_file.len(), 1, "{in_file:?}");
    assert!(
        in_file[0].starts_with("overrides.a.limits[0].capacity: 5: "),
        "{in_file:?}"
    );
}
