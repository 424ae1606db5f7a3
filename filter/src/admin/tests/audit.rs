//! The audit trail. No flood displaces an operator's action, and every automatic end leaves an
//! event.

use loudou_api::EventKind;

use super::*;
use crate::events;

const BAN: &str = "/v1/buckets/per-user/mallory/ban";

fn post(bench: &mut Bench, path: &str) -> Value {
    let token = format!("Bearer {EDIT}");
    let headers: [(&str, &[u8]); 1] = [("authorization", token.as_bytes())];
    let (status, body) = bench.call("POST", path, &headers, None);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Every event that is kept.
fn all(bench: &mut Bench, query: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut after = 0;
    loop {
        let page = bench.get(&format!("/v1/events?after={after}{query}"));
        let events = page["events"].as_array().expect("events");
        all.extend(events.iter().cloned());
        after = page["last_seq"].as_u64().expect("a number");
        if page["more"] != true {
            return all;
        }
    }
}

fn of_kind(events: &[Value], kind: &str) -> Vec<Value> {
    let found = events.iter().filter(|event| event["kind"] == kind);
    found.cloned().collect()
}

/// Switches of upstreams, as many as one likes: clients of a failing upstream cause them.
fn flood(bench: &Bench, count: u64) {
    for n in 0..count {
        let at = bench.host.clock_at(bench.host.now());
        let mut event = events::event(at, EventKind::UpstreamFails, events::BY_ITSELF, 1);
        event.detail = format!("upstream u{n}: 5 of 5 responses are errors");
        events::add(&bench.host, "loudou", &event);
    }
}

#[test]
fn a_flood_of_other_events_leaves_the_actions() {
    let mut bench = Bench::new();
    post(&mut bench, &format!("{BAN}?for=1h&reason=scraping"));
    flood(&bench, 600);
    let events = all(&mut bench, "");
    let bans = of_kind(&events, "ban");
    assert_eq!(bans.len(), 1, "the ban is still there");
    assert_eq!(bans[0]["seq"], 2);
    assert_eq!(of_kind(&events, "upstream_fails").len(), 256);
    assert!(events.is_sorted_by_key(|event| event["seq"].as_u64()));
    let page = bench.get("/v1/events");
    // 602 numbers, of which the ban and 256 others are kept.
    assert_eq!(
        (&page["last_seq"], &page["lost"]),
        (&json!(602), &json!(345))
    );
}

#[test]
fn the_action_after_the_last_that_is_kept_pushes_out_one() {
    let mut bench = Bench::new();
    for n in 0..1_000 {
        let at = bench.host.clock_at(bench.host.now());
        let mut event = events::event(at, EventKind::Ban, "ops", 1);
        event.reason = format!("number {n}");
        events::add(&bench.host, "loudou", &event);
    }
    for n in 1_000..1_024 {
        post(&mut bench, &format!("{BAN}?for={n}s&reason=number%20{n}"));
    }
    let reasons = |bench: &mut Bench| {
        let bans = of_kind(&all(bench, ""), "ban");
        let first = bans[0]["reason"].as_str().expect("text").to_owned();
        (bans.len(), first)
    };
    assert_eq!(reasons(&mut bench), (1_024, "number 0".to_owned()));
    post(&mut bench, &format!("{BAN}?for=1d&reason=more"));
    assert_eq!(reasons(&mut bench), (1_024, "number 1".to_owned()));
}

#[test]
fn actions_are_warnings_in_the_log() {
    let mut bench = Bench::new();
    post(&mut bench, &format!("{BAN}?for=1h&reason=a%20%22b%22"));
    let warned = bench.host.warnings.borrow();
    let [line] = warned.as_slice() else {
        panic!("{warned:?}");
    };
    for part in [
        "ban",
        "by ops",
        "per-user",
        "mallory",
        "\\\"b\\\"",
        "generation 1",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains('\n'));
}

#[test]
fn an_expired_ban_leaves_one_event() {
    let mut bench = Bench::new();
    let settings = bench.admin.settings.clone();
    post(&mut bench, &format!("{BAN}?for=10s"));
    let banned = of_kind(&all(&mut bench, ""), "ban");
    bench.host.pass(Nanos::from_secs(9));
    assert_eq!(of_kind(&all(&mut bench, ""), "ban_expired").len(), 0);
    bench.host.pass(Nanos::from_secs(60));
    for _ in 0..2 {
        // Any worker may notice it.
        bench.admin = AdminPlane::new(settings.clone());
        let ended = of_kind(&all(&mut bench, ""), "ban_expired");
        assert_eq!(ended.len(), 1, "once");
        assert_eq!(ended[0]["key"], "mallory");
        assert_eq!(ended[0]["rule"], "per-user");
        assert_eq!(ended[0]["until_ns"], banned[0]["until_ns"]);
    }
}

#[test]
fn refused_calls_are_logged_at_most_once_a_second() {
    let mut bench = Bench::new();
    let peer = b"192.0.2.7:4711".to_vec();
    let address = "source\0address".to_owned();
    bench.host.properties.borrow_mut().insert(address, peer);
    let refused =
        |bench: &mut Bench, headers: &[(&str, &[u8])]| bench.call("POST", BAN, headers, None).0;
    let view: (&str, &[u8]) = ("authorization", b"Bearer view-token");
    for _ in 0..5 {
        assert_eq!(refused(&mut bench, &[]), 401);
        assert_eq!(refused(&mut bench, &[view]), 403);
    }
    let lines = bench.host.warnings.take();
    assert_eq!(lines.len(), 2, "one of each kind: {lines:?}");
    assert!(lines.iter().all(|line| line.contains("192.0.2.7:4711")));
    bench.host.pass(Nanos::from_secs(1));
    refused(&mut bench, &[]);
    let lines = bench.host.warnings.take();
    assert!(lines.len() == 1 && lines[0].contains("4 more"), "{lines:?}");
    assert_eq!(bench.host.metric("loudou.admin.unauthorized"), 6);
    assert_eq!(bench.host.metric("loudou.admin.forbidden"), 5);
}

#[test]
fn wrong_tokens_are_slowed_down_and_right_ones_never() {
    let mut bench = Bench::new();
    let wrong: [(&str, &[u8]); 1] = [("authorization", b"Bearer guess")];
    let mut answers = Vec::new();
    for _ in 0..50 {
        answers.push(bench.call("GET", "/v1/rules", &wrong, None).0);
        bench.get("/v1/rules");
    }
    assert!(answers.starts_with(&[401; 10]), "{answers:?}");
    assert!(answers[10..].iter().all(|status| *status == 429));
    bench.host.pass(Nanos::from_secs(1));
    assert_eq!(bench.call("GET", "/v1/rules", &wrong, None).0, 401);
    assert_eq!(bench.call("GET", "/v1/rules", &wrong, None).0, 429);
    // A call without a token does not count as a guess.
    assert_eq!(bench.call("GET", "/v1/rules", &[], None).0, 401);
}

fn warnings(bench: &mut Bench) -> String {
    bench.get("/v1/status")["warnings"].to_string()
}

/// Two listeners that both accept connections take turns.
#[test]
fn two_configurations_in_one_namespace_are_noticed() {
    let mut bench = Bench::new();
    let first = bench.data;
    let rules = json!([{ "name": "other", "key": [], "limits": capacity(7)["limits"] }]);
    let file = config::parse(&json!({ "version": 1, "rules": rules }))
        .file
        .expect("valid");
    bench.host.pass(Nanos::from_secs(1));
    let second = DataPlane::new(file, bench.host.now());
    let mut listeners = [second, first];
    let mut warned = Vec::new();
    for connection in 1_u64..=7 {
        bench.host.pass(Nanos::from_secs(2));
        bench.host.request("GET", "/", &[]);
        let path = "connection\0id".to_owned();
        let number = connection.to_le_bytes().to_vec();
        bench.host.properties.borrow_mut().insert(path, number);
        let which = usize::from(connection % 2 == 0);
        listeners[which].decide(&bench.host, 1, false);
        let share = |admin: &mut AdminPlane, host: &FakeHost| {
            let token = format!("Bearer {VIEW}");
            host.request("GET", "/v1/status", &[("authorization", token.as_bytes())]);
            match admin.begin(host, false) {
                Begin::Answer(reply) => String::from_utf8(reply.body).expect("JSON"),
                Begin::AwaitBody(_) => panic!("no body"),
            }
        };
        let text = share(&mut bench.admin, &bench.host);
        warned.push(text.contains("alternated"));
    }
    // The second listener adopts its configuration, a rollout's old listener may answer twice, and
    // after that the cause is certain.
    assert_eq!(warned, [false, false, false, false, true, true, true]);
}

#[test]
fn a_sandbox_that_was_loaded_again_is_counted() {
    let mut bench = Bench::new();
    assert!(!warnings(&mut bench).contains("loaded again"));
    let file = config::parse(&json!({ "version": 1, "rules": [] }))
        .file
        .expect("valid");
    // A request that is older than the sandbox.
    bench.host.pass(Nanos::from_secs(5));
    let begun = (bench.host.unix_ms() - 1_000) * 1_000_000;
    let time = begun.to_le_bytes().to_vec();
    bench
        .host
        .properties
        .borrow_mut()
        .insert("request\0time".to_owned(), time);
    let mut again = DataPlane::new(file, bench.host.now());
    bench.host.request("GET", "/", &[]);
    again.decide(&bench.host, 1, false);
    assert!(warnings(&mut bench).contains("1 Wasm VM(s) crashed"));
}

#[test]
fn a_worker_without_the_shared_rules_is_reported() {
    let mut bench = Bench::new();
    crate::behind::report(&bench.host, "loudou", Nanos::new(7), bench.host.now());
    assert!(warnings(&mut bench).contains("1 worker(s) do not limit by these rules"));
}

#[test]
fn a_store_that_is_nearly_full_is_reported() {
    let mut bench = Bench::with_buckets(256);
    for n in 0..150 {
        bench.passes(&format!("user-{n}"));
    }
    assert!(!warnings(&mut bench).contains("of the store"));
    for n in 0..2_000 {
        bench.passes(&format!("user-{n}"));
    }
    let text = warnings(&mut bench);
    assert!(
        text.contains("% of the store") && text.contains("now 256"),
        "{text}"
    );
}

/// The timer of the banning worker reports the end, even without a call.
#[test]
fn the_timer_reports_the_end_of_a_ban() {
    let mut bench = Bench::new();
    bench.admin.tick(&bench.host);
    assert_eq!(bench.host.timer_ms.get(), 0, "nothing to wait for");
    post(&mut bench, &format!("{BAN}?for=10s"));
    assert_eq!(bench.host.timer_ms.get(), 10_000);
    bench.host.pass(Nanos::from_secs(10));
    bench.admin.tick(&bench.host);
    assert_eq!(bench.host.timer_ms.get(), 0);
    let lines = bench.host.logs.take();
    let ended = lines.iter().filter(|line| line.starts_with("ban_expired"));
    assert_eq!(ended.count(), 1, "{lines:?}");
    // A ban that is lifted or reset does not end.
    for path in [
        "/v1/buckets/per-user/mallory/unban",
        "/v1/buckets/per-user/mallory/reset",
    ] {
        post(&mut bench, &format!("{BAN}?for=10s"));
        post(&mut bench, path);
        bench.host.pass(Nanos::from_secs(20));
    }
    assert_eq!(of_kind(&all(&mut bench, ""), "ban_expired").len(), 1);
}

/// `loudou` can read the answer.
#[test]
fn events_are_of_one_kind_if_that_is_asked() {
    let mut bench = Bench::new();
    post(&mut bench, &format!("{BAN}?for=1h"));
    let kinds = |bench: &mut Bench, of: &str| {
        let page = bench.get(&format!("/v1/events?of={of}"));
        let page: loudou_api::Events = serde_json::from_value(page).expect("events");
        page.events
            .iter()
            .map(|event| event.kind.name())
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(&mut bench, "operators"), ["ban"]);
    assert_eq!(kinds(&mut bench, "filter"), ["configured"]);
    let view = format!("Bearer {VIEW}");
    let headers: [(&str, &[u8]); 1] = [("authorization", view.as_bytes())];
    let (status, problem) = bench.call("GET", "/v1/events?of=all", &headers, None);
    assert_eq!(status, 400);
    let detail = problem["detail"].as_str().expect("text");
    assert!(detail.contains("operators, filter"), "{detail}");
}
