//! Views of buckets that a fleet shares, while the relay does not answer.

use super::*;
use crate::fleet::know_changes;

/// A worker of two Envoys whose relay answered for `alice`, with 8 of 9 units left for all.
fn bench(on_outage: &str) -> Bench {
    let file = json!({
        "version": 1,
        "fleet": { "cluster": "relay", "on_outage": on_outage },
        "rules": [{
            "name": "shared",
            "scope": "fleet",
            "key": [{ "header": "x-user-id" }],
            "respond": { "ratelimit_headers": "draft11" },
            "limits": [{ "name": "day", "algorithm": "funnel", "capacity": 9, "rate": "1/d" }],
        }],
    });
    let host = FakeHost::default();
    know_changes(&host, "loudou");
    let mut bench = Bench::with_file(host, &file);
    let _again = bench.data.tick(&bench.host);
    answer(&mut bench, 0, &json!({ "envoys": 2, "keys": [] }));
    bench.host.pass(Nanos::from_millis(5));
    assert!(!bench.passes("alice"), "it waits for its first lease");
    let lease = json!({ "granted": 1, "charged": 0, "wait_us": 0, "left": [8], "ends_us": 0 });
    answer(&mut bench, 1, &json!({ "envoys": 0, "keys": [lease] }));
    assert!(bench.passes("alice"), "by the token of the one that left");
    bench
}

fn answer(bench: &mut Bench, call: u32, answer: &Value) {
    let headers = [(":status", "200"), (loudou_api::RELAY_HEADER, "1")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let body = serde_json::to_vec(answer).expect("JSON");
    let size = body.len();
    *bench.host.called.borrow_mut() = (headers.to_vec(), body);
    let _again = bench.data.called(&bench.host, call, size);
}

/// Loses calls until the worker decides alone.
fn lose_the_relay(bench: &mut Bench) {
    bench.host.has_no_cluster.set(true);
    for user in ["x", "y", "z"] {
        bench.passes(user);
    }
    assert_eq!(bench.host.metric("loudou.fleet.down"), 1);
}

/// The bucket of a key, which the list and the call for it show alike.
fn bucket(bench: &mut Bench, key: &str) -> Value {
    let one = bench.get(&format!("/v1/buckets/shared/{key}"));
    let listed = bench.buckets(&format!("key={key}"));
    assert_eq!(listed, std::slice::from_ref(&one));
    one
}

/// Capacity, remaining units and rate.
fn numbers(limit: &Value) -> (u64, u64, &str) {
    let number = |field: &str| limit[field].as_u64().expect("a number");
    let rate = limit["rate"].as_str().expect("a rate");
    (number("capacity"), number("remaining"), rate)
}

fn explained(bench: &mut Bench, user: &str) -> Value {
    let sample = json!({ "headers": { "x-user-id": user } });
    let (status, answer) = bench.edit("POST", "/v1/explain", "", Some(&sample));
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn before_an_outage_the_lease_decides() {
    let mut bench = bench("local");
    let shown = bucket(&mut bench, "alice");
    assert_eq!(numbers(&shown["limits"][0]), (9, 8, "1/d"), "{shown}");
    assert_eq!(shown["lease"]["left"], json!([8]));
    assert!(shown.get("outage").is_none(), "{shown}");
    let answer = explained(&mut bench, "alice");
    let rule = &answer["rules"][0];
    assert_eq!(
        numbers(&rule["limits"][0]["now"]),
        (9, 8, "1/d"),
        "{answer}"
    );
    assert!(rule.get("outage").is_none(), "{answer}");
}

#[test]
fn a_denial_is_explained() {
    let mut bench = bench("local");
    assert!(!bench.passes("alice"), "it waits");
    let lease = json!({
        "granted": 0, "charged": 0, "wait_us": 5_000_000, "left": [0], "ends_us": 0
    });
    answer(&mut bench, 2, &json!({ "envoys": 0, "keys": [lease] }));
    assert!(!bench.passes("alice"), "it is refused");
    assert_eq!(bucket(&mut bench, "alice")["state"], "refusing");
    let answer = explained(&mut bench, "alice");
    assert_eq!(answer["verdict"], "refuse", "{answer}");
    // Nothing is known about another key. Its first request may wait, and passes.
    let answer = explained(&mut bench, "bob");
    assert_eq!(answer["verdict"], "admit", "{answer}");
    assert_eq!(answer["rules"][0]["limits"][0]["now"]["remaining"], 9);
}

#[test]
fn in_an_outage_the_part_of_this_envoy_is_shown() {
    let mut bench = bench("local");
    lose_the_relay(&mut bench);
    let outage = json!({ "decides": "local", "envoys": 2 });
    for (left, outcome) in [(4, true), (3, true), (2, true), (1, true), (0, false)] {
        let shown = bucket(&mut bench, "alice");
        assert_eq!(shown["outage"], outage, "{shown}");
        assert_eq!(numbers(&shown["limits"][0]), (4, left, "1/2d"), "{shown}");
        assert_eq!(
            shown["lease"]["left"],
            json!([8]),
            "as it was known last: {shown}"
        );
        let state = if left == 4 { "idle" } else { "busy" };
        assert_eq!(shown["state"], state, "{shown}");
        assert_eq!(bench.buckets(&format!("state={state}&key=alice")), [shown]);
        let answer = explained(&mut bench, "alice");
        let rule = &answer["rules"][0];
        assert_eq!(rule["outage"], outage, "{answer}");
        assert_eq!(numbers(&rule["limits"][0]["now"]), (4, left, "1/2d"));
        assert_eq!(answer["verdict"] == "admit", outcome, "{answer}");
        assert_eq!(bench.passes("alice"), outcome, "{left} were left");
    }
    assert_eq!(bucket(&mut bench, "alice")["state"], "refusing");
    // A key that was never asked for has a part, too.
    let shown = bucket(&mut bench, "x");
    assert_eq!(numbers(&shown["limits"][0]).0, 4, "{shown}");
    assert_eq!(shown["outage"], outage, "{shown}");
    assert!(shown.get("lease").is_none(), "{shown}");
}

/// The headers of a response that show a limit.
fn shown_to_client(bench: &mut Bench, user: &str) -> Vec<(String, String)> {
    bench
        .host
        .request("GET", "/", &[("x-user-id", user.as_bytes())]);
    let headers: Vec<(String, String)> = match bench.data.decide(&bench.host, 1, false).0 {
        RequestOutcome::Pass(headers) | RequestOutcome::Hold(headers) => {
            let headers = headers.into_iter();
            headers.map(|(name, value)| (name.into(), value)).collect()
        }
        RequestOutcome::Refuse(reply) => {
            let headers = reply.headers.into_iter();
            headers.map(|(name, value)| (name.into(), value)).collect()
        }
    };
    let headers = headers.into_iter();
    let headers = headers.filter(|(name, _)| name.starts_with("ratelimit"));
    headers.collect()
}

#[test]
fn clients_see_what_decides() {
    let mut bench = bench("local");
    lose_the_relay(&mut bench);
    // The next unit comes two days after the first request.
    for left in [3, 2, 1, 0] {
        let seconds = 172_800;
        let policy = "\"shared.day\";q=4;w=691200".to_owned();
        let state = format!("\"shared.day\";r={left};t={seconds}");
        assert_eq!(
            shown_to_client(&mut bench, "alice"),
            [
                ("ratelimit-policy".to_owned(), policy),
                ("ratelimit".to_owned(), state)
            ]
        );
    }
    let refused = shown_to_client(&mut bench, "alice");
    assert!(refused[0].1.contains(";q=4;"), "{refused:?}");
}

#[test]
fn in_an_outage_all_may_pass_or_none() {
    for (on_outage, state, verdict) in
        [("admit", "busy", "admit"), ("refuse", "refusing", "refuse")]
    {
        let mut bench = bench(on_outage);
        lose_the_relay(&mut bench);
        let shown = bucket(&mut bench, "alice");
        assert_eq!(shown["outage"], json!({ "decides": on_outage }), "{shown}");
        assert_eq!(shown["state"], state, "{shown}");
        assert_eq!(numbers(&shown["limits"][0]), (9, 8, "1/d"), "{shown}");
        for user in ["alice", "x", "new"] {
            let answer = explained(&mut bench, user);
            assert_eq!(answer["verdict"], verdict, "{answer}");
            assert_eq!(answer["rules"][0]["outage"]["decides"], on_outage);
        }
        assert_eq!(bench.passes("x"), on_outage == "admit");
        let of_x = bucket(&mut bench, "x");
        let counts = (of_x["admitted"].as_u64(), of_x["refused"].as_u64());
        let passes = on_outage == "admit";
        assert_eq!(
            counts,
            (Some(passes.into()), Some((!passes).into())),
            "{of_x}"
        );
        if on_outage == "refuse" {
            let refusing = bench.buckets("state=refusing");
            assert!(refusing.iter().any(|bucket| bucket["key"] == "x"));
        }
    }
}

/// After the first answer the lease is in force again.
#[test]
fn after_an_outage_the_lease_decides() {
    let mut bench = bench("local");
    lose_the_relay(&mut bench);
    bench.host.has_no_cluster.set(false);
    bench.host.pass(Nanos::from_secs(2));
    let _again = bench.data.tick(&bench.host);
    let last = u32::try_from(bench.host.calls.borrow().len() - 1).expect("few");
    answer(&mut bench, last, &json!({ "envoys": 2, "keys": [] }));
    let shown = bucket(&mut bench, "alice");
    assert_eq!(numbers(&shown["limits"][0]), (9, 8, "1/d"), "{shown}");
    assert!(shown.get("outage").is_none(), "{shown}");
}
