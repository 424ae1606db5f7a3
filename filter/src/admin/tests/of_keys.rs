//! Bans and overrides of single keys.

use super::*;

const ALICE: &str = "/v1/buckets/per-user/alice";
const OVERRIDE: &str = "/v1/overrides/per-user/alice";

impl Bench {
    pub(super) fn post(&mut self, path: &str) -> (u16, Value) {
        self.edit("POST", path, "", None)
    }

    /// A call that must be accepted.
    fn done(&mut self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, answer) = self.edit(method, path, "*", body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    fn newest_event(&mut self) -> Value {
        let events = self.get("/v1/events?after=0");
        let newest = events["events"].as_array().expect("list").last();
        newest.expect("an event").clone()
    }
}

#[test]
fn a_key_is_banned_and_let_free() {
    let mut bench = Bench::new();
    let (status, answer) = bench.post(&format!("{ALICE}/ban?for=10s&reason=spam"));
    assert_eq!(status, 200, "{answer}");
    let until = answer["bucket"]["ban"]["until_ns"]
        .as_u64()
        .expect("an end");
    assert_eq!(
        until,
        answer["now_ns"].as_u64().expect("now") + 10_000_000_000
    );
    assert_eq!(answer["bucket"]["ban"]["by"], "operator");
    assert_eq!(answer["before"], Value::Null);
    assert!(!bench.passes("alice") && bench.passes("bob"));
    assert_eq!(key(&bench.buckets("state=banned")[0]), "alice");
    let event = bench.newest_event();
    assert_eq!(
        (
            &event["kind"],
            &event["key"],
            &event["by"],
            &event["reason"]
        ),
        (
            &json!("ban"),
            &json!("alice"),
            &json!("ops"),
            &json!("spam")
        )
    );
    assert_eq!(
        (&event["detail"], &event["until_ns"]),
        (&json!("banned for 10s"), &json!(until))
    );
}

/// As the screen and the command line write spans, which repeat these texts.
#[test]
fn spans_in_events_are_those_of_people() {
    let mut bench = Bench::new();
    let (status, _) = bench.post(&format!("{ALICE}/ban?for=544s"));
    assert_eq!(status, 200);
    assert_eq!(bench.newest_event()["detail"], "banned for 9m4s");
    let edit = "/v1/rules/per-user?for=5400s";
    let (status, _) = bench.edit("PUT", edit, "*", Some(&capacity(5)));
    assert_eq!(status, 200);
    let event = bench.newest_event();
    let detail = event["detail"].as_str().expect("a text");
    assert!(detail.ends_with(", for 1h30m"), "{detail}");
    bench.host.pass(Nanos::from_secs(544 + 150));
    let event = bench.newest_event();
    assert_eq!(event["detail"], "the ban by ops ended 2m30s ago");
}

#[test]
fn a_ban_lasts_until_it_is_lifted() {
    let mut bench = Bench::new();
    let (_, answer) = bench.post(&format!("{ALICE}/ban?for=10s"));
    let until = answer["bucket"]["ban"]["until_ns"].clone();
    // Again, and without an end.
    let (_, answer) = bench.post(&format!("{ALICE}/ban"));
    assert_eq!(answer["before"]["until_ns"], until);
    assert_eq!(answer["bucket"]["ban"]["until_ns"], Value::Null);
    bench.host.pass(Nanos::from_secs(1_000_000));
    assert!(!bench.passes("alice"));
    let (_, answer) = bench.post(&format!("{ALICE}/unban"));
    assert_eq!(answer["before"]["by"], "operator");
    assert_eq!(
        (&answer["bucket"]["ban"], &answer["bucket"]["state"]),
        (&Value::Null, &json!("refusing"))
    );
    bench.host.pass(Nanos::from_secs(11));
    assert_eq!(bench.get(ALICE)["state"], "idle");
    assert!(bench.passes("alice"));
    assert_eq!(bench.newest_event()["kind"], "unban");
    // A reset reports that it lifts a ban.
    bench.post(&format!("{ALICE}/ban"));
    bench.post(&format!("{ALICE}/reset"));
    assert_eq!(
        bench.newest_event()["detail"],
        "the bucket was reset, and its ban was lifted"
    );
}

#[test]
fn nothing_happens_to_who_is_free() {
    let mut bench = Bench::new();
    let seq = bench.newest_event()["seq"].clone();
    let (status, answer) = bench.post("/v1/buckets/per-user/nobody/unban");
    assert_eq!((status, &answer["bucket"]), (200, &Value::Null));
    assert_eq!(bench.newest_event()["seq"], seq);
}

#[test]
fn who_may_ban_whom() {
    let mut bench = Bench::new();
    let view: [(&str, &[u8]); 1] = [("authorization", b"Bearer view-token")];
    for what in ["ban", "unban"] {
        assert_eq!(
            bench
                .call("POST", &format!("{ALICE}/{what}"), &view, None)
                .0,
            403
        );
        assert_eq!(
            bench.call("POST", &format!("{ALICE}/{what}"), &[], None).0,
            401
        );
        assert_eq!(bench.post(&format!("/v1/buckets/none/alice/{what}")).0, 404);
        for key in ["a%20b", "a%0A", "%C3%A4", "", &"k".repeat(129)] {
            let (status, answer) = bench.post(&format!("/v1/buckets/per-user/{key}/{what}"));
            assert_eq!(status, 400, "{key}: {answer}");
        }
    }
    assert_eq!(bench.post(&format!("{ALICE}/ban?for=0s")).0, 400);
    assert_eq!(bench.post(&format!("{ALICE}/unban?for=1s")).0, 400);
    assert_eq!(bench.edit("GET", &format!("{ALICE}/ban"), "", None).0, 405);
    assert!(bench.buckets("").is_empty());
}

#[test]
fn a_full_page_of_bans_is_no_crash() {
    let mut bench = Bench::with_buckets(64);
    let mut full = None;
    for n in 0..65 {
        let (status, answer) = bench.post(&format!("/v1/buckets/per-user/k{n}/ban"));
        if status != 200 {
            full = Some((status, answer));
            break;
        }
    }
    let (status, answer) = full.expect("a full page");
    assert_eq!(status, 503);
    let detail = answer["detail"].as_str().expect("a detail");
    assert!(
        detail.contains("banned by an operator or has requests in flight"),
        "{detail}"
    );
}

#[test]
fn an_override_is_edited_and_dropped() {
    let mut bench = Bench::new();
    let scale = json!({ "scale": 2 });
    let (status, _) = bench.edit("PUT", OVERRIDE, "\"9\"", Some(&scale));
    assert_eq!(status, 412);
    let path = format!("{OVERRIDE}?for=60s&reason=ticket+7");
    let answer = bench.done("PUT", &format!("{path}&dry_run=true"), Some(&scale));
    assert_eq!(answer["after"]["rule"]["overrides"]["alice"], scale);
    assert_eq!(bench.get("/v1/rules/per-user")["generation"], 1);
    let answer = bench.done("PUT", &path, Some(&scale));
    assert_eq!(answer["change"], "override of alice: scale 2");
    let edit = &answer["after"]["overrides"][0];
    assert_eq!(
        (&edit["key"], &edit["edit"]["by"]),
        (&json!("alice"), &json!("ops"))
    );
    assert_eq!(edit["edit"]["reason"], "ticket 7");
    assert_eq!(answer["after"]["edit"], Value::Null);
    for _ in 0..4 {
        assert!(bench.passes("alice"));
    }
    assert!(!bench.passes("alice"));
    assert_eq!(
        bench.get(ALICE)["override"],
        json!({ "pattern": "alice", "gives": "scale" })
    );
    let event = bench.newest_event();
    assert_eq!(
        (&event["kind"], &event["key"]),
        (&json!("override"), &json!("alice"))
    );
    assert!(event["until_ns"].is_u64());
    assert_eq!(
        bench.get("/v1/export?with_temporary=true")["rules"][0]["overrides"],
        json!({ "alice": scale })
    );
}

#[test]
fn one_override_follows_another() {
    let mut bench = Bench::new();
    assert!(bench.passes("alice") && bench.passes("alice"));
    assert_eq!(bench.get(ALICE)["state"], "busy");
    bench.done("PUT", OVERRIDE, Some(&json!("banned")));
    assert!(!bench.passes("alice"));
    assert_eq!(
        bench.get(ALICE)["ban"],
        json!({ "until_ns": null, "by": "override" })
    );
    let (status, answer) = bench.post(&format!("{ALICE}/unban"));
    assert_eq!(
        (status, &answer["title"]),
        (409, &json!("Banned by an override"))
    );
    // An override's ban does not hide an operator's ban.
    assert_eq!(bench.get(ALICE).get("hidden_ban"), None);
    bench.post(&format!("{ALICE}/ban"));
    let bucket = bench.get(ALICE);
    assert_eq!(
        (&bucket["ban"]["by"], &bucket["hidden_ban"]),
        (
            &json!("override"),
            &json!({ "until_ns": null, "by": "operator" })
        )
    );
    bench.post(&format!("{ALICE}/unban"));
    bench.done("PUT", OVERRIDE, Some(&json!("unlimited")));
    assert!((0..9).all(|_| bench.passes("alice")));
    assert_ne!(bench.get(ALICE)["state"], "refusing");
    let answer = bench.done("DELETE", OVERRIDE, None);
    assert_eq!(answer["change"], "override of alice: unlimited removed");
    assert_eq!(bench.newest_event()["kind"], "override_dropped");
    assert_eq!(bench.edit("DELETE", OVERRIDE, "*", None).0, 404);
}

#[test]
fn an_override_runs_out() {
    let mut bench = Bench::new();
    bench.done(
        "PUT",
        &format!("{OVERRIDE}?for=60s"),
        Some(&json!("banned")),
    );
    assert!(!bench.passes("alice"));
    bench.host.pass(Nanos::from_secs(60));
    assert!(bench.passes("alice"));
    let event = bench.newest_event();
    assert_eq!(
        (&event["kind"], &event["key"], &event["detail"]),
        (
            &json!("edit_expired"),
            &json!("alice"),
            &json!("the override of alice expired")
        )
    );
    assert_eq!(bench.get("/v1/rules/per-user").get("overrides"), None);
}

#[test]
fn what_is_wrong_with_an_override_is_told() {
    let mut bench = Bench::new();
    let status =
        |bench: &mut Bench, path: &str, body: &Value| bench.edit("PUT", path, "*", Some(body)).0;
    assert_eq!(
        bench.edit("PUT", OVERRIDE, "", Some(&json!("banned"))).0,
        428
    );
    for body in [
        json!({}),
        json!("bannd"),
        json!({ "scale": 1, "limits": [] }),
        json!(7),
    ] {
        assert_eq!(status(&mut bench, OVERRIDE, &body), 400, "{body}");
    }
    assert_eq!(
        status(&mut bench, "/v1/overrides/none/alice", &json!("banned")),
        404
    );
    assert_eq!(
        status(&mut bench, "/v1/overrides/per-user/", &json!("banned")),
        400
    );
    assert_eq!(
        status(&mut bench, "/v1/overrides/per-user/a%20b", &json!("banned")),
        400
    );
    assert_eq!(bench.edit("GET", OVERRIDE, "", None).0, 405);
    // Limits that a scale does not fit.
    bench.done("PUT", OVERRIDE, Some(&json!({ "scale": 1000 })));
    let wide = json!({ "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 2_000_000, "rate": "1/s" }] });
    let (status, answer) = bench.edit("PUT", "/v1/rules/per-user", "*", Some(&wide));
    assert_eq!(
        (status, &answer["problems"][0]["path"]),
        (400, &json!("overrides.alice.scale"))
    );
}

#[test]
fn a_rule_has_so_many_edited_overrides() {
    let mut bench = Bench::new();
    for n in 0..256 {
        bench.done(
            "PUT",
            &format!("/v1/overrides/per-user/k{n}"),
            Some(&json!("banned")),
        );
    }
    let (status, answer) = bench.edit("PUT", OVERRIDE, "*", Some(&json!("banned")));
    assert_eq!(
        (status, &answer["title"]),
        (409, &json!("Too many overrides"))
    );
    bench.done(
        "PUT",
        "/v1/overrides/per-user/k7",
        Some(&json!("unlimited")),
    );
    bench.done("DELETE", "/v1/overrides/per-user/k7", None);
    bench.done("PUT", OVERRIDE, Some(&json!("banned")));
}

#[test]
fn penalty_and_overrides_are_edited_as_a_whole() {
    let mut bench = Bench::new();
    let body = json!({
        "penalty": { "after": 1, "within": "60s", "ban": "10s" },
        "overrides": { "root": "unlimited" },
    });
    let answer = bench.done("PUT", "/v1/rules/per-user", Some(&body));
    assert_eq!(
        answer["change"],
        "penalty: new, after 1, within 1m, ban 10s, factor 1, max 10s; \
         override of root: unlimited"
    );
    assert!(bench.passes("alice") && bench.passes("alice") && !bench.passes("alice"));
    let bucket = bench.get(ALICE);
    assert_eq!(
        (&bucket["ban"]["by"], &bucket["penalties"]),
        (&json!("penalty"), &json!(1))
    );
    assert_eq!(
        bench
            .edit("DELETE", "/v1/overrides/per-user/root", "*", None)
            .0,
        409
    );
    let answer = bench.done(
        "PUT",
        "/v1/rules/per-user",
        Some(&json!({ "penalty": null })),
    );
    assert!(
        answer["change"]
            .as_str()
            .expect("text")
            .starts_with("penalty: removed")
    );
    assert_eq!(answer["after"]["rule"]["overrides"]["root"], "unlimited");
}

#[test]
fn strikes_are_shown_while_they_count() {
    let mut bench = Bench::new();
    let body = json!({ "penalty": { "after": 9, "within": "60s", "ban": "10s" } });
    bench.done("PUT", "/v1/rules/per-user", Some(&body));
    for _ in 0..5 {
        bench.passes("alice");
    }
    assert_eq!(bench.get(ALICE)["strikes"], 3);
    bench.host.pass(Nanos::from_secs(60));
    assert_eq!(bench.get(ALICE).get("strikes"), None);
    // A ban is remembered for longer than the refusals after it.
    let body = json!({ "penalty": { "after": 2, "within": "5s", "ban": "10s", "factor": 2, "max": "1h" } });
    bench.done("PUT", "/v1/rules/per-user", Some(&body));
    for _ in 0..2 {
        bench.passes("alice");
    }
    bench.host.pass(Nanos::from_secs(11));
    bench.passes("alice");
    let counts = |bucket: Value| (bucket["strikes"].clone(), bucket["penalties"].clone());
    assert_eq!(counts(bench.get(ALICE)), (json!(1), json!(1)));
    bench.host.pass(Nanos::from_secs(5));
    assert_eq!(counts(bench.get(ALICE)), (Value::Null, json!(1)));
}

/// A ban lasts exactly as long as requested, and its event reports the same end as the bucket.
#[test]
fn an_event_tells_the_end_of_a_ban() {
    let mut bench = Bench::new();
    bench.host.pass(Nanos::new(123_456_789));
    let (_, answer) = bench.post(&format!("{ALICE}/ban?for=10s"));
    let until = &answer["bucket"]["ban"]["until_ns"];
    assert_eq!(*until, json!(10_123_456_789_u64));
    assert_eq!(bench.newest_event()["until_ns"], *until);
    let (_, answer) = bench.post(&format!("{ALICE}/ban"));
    assert_eq!(answer["bucket"]["ban"]["until_ns"], Value::Null);
    assert_eq!(bench.newest_event().get("until_ns"), None);
}
