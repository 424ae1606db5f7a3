//! Costs that are reserved when a request arrives, and settled when it ends.

use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::upstream::{AS, COST, TYPE};
use loudou_tests::{Config, Envoy, Fleet, Http, Operator, Request, Upstream, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);

/// Returns a rule with a bucket of tokens for each user, of which practically none come back.
fn tokens(capacity: u32, cost: &Value) -> Value {
    json!({
        "name": "tokens",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "token_bucket", "capacity": capacity, "rate": "1/d" }],
        "cost": cost,
    })
}

fn in_front_of(upstream: &Upstream, rule: &Value) -> Result<Envoy> {
    let to = |path: &str, cluster: &str| json!({ "match": { "prefix": path }, "route": { "cluster": cluster, "timeout": "0.5s" } });
    let direct = json!({ "match": { "prefix": "/direct" }, "direct_response": { "status": 418 } });
    let slow = json!({ "match": { "prefix": "/slow" }, "route": { "cluster": "upstream", "timeout": "60s" } });
    let config = Config::new(json!([rule]))
        .upstream(upstream.address())
        .cluster("nowhere", None)
        .routes(json!([
            direct,
            slow,
            to("/nowhere", "nowhere"),
            to("/", "upstream")
        ]));
    Envoy::start(&config)
}

fn used(ops: &mut Operator, user: &str) -> Result<u64> {
    let bucket = ops.bucket("tokens", user)?;
    let limit = bucket
        .as_ref()
        .and_then(|bucket| bucket.pointer("/limits/0/used"));
    Ok(limit.and_then(Value::as_u64).unwrap_or(0))
}

/// Waits until a user has used this many tokens.
fn has_used(ops: &mut Operator, user: &str, expected: u64) -> Result<()> {
    let mut last = 0;
    eventually(SOON, &format!("{user} to have used {expected}"), || {
        last = used(ops, user)?;
        Ok((last == expected).then_some(()))
    })
    .with_context(|| format!("the last number was {last}"))
}

/// Sends a request for each of `users`, all at once, and returns how many of them were admitted. The upstream answers
/// when all of them have been decided.
fn at_once(envoy: &Envoy, upstream: &Upstream, users: &[String], request: &Request) -> Result<u64> {
    let before = upstream.requests();
    let admitted = thread::scope(|scope| {
        let clients: Vec<_> = users
            .iter()
            .map(|user| {
                let request = request.clone().header("x-user-id", user);
                scope.spawn(move || envoy.data().send(&request))
            })
            .collect();
        let decided = || -> Result<u64> {
            Ok(envoy.counter("wasmcustom.loudou.rule.tokens.admitted")?
                + envoy.counter("wasmcustom.loudou.rule.tokens.refused")?)
        };
        let all = u64::try_from(users.len())?;
        let decided = eventually(SOON, "all to be decided", || {
            let arrived = upstream.requests() - before;
            Ok((decided()? % all == 0
                && decided()? > 0
                && arrived == envoy.counter("wasmcustom.loudou.rule.tokens.admitted")?)
            .then_some(()))
        });
        upstream.open_gate();
        decided?;
        let mut admitted = 0;
        for client in clients {
            let answer = client
                .join()
                .map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
            ensure!(matches!(answer.status, 200 | 429), "{answer:?}");
            admitted += u64::from(answer.status == 200);
        }
        Ok(admitted)
    })?;
    ensure!(upstream.requests() - before == admitted);
    Ok(admitted)
}

/// Five calls at once cost 133 tokens each, of a limit of 100. What they spend depends on what they reserve: the limit
/// and what the admitted calls need beyond their reservations.
#[test]
fn parallel_calls_spend_what_they_reserve() -> Result<()> {
    for (reserve, admitted) in [(100, 1), (50, 2), (20, 5), (1, 5), (0, 5)] {
        let upstream = Upstream::start()?;
        let cost =
            json!({ "reserve": reserve, "settle": { "response_header": "x-cost" }, "max": 100 });
        let envoy = in_front_of(&upstream, &tokens(100, &cost))?;
        let mut ops = Operator::viewer(&envoy);
        let request = Request::get("/slow").header(AS, "gate").header(COST, "133");
        let users = vec!["alice".to_owned(); 5];
        let calls = at_once(&envoy, &upstream, &users, &request)?;
        let spent = calls * 133;
        println!("reserve {reserve:>3}: {calls} of 5 calls pass, {spent} tokens spent of 100");
        ensure!(
            calls == admitted,
            "reserve {reserve}: {calls} were admitted"
        );
        ensure!(spent <= 100 + calls * (133 - reserve), "the bound");
        has_used(&mut ops, "alice", spent)?;
        // The debt is repaid before anybody passes: at a token a day, not today.
        let refused = envoy
            .data()
            .send(&Request::get("/").header("x-user-id", "alice"))?;
        ensure!(refused.status == 429, "{refused:?}");
        let retry_after: u64 = refused.header("retry-after").context("no time")?.parse()?;
        // A request that reserves nothing needs a unit.
        let days = (spent + reserve.max(1) - 100) * 86_400;
        // The bucket has refilled for seconds at most, and the time is rounded up.
        ensure!(
            retry_after <= days && retry_after + 60 > days,
            "{retry_after} of {days} s"
        );
        let counter =
            |name: &str| envoy.counter(&format!("wasmcustom.loudou.rule.tokens.settled_{name}"));
        ensure!(counter("reported")? == calls && counter("estimated")? == 0);
        ensure!(counter("debt")? == spent - calls * reserve && counter("returned")? == 0);
        envoy.stop()?;
    }
    Ok(())
}

/// A login is charged for a wrong password only. It reserves one try, so that wrong passwords at once are not free, and
/// gets it back if the password is right or the upstream fails.
#[test]
fn only_wrong_passwords_count() -> Result<()> {
    let upstream = Upstream::start()?;
    let cost =
        json!({ "reserve": 1, "settle": { "status": { "401": 1, "2xx": 0, "5xx": 0 } }, "max": 1 });
    let mut rule = tokens(5, &cost);
    *rule.pointer_mut("/limits/0").context("a limit")? =
        json!({ "algorithm": "sliding_log", "capacity": 5, "window": "10m" });
    let envoy = in_front_of(&upstream, &rule)?;
    let mut ops = Operator::viewer(&envoy);
    let login = |user: &str, status: &str| {
        Request::post("/")
            .header("x-user-id", user)
            .header(AS, status)
    };
    let mut http = envoy.data();
    // Envoy settles a request before it sends the end of the response, so the client's next request finds the
    // reservation returned.
    for n in 0..500 {
        let answer = http.send(&login("alice", "200"))?;
        ensure!(answer.status == 200, "right password {n}: {answer:?}");
    }
    for _ in 0..20 {
        ensure!(http.send(&login("carol", "503"))?.status == 503);
    }
    let before = upstream.requests();
    let statuses = thread::scope(|scope| {
        let tries: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| envoy.data().send(&login("mallory", "401"))))
            .collect();
        let mut statuses = Vec::new();
        for one in tries {
            let answer = one
                .join()
                .map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
            statuses.push(answer.status);
        }
        Ok::<_, anyhow::Error>(statuses)
    })?;
    let tried = statuses.iter().filter(|status| **status == 401).count();
    ensure!(
        tried == 5 && upstream.requests() - before == 5,
        "{statuses:?}"
    );
    has_used(&mut ops, "mallory", 5)?;
    envoy.stop()
}

/// What a request costs that reserved 100 units, however it ends. Nothing stays reserved.
#[test]
fn every_end_has_its_cost() -> Result<()> {
    let upstream = Upstream::start()?;
    let settle = json!([{ "response_header": "x-cost" }]);
    let cost = json!({ "reserve": 100, "settle": settle, "max": 100 });
    let envoy = in_front_of(&upstream, &tokens(2_000, &cost))?;
    let mut ops = Operator::viewer(&envoy);
    let mut table = Vec::new();
    for (path, answer_as, cost, expected) in [
        // The upstream has reported the cost.
        ("/", "200", "7", 7),
        ("/", "200", "0", 0),
        ("/", "200", "1234", 1_234),
        ("/", "404", "5", 5),
        ("/", "503", "5", 5),
        // A response without a valid number.
        ("/", "200", "", 100),
        ("/", "200", "-7", 100),
        ("/", "404", "", 0),
        ("/", "503", "", 0),
        // The upstream may have worked, but its response is not whole.
        ("/", "hang", "", 100),
        ("/", "close", "", 100),
        ("/", "cut", "", 100),
        ("/", "cut", "7", 100),
        // No upstream has received it.
        ("/nowhere", "200", "7", 0),
        ("/direct", "200", "7", 0),
    ] {
        let user = format!("user-{}", table.len());
        let mut request = Request::get(path)
            .header("x-user-id", &user)
            .header(AS, answer_as);
        if !cost.is_empty() {
            request = request.header(COST, cost);
        }
        let status = envoy.data().send(&request).map(|answer| answer.status).ok();
        has_used(&mut ops, &user, expected)
            .with_context(|| format!("{path} {answer_as} {cost:?}: {status:?}"))?;
        table.push(format!(
            "{path} {answer_as} {cost:?}: {status:?} costs {expected}"
        ));
    }
    println!("{}", table.join("\n"));
    ensure!(envoy.counter("wasmcustom.loudou.store.lost_returns")? == 0);
    envoy.stop()
}

/// Retries, time-outs and circuit breakers hide neither that an upstream has received a request nor that none has.
#[test]
fn tries_and_time_outs_have_their_costs() -> Result<()> {
    let upstream = Upstream::start()?;
    let cost = json!({ "reserve": 100, "settle": [{ "response_header": "x-cost" }, { "response_bytes": 1 }], "max": 100 });
    let route = |path: &str, more: &Value| {
        let mut route = json!({ "cluster": "upstream", "timeout": "0.5s" });
        for (field, value) in more.as_object().into_iter().flatten() {
            route[field.as_str()] = value.clone();
        }
        json!({ "match": { "prefix": path }, "route": route })
    };
    let retried = json!({ "retry_policy": { "retry_on": "5xx,reset", "num_retries": 1 } });
    let short =
        json!({ "timeout": "60s", "max_stream_duration": { "max_stream_duration": "0.5s" } });
    // No second try is ever allowed, and there is only one connection.
    let breaker = json!({ "thresholds": [{ "max_retries": 0, "max_connections": 1 }] });
    let config = Config::new(json!([tokens(2_000, &cost)]))
        .upstream(upstream.address())
        .cluster_field("circuit_breakers", breaker)
        .concurrency(1)
        .routes(json!([
            route("/retried", &retried),
            route("/short", &short),
            route("/slow", &json!({ "timeout": "60s" })),
            route("/", &json!({}))
        ]));
    let envoy = Envoy::start(&config)?;
    let request = |path: &str, answer_as: &str| Request::get(path).header(AS, answer_as);
    // The first try was received, and a circuit breaker refused the second one.
    costs(&envoy, "tokens", "reset", request("/retried", "close"), 100)?;
    costs(
        &envoy,
        "tokens",
        "told",
        request("/retried", "503").header(COST, "700"),
        700,
    )?;
    costs(&envoy, "tokens", "error", request("/retried", "503"), 0)?;
    // Envoy ends a response without a flag. What has come of it is no whole cost.
    costs(
        &envoy,
        "tokens",
        "short",
        request("/short", "hold").header(COST, "700"),
        100,
    )?;
    // Envoy's own answers have a body, too.
    costs(&envoy, "tokens", "hang", request("/", "hang"), 100)?;
    costs(&envoy, "tokens", "cut", request("/", "cut"), 4)?;
    // The only connection is busy, so this request is still in Envoy when its time is over.
    thread::scope(|scope| {
        let before = upstream.requests();
        let busy = scope.spawn(|| envoy.data().send(&request("/slow", "gate")));
        eventually(SOON, "the request to arrive", || {
            Ok((upstream.requests() > before).then_some(()))
        })?;
        let waits = request("/", "200").header("x-user-id", "waits");
        let answer = envoy.data().send(&waits);
        let sent = upstream.requests();
        upstream.open_gate();
        let answer = answer?;
        ensure!(answer.status == 504 && sent == before + 1, "{answer:?}");
        let mut ops = Operator::viewer(&envoy);
        has_used(&mut ops, "waits", 0)?;
        busy.join()
            .map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
        Ok::<_, anyhow::Error>(())
    })?;
    envoy.stop()
}

/// Returns a rule for the requests below a path, with a bucket for each user.
fn rule_of(name: &str, cost: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "algorithm": "token_bucket", "capacity": 2_000, "rate": "1/d" }],
        "cost": cost,
    })
}

/// An Envoy that counts tokens, and that reads the header `x-cost` of responses into the metadata.
fn counting_tokens(upstream: &Upstream, rules: Value) -> Result<Envoy> {
    Envoy::start(&counting(upstream, rules))
}

fn counting(upstream: &Upstream, rules: Value) -> Config {
    let config = Config::new(rules).upstream(upstream.address());
    let config = config.filter_behind(json!({ "name": "tokens", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager",
        "response_handling": { "token_usage": { "include_unconfigured_routes": true } },
    } }));
    config.filter_behind(json!({ "name": "metadata", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "response_rules": [{ "header": "x-cost", "on_header_present": { "metadata_namespace": "costs", "key": "cost", "type": "NUMBER" } }],
    } }))
}

fn used_in(ops: &mut Operator, rule: &str, user: &str) -> Result<u64> {
    let bucket = ops.bucket(rule, user)?;
    let limit = bucket
        .as_ref()
        .and_then(|bucket| bucket.pointer("/limits/0/used"));
    Ok(limit.and_then(Value::as_u64).unwrap_or(0))
}

/// Sends a request to a rule, and waits until it has cost this much.
fn costs(envoy: &Envoy, rule: &str, user: &str, request: Request, expected: u64) -> Result<()> {
    let mut ops = Operator::viewer(envoy);
    let answer = envoy.data().send(&request.header("x-user-id", user));
    let answer = answer.map(|answer| answer.status).ok();
    let mut last = 0;
    eventually(SOON, "the cost", || {
        last = used_in(&mut ops, rule, user)?;
        Ok((last == expected).then_some(()))
    })
    .with_context(|| {
        format!("{rule} {user}: {last} instead of {expected}, answered with {answer:?}")
    })
}

/// Each source of a reservation and of a real cost, in a real Envoy.
#[test]
fn every_source_of_a_cost() -> Result<()> {
    let upstream = Upstream::start()?;
    let envoy = counting_tokens(
        &upstream,
        json!([
            rule_of(
                "metadata",
                &json!({ "reserve": [{ "metadata": ["costs", "none"] }, { "header": "x-max" }], "settle": { "metadata": ["costs", "cost"] }, "max": 1_000 })
            ),
            rule_of(
                "bytes",
                &json!({ "reserve": { "request_bytes": 10 }, "settle": { "response_bytes": 10 }, "max": 1_000 })
            ),
            rule_of(
                "beyond",
                &json!({ "reserve": 5, "settle": { "response_bytes": 1 }, "max": 5, "beyond_reservation": true })
            ),
            rule_of(
                "duration",
                &json!({ "reserve": 500, "settle": { "duration": "1d" }, "max": 500 })
            ),
        ]),
    )?;
    let body = |length: usize| {
        Request::post("/bytes")
            .header(AS, "echo")
            .body(vec![b'a'; length])
    };
    costs(&envoy, "bytes", "alice", body(95), 10)?;
    costs(&envoy, "bytes", "bob", body(1), 1)?;
    costs(&envoy, "bytes", "carol", Request::get("/bytes"), 1)?;
    let metadata = |cost: &str| {
        Request::get("/metadata")
            .header("x-max", "300")
            .header(COST, cost)
    };
    costs(&envoy, "metadata", "alice", metadata("42"), 42)?;
    costs(&envoy, "metadata", "bob", metadata("1900.5"), 1_901)?;
    costs(&envoy, "metadata", "carol", metadata("-42"), 300)?;
    let cut = |rule: &str| {
        Request::post(&format!("/{rule}"))
            .header(AS, "dribble-cut")
            .body(vec![b'a'; 70])
    };
    costs(
        &envoy,
        "metadata",
        "dave",
        cut("metadata").header("x-max", "7"),
        7,
    )?;
    costs(&envoy, "bytes", "dave", cut("bytes"), 4)?;
    costs(&envoy, "beyond", "dave", cut("beyond"), 35)?;
    // A request that takes less than a day takes a part of it.
    costs(&envoy, "duration", "alice", Request::get("/duration"), 1)?;
    envoy.stop()
}

/// A response: its name, content type and body, and its cost without weights and with them.
type Shape = (&'static str, &'static str, String, u64, u64);

/// Returns the responses of LLM services in all their shapes.
fn shapes() -> Vec<Shape> {
    let sse = |events: &[Value], done: bool| {
        let event = |event: &Value| {
            let name = event.get("type").and_then(Value::as_str);
            let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
            format!("{name}data: {event}\n\n")
        };
        let mut text = events.iter().map(event).collect::<Vec<_>>().concat();
        if done {
            text.push_str("data: [DONE]\n\n");
        }
        text
    };
    let chat = json!({
        "id": "c", "object": "chat.completion", "model": "m",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "h\u{e9}llo" }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": { "cached_tokens": 50 } },
    });
    let chunk = |choices: Value, usage: Value| json!({ "id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices, "usage": usage });
    let delta = |text: &str| json!([{ "index": 0, "delta": { "content": text } }]);
    let chat_stream = sse(
        &[
            chunk(delta("h\u{e9}"), Value::Null),
            chunk(delta("llo \u{6f0f}\u{6597}"), Value::Null),
            chunk(
                json!([]),
                json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "prompt_tokens_details": { "cached_tokens": 50 } }),
            ),
        ],
        true,
    );
    let response = json!({
        "id": "r", "object": "response", "status": "completed", "model": "m", "output": [],
        "usage": { "input_tokens": 100, "input_tokens_details": { "cached_tokens": 50 }, "output_tokens": 20, "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": 120 },
    });
    let response_stream = sse(
        &[
            json!({ "type": "response.created", "response": { "id": "r", "object": "response", "status": "in_progress" } }),
            json!({ "type": "response.output_text.delta", "delta": "h\u{e9}llo" }),
            json!({ "type": "response.completed", "response": response }),
        ],
        false,
    );
    let message = json!({
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{ "type": "text", "text": "h\u{e9}llo" }],
        "stop_reason": "end_turn", "usage": { "input_tokens": 100, "output_tokens": 20 },
    });
    let message_stream = sse(
        &[
            json!({ "type": "message_start", "message": { "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": { "input_tokens": 100, "output_tokens": 1 } } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "h\u{e9}llo" } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 20 } }),
            json!({ "type": "message_stop" }),
        ],
        false,
    );
    let (json_type, sse_type) = ("application/json", "text/event-stream");
    vec![
        ("chat", json_type, chat.to_string(), 120, 135),
        ("chat-stream", sse_type, chat_stream, 120, 135),
        ("responses", json_type, response.to_string(), 120, 135),
        ("responses-stream", sse_type, response_stream, 120, 135),
        ("messages", json_type, message.to_string(), 120, 180),
        ("messages-stream", sse_type, message_stream, 120, 180),
        // Without a record, the reservation is the cost.
        (
            "no-usage",
            json_type,
            json!({ "id": "c", "object": "chat.completion", "choices": [] }).to_string(),
            500,
            500,
        ),
        ("no-json", json_type, "{\"usage\": {".to_owned(), 500, 500),
        ("no-tokens", "text/plain", "hello".to_owned(), 500, 500),
    ]
}

/// Responses are counted whole, and in pieces that split events and letters.
#[test]
fn tokens_are_counted_in_every_shape() -> Result<()> {
    let upstream = Upstream::start()?;
    let cost = |weights: &Value| json!({ "reserve": 500, "settle": "token_usage", "weights": weights, "max": 500 });
    let envoy = counting_tokens(
        &upstream,
        json!([
            rule_of("plain", &cost(&json!({}))),
            rule_of(
                "weighted",
                &cost(&json!({ "input": 1, "output": 4, "cached": 0.1 }))
            ),
        ]),
    )?;
    for (name, kind, body, plain, weighted) in shapes() {
        for how in ["echo", "dribble"] {
            let user = format!("{name}-{how}");
            let request = |rule: &str| {
                Request::post(&format!("/{rule}"))
                    .header(AS, how)
                    .header(TYPE, kind)
                    .body(body.clone())
            };
            costs(&envoy, "plain", &user, request("plain"), plain)?;
            costs(&envoy, "weighted", &user, request("weighted"), weighted)?;
        }
    }
    let cut = Request::post("/plain")
        .header(AS, "dribble-cut")
        .header(TYPE, "text/event-stream")
        .body("data: {\"usage\": {\"prompt_tokens\": 1, \"completion_tokens\": 1}}\n\n".repeat(9));
    costs(&envoy, "plain", "cut", cut, 500)?;
    envoy.stop()
}

/// Tokens cost what their model costs. The name of the model comes from the response, and may be anything.
#[test]
fn models_have_weights() -> Result<()> {
    let upstream = Upstream::start()?;
    let models = json!({
        "gpt-4o": { "input": 2, "output": 10, "cached": 1 },
        "gpt-4o-*": { "input": 3, "output": 11, "cached": 0.5 },
    });
    let cost = json!({ "reserve": 500, "settle": "token_usage", "weights": { "models": models }, "max": 500 });
    let envoy = counting_tokens(&upstream, json!([rule_of("llm", &cost)]))?;
    let hostile = format!("gpt-4o\u{1b}[2J{}", "x".repeat(10_000));
    for (user, model, expected) in [
        ("alice", "gpt-4o", 2 * 50 + 50 + 10 * 20),
        ("bob", "gpt-4o-2024-08-06", 3 * 50 + 25 + 11 * 20),
        ("carol", "another", 120),
        ("mallory", &hostile, 120),
    ] {
        let body = json!({
            "object": "chat.completion", "model": model, "choices": [],
            "usage": {
                "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                "prompt_tokens_details": { "cached_tokens": 50 },
            },
        });
        let request = Request::post("/llm")
            .header(AS, "echo")
            .header(TYPE, "application/json")
            .body(body.to_string());
        costs(&envoy, "llm", user, request, expected)?;
    }
    ensure!(envoy.counter("wasmcustom.loudou.rule.llm.settled_other_model")? == 2);
    envoy.stop()
}

/// The word `llm_tokens` reserves the number that the request allows for its response, whatever the request calls it,
/// and settles by the tokens that Envoy has counted.
#[test]
fn the_word_for_tokens_needs_two_filters() -> Result<()> {
    let upstream = Upstream::start()?;
    let mut rule = rule_of("llm", &json!("llm_tokens"));
    rule["limits"] = json!([{ "algorithm": "token_bucket", "capacity": 10_000, "rate": "10/d" }]);
    let max_tokens = |name: &str| {
        json!({
            "selectors": [{ "key": name }],
            "on_present": { "metadata_namespace": "llm", "key": "max_tokens", "type": "NUMBER" },
        })
    };
    let rules = ["max_tokens", "max_completion_tokens"].map(max_tokens);
    let config = counting(&upstream, json!([rule])).filter_before(json!({ "name": "max-tokens", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        "request_rules": { "rules": rules },
    } }));
    let envoy = Envoy::start(&config)?;
    let request = |how: &str, kind: &str, body: &Value| {
        Request::post("/llm")
            .header(AS, how)
            .header("content-type", "application/json")
            .header(TYPE, kind)
            .body(body.to_string())
    };
    let usage = json!({
        "object": "chat.completion", "max_tokens": 9, "choices": [],
        "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 },
    });
    costs(
        &envoy,
        "llm",
        "alice",
        request("echo", "application/json", &usage),
        120,
    )?;
    // A response without a usage costs what the request reserved.
    for (user, body, reserved) in [
        ("bob", json!({ "max_tokens": 300 }), 300),
        ("carol", json!({ "max_completion_tokens": 301 }), 301),
        ("dave", json!({}), 500),
        (
            "mallory",
            json!({ "max_tokens": 1_000_000_000_000_000_u64 }),
            4_000,
        ),
        ("oscar", json!({ "max_tokens": -5 }), 500),
    ] {
        costs(
            &envoy,
            "llm",
            user,
            request("200", "text/plain", &body),
            reserved,
        )?;
    }
    envoy.stop()
}

/// Number of clients of each Envoy in a storm.
const CLIENTS: u64 = 32;
/// Number of requests of each client.
const REQUESTS: u64 = 40;
/// Maximum reservation and, above it, maximum cost of a request in a storm.
const MOST: u64 = 20;

/// A rule of 1000 tokens for all requests of a user, who names the reservation.
fn storm(scope: &str) -> Value {
    let mut rule = tokens(
        1_000,
        &json!({ "reserve": { "header": "x-max" }, "settle": { "response_header": "x-cost" }, "max": MOST }),
    );
    rule["scope"] = json!(scope);
    rule
}

/// Lets clients send requests with reproducible random reservations and costs, which exceed the reservations if
/// `overdraws`. Returns the sum of the costs of the answered requests.
fn send_storm(envoys: &[&Envoy], user: &str, overdraws: bool) -> Result<u64> {
    let client = |envoy: &Envoy, seed: u64| -> Result<u64> {
        let (mut http, mut spent, mut state): (Http, u64, u64) =
            (envoy.data(), 0, seed * 7_919 + 1);
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) % below
        };
        for _ in 0..REQUESTS {
            let reserved = 1 + random(MOST);
            let cost = if overdraws {
                random(2 * MOST)
            } else {
                random(reserved + 1)
            };
            let request = Request::get("/")
                .header("x-user-id", user)
                .header("x-max", reserved.to_string());
            let answer = http.send(&request.header(COST, cost.to_string()))?;
            ensure!(matches!(answer.status, 200 | 429), "{answer:?}");
            spent += if answer.status == 200 { cost } else { 0 };
        }
        Ok(spent)
    };
    thread::scope(|scope| {
        let clients = (0..CLIENTS * u64::try_from(envoys.len())?).zip(envoys.iter().cycle());
        let clients: Vec<_> = clients
            .map(|(seed, envoy)| scope.spawn(move || client(envoy, seed)))
            .collect();
        let mut spent = 0;
        for client in clients {
            spent += client
                .join()
                .map_err(|_panic| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(spent)
    })
}

/// Four workers and 32 clients: at the end, the bucket has used exactly what the upstream has spent. Without costs above
/// the reservations, that is at most the limit.
#[test]
fn a_storm_spends_what_the_bucket_says() -> Result<()> {
    let upstream = Upstream::start()?;
    let config = Config::new(json!([storm("envoy")]))
        .upstream(upstream.address())
        .concurrency(4);
    let envoy = Envoy::start(&config)?;
    let mut ops = Operator::viewer(&envoy);
    for (user, overdraws, most) in [
        ("alice", false, 1_000),
        ("bob", true, 1_000 + CLIENTS * 2 * MOST),
    ] {
        let before = upstream.spent();
        let spent = send_storm(&[&envoy], user, overdraws)?;
        ensure!(
            upstream.spent() - before == spent,
            "the ledger of the upstream"
        );
        ensure!(spent > 900 && spent <= most, "{user}: {spent} of {most}");
        has_used(&mut ops, user, spent)?;
    }
    for nothing in [
        "store.lost_returns",
        "store.cas_give_ups",
        "rule.tokens.errors",
    ] {
        let count = envoy.counter(&format!("wasmcustom.loudou.{nothing}"))?;
        ensure!(count == 0, "{nothing}: {count}");
    }
    envoy.stop()
}

/// An Envoy that has a debt reports it to the relay at once, so that other Envoys refuse the key
/// although it never comes back to the first one.
#[test]
fn other_envoys_learn_of_a_debt() -> Result<()> {
    let upstream = Upstream::start()?;
    let config = Config::new(json!([storm("fleet")])).upstream(upstream.address());
    let fleet = Fleet::of(
        2,
        config,
        &json!({ "credit": 0, "timeout": "1s", "lease": "10s" }),
    )?;
    let [one, other] = fleet.envoys.as_slice() else {
        anyhow::bail!("two Envoys")
    };
    let cost = |cost: &str| {
        Request::get("/")
            .header("x-user-id", "alice")
            .header("x-max", "1")
            .header(COST, cost)
    };
    ensure!(one.data().send(&cost("5000"))?.status == 200);
    let mut http = other.data();
    eventually(SOON, "the other Envoy to refuse", || {
        Ok((http.send(&cost("0"))?.status == 429).then_some(()))
    })?;
    fleet.stop()
}

/// Two Envoys share a limit: what is missing is charged by the next call to the relay, so that the fleet spends at most
/// the limit and what the requests in flight need beyond their reservations.
#[test]
fn a_fleet_pays_its_debt() -> Result<()> {
    let upstream = Upstream::start()?;
    let config = Config::new(json!([storm("fleet")])).upstream(upstream.address());
    let settings = json!({ "credit": 0, "timeout": "1s", "lease": "10s" });
    let fleet = Fleet::of(2, config, &settings)?;
    let envoys: Vec<&Envoy> = fleet.envoys.iter().collect();
    let mut days = 0;
    for (user, overdraws, most) in [
        ("alice", false, 1_000),
        ("bob", true, 1_000 + 2 * CLIENTS * 2 * MOST),
    ] {
        let before = upstream.spent();
        let spent = send_storm(&envoys, user, overdraws)?;
        ensure!(
            upstream.spent() - before == spent,
            "the ledger of the upstream"
        );
        ensure!(spent <= most, "{user}: {spent} of {most}");
        // Tokens of a lease that were not used expire, and stay charged.
        ensure!(spent > 500, "{user}: {spent}");
        // A token a day comes back. One more is needed for the next request.
        days = (spent + 1).saturating_sub(1_000);
    }
    for nothing in [
        "fleet.local",
        "fleet.failed",
        "store.cas_give_ups",
        "store.lost_returns",
    ] {
        let count = fleet.counter(&format!("wasmcustom.loudou.{nothing}"))?;
        ensure!(count == 0, "{nothing}: {count}");
    }
    // Requests of the key make each Envoy charge the debt that it still has. The answer to the last of these calls knows
    // the whole debt.
    let mut clients: Vec<Http> = fleet.envoys.iter().map(Envoy::data).collect();
    eventually(SOON, "the debt to be charged", || {
        let mut longest = 0;
        for http in &mut clients {
            let request = Request::get("/").header("x-user-id", "bob");
            let answer = http.send(&request.header("x-max", "1").header(COST, "0"))?;
            let retry_after = answer.header("retry-after").unwrap_or_default();
            longest = longest.max(retry_after.parse().unwrap_or(0));
        }
        Ok((longest + 60 >= days * 86_400).then_some(()))
    })?;
    fleet.stop()
}
