//! Mistakes in calls, which must not look like successes.

use serde_json::json;

use super::*;

/// A ban or an override of a key that no request has would seem to be in force.
#[test]
fn keys_that_no_request_has() {
    let mut bench = Bench::new();
    let (status, answer) = bench.post("/v1/buckets/per-user/a%3Ab/ban");
    assert_eq!(status, 400);
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("did you mean `a%3Ab`?"), "{detail}");
    let (status, answer) = bench.edit(
        "PUT",
        "/v1/overrides/per-user/a%3Ab",
        "*",
        Some(&json!("banned")),
    );
    assert_eq!(
        (status, &answer["problems"][0]["suggestion"]),
        (400, &json!("a%3Ab"))
    );
}

/// A time in a body would be overlooked, and the ban would have no end.
#[test]
fn a_body_where_none_belongs() {
    let mut bench = Bench::new();
    let body = json!({ "for": "5m" });
    let path = "/v1/buckets/per-user/alice/ban";
    let (status, answer) = bench.edit("POST", path, "*", Some(&body));
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert!(status == 400 && detail.contains("query"), "{answer}");
    assert!(bench.buckets("").is_empty());
}

/// A forgotten time does not mean for ever.
#[test]
fn a_time_that_is_empty_is_no_time() {
    let mut bench = Bench::new();
    for query in ["for=", "for=1h&for=2h"] {
        let (status, answer) = bench.post(&format!("/v1/buckets/per-user/a/ban?{query}"));
        assert_eq!(status, 400, "{query}: {answer}");
    }
}

/// A path with another spelling is another path, because a proxy in front may allow or deny by the
/// prefix `/v1/`.
#[test]
fn a_path_has_one_spelling() {
    let mut bench = Bench::new();
    let token = format!("Bearer {VIEW}");
    let headers = [("authorization", token.as_bytes())];
    for path in ["//v1/status", "/v1//status", "/v1/status/"] {
        let (status, _) = bench.call("GET", path, &headers, None);
        assert_eq!(status, 404, "{path}");
    }
}

/// The override of a key lasts even if an edit of the rule gave it already, because that edit ends.
#[test]
fn an_override_outlives_an_edit_that_gives_the_same() {
    let mut bench = Bench::new();
    let banned = json!({ "overrides": { "alice": "banned" } });
    let edit = "/v1/rules/per-user?for=4s";
    let (status, answer) = bench.edit("PUT", edit, "*", Some(&banned));
    assert_eq!(status, 200, "{answer}");
    let own = "/v1/overrides/per-user/alice";
    let (status, answer) = bench.edit("PUT", own, "*", Some(&json!("banned")));
    assert_eq!(
        (status, &answer["changed"]),
        (200, &json!(true)),
        "{answer}"
    );
    bench.host.pass(Nanos::from_secs(5));
    let rule = bench.get("/v1/rules/per-user");
    assert_eq!(rule["rule"]["overrides"]["alice"], "banned", "{rule}");
}
