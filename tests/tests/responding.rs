//! The fields of a rule's `respond` set the information for clients, upstreams and access logs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy, Request, Response, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(30);
const DRAFT: [&str; 2] = ["ratelimit", "ratelimit-policy"];
const LEGACY: [&str; 3] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

const OPENAI: [&str; 3] = [
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
];

fn rule(name: &str, respond: &Value) -> Value {
    json!({
        "name": name,
        "match": { "path": { "prefix": format!("/{name}") } },
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 2, "rate": "1/h" }],
        "respond": respond,
    })
}

fn of(user: &str, path: &str) -> Request {
    Request::get(path).header("x-user-id", user)
}

fn header<'a>(answer: &'a Response, name: &str) -> Result<&'a str> {
    let value = answer.header(name);
    value.with_context(|| format!("no {name}: {answer:?}"))
}

/// Returns how many times a response contains each of these headers. Fails if the numbers differ.
fn times(answer: &Response, names: &[&str]) -> Result<usize> {
    let count = |name: &str| answer.headers.iter().filter(|(own, _)| own == name).count();
    let counts: Vec<usize> = names.iter().map(|name| count(name)).collect();
    ensure!(
        counts.windows(2).all(|two| two.first() == two.last()),
        "{answer:?}"
    );
    counts.first().copied().context("no names")
}

#[test]
fn each_word_has_its_headers() -> Result<()> {
    let words = ["refused", "draft11", "legacy", "both", "openai", "none"];
    let rules = words.map(|word| rule(word, &json!({ "ratelimit_headers": word })));
    let envoy = Envoy::start(&Config::new(json!(rules)))?;
    let mut http = envoy.data();
    // Expected number of draft headers and of legacy headers, in admitted and in refused responses.
    for (word, admitted, refused) in [
        ("refused", (0, 0), (1, 0)),
        ("draft11", (1, 0), (1, 0)),
        ("legacy", (0, 1), (0, 1)),
        ("both", (1, 1), (1, 1)),
        ("openai", (0, 0), (0, 0)),
        ("none", (0, 0), (0, 0)),
    ] {
        for (status, expected) in [(200, admitted), (200, admitted), (429, refused)] {
            let answer = http.send(&of("alice", &format!("/{word}")))?;
            ensure!(answer.status == status, "{word}: {answer:?}");
            let counts = (times(&answer, &DRAFT)?, times(&answer, &LEGACY)?);
            ensure!(counts == expected, "{word}: {answer:?}");
            ensure!(
                times(&answer, &OPENAI)? == usize::from(word == "openai"),
                "{word}: {answer:?}"
            );
            let waits = times(&answer, &["retry-after"])?;
            ensure!(waits == usize::from(status == 429), "{word}: {answer:?}");
        }
    }
    let admitted = http.send(&of("bob", "/legacy"))?;
    let values = LEGACY.map(|name| admitted.header(name));
    ensure!(
        values == [Some("2"), Some("1"), Some("3600")],
        "{admitted:?}"
    );
    envoy.stop()
}

#[test]
fn retry_after_differs_and_is_never_too_early() -> Result<()> {
    let rules = json!([rule("r", &json!({ "retry_after_jitter": 0.5 }))]);
    let envoy = Envoy::start(&Config::new(rules))?;
    let mut http = envoy.data();
    let mut waits = Vec::new();
    for _ in 0..2 {
        ensure!(http.send(&of("alice", "/r"))?.status == 200);
    }
    for _ in 0..50 {
        let answer = http.send(&of("alice", "/r"))?;
        let wait: u64 = header(&answer, "retry-after")?.parse()?;
        let state = header(&answer, "ratelimit")?;
        let real: u64 = state.rsplit('=').next().unwrap_or_default().parse()?;
        ensure!(
            wait >= real && wait <= real * 3 / 2 + 1,
            "{wait} for {real}"
        );
        waits.push(wait);
    }
    waits.sort_unstable();
    let spread = waits
        .last()
        .zip(waits.first())
        .map(|(most, least)| most - least);
    ensure!(spread > Some(600), "of 1800 s: {waits:?}");
    envoy.stop()
}

/// Returns the lines of the access log once there are `count` lines.
fn lines(envoy: &Envoy, count: usize) -> Result<Vec<String>> {
    eventually(SOON, "the access log", || {
        let log = envoy.log()?;
        let lines = log.lines().filter_map(|line| line.strip_prefix("ACCESS "));
        let lines: Vec<String> = lines.map(str::to_owned).collect();
        Ok((lines.len() == count).then_some(lines))
    })
}

const FORMAT: &str = "ACCESS %RESPONSE_CODE% | %RESPONSE_CODE_DETAILS% | %REQ(X-LOUDOU-DECISION)% | \
                      %FILTER_STATE(wasm.loudou:PLAIN)%";

#[test]
fn a_rule_explains_itself_to_upstreams_clients_and_logs() -> Result<()> {
    let explain = json!({ "explain_header": true });
    let mut slow = rule("slow", &explain);
    if let Some(limits) = slow.get_mut("limits") {
        *limits = json!([
            { "name": "q", "algorithm": "leaky_queue", "capacity": 9, "rate": "1/3s" }
        ]);
    }
    let rules = json!([rule("r", &explain), slow]);
    let envoy = Envoy::start(&Config::new(rules).access_log(FORMAT))?;
    let mut http = envoy.data();
    let forged = of("alice", "/r").header("x-loudou-decision", "forged");
    for status in [200, 200, 429] {
        let answer = http.send(&forged)?;
        ensure!(answer.status == status, "{answer:?}");
        ensure!(answer.header("x-loudou-wait-ms").is_none(), "{answer:?}");
    }
    let mut waited = 0;
    for held in [false, true] {
        let answer = http.send(&of("alice", "/slow"))?;
        let wait = answer.header("x-loudou-wait-ms").map(str::parse::<u64>);
        ensure!(answer.status == 200 && wait.is_some() == held, "{answer:?}");
        if let Some(wait) = wait {
            waited = wait?;
            ensure!((1..=3_000).contains(&waited), "{answer:?}");
        }
    }
    ensure!(
        http.send(&Request::get("/other").header("x-loudou-decision", "forged"))?
            .status
            == 200
    );
    let alice = format!("{:016x}", loudou_limiter::fingerprint("alice"));
    let lines = lines(&envoy, 6)?;
    let expected = |line: &str, begin: &str, end: &str| {
        ensure!(
            line.starts_with(begin) && line.ends_with(end),
            "{line}: {begin} {end}"
        );
        Ok(())
    };
    let [first, second, refused, passed, held, other] = lines.as_slice() else {
        anyhow::bail!("{lines:?}");
    };
    let admitted = format!("r;l;admit | r;l;admit;0;{alice}");
    expected(first, "200 | ", &admitted)?;
    expected(second, "200 | ", &admitted)?;
    let cause = "429 | loudou_over_limit{r.l} | forged | r;l;refuse;3";
    expected(refused, cause, &format!(";{alice}"))?;
    expected(
        passed,
        "200 | ",
        &format!("slow;q;admit | slow;q;admit;0;{alice}"),
    )?;
    let held_for = format!("| slow;q;hold | slow;q;hold;{waited};{alice}");
    expected(held, "200 | ", &held_for)?;
    expected(other, "200 | ", "| none | -")?;
    envoy.stop()
}
