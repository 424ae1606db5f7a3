//! Bans that would ban nobody, or less than an earlier one, and two operators who ban one key.

use super::*;

const ALICE: &str = "/v1/buckets/per-user/alice";
const NONE: &str = "\"ban-none\"";

impl Bench {
    fn post_if(&mut self, path: &str, if_match: &str) -> (u16, Value) {
        let headers: [(&str, &[u8]); 2] = [
            ("authorization", b"Bearer edit-token"),
            ("if-match", if_match.as_bytes()),
        ];
        self.call("POST", path, &headers, None)
    }

    /// The `ETag` of a bucket, or of the answer to a ban.
    fn tag_of(&mut self, method: &str, path: &str) -> String {
        let token = ("authorization", &b"Bearer edit-token"[..]);
        self.host.request(method, path, &[token]);
        let Begin::Answer(reply) = self.admin.begin(&self.host, false) else {
            panic!("an answer")
        };
        assert_eq!(reply.status, 200);
        let tag = reply.headers.iter().find(|(name, _)| name == "etag");
        tag.expect("an ETag").1.clone()
    }

    fn seq(&mut self) -> Value {
        self.get("/v1/events")["last_seq"].clone()
    }

    fn refused(&mut self, path: &str, words: &str) {
        let (status, answer) = self.post(path);
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(status == 400 && detail.contains(words), "{path}: {answer}");
    }
}

#[test]
fn a_ban_of_nobody_is_refused() {
    let mut bench = Bench::new();
    for span in ["1ns", "1us", "999us"] {
        bench.refused(&format!("{ALICE}/ban?for={span}"), "1ms");
    }
    // It would end earlier than stated.
    bench.refused(&format!("{ALICE}/ban?for=20000d"), "without `for`");
    bench.refused("/v1/buckets/per-user/team-*/ban", "override");
    bench.refused("/v1/buckets/per-user/*/ban", "override");
    assert!(bench.buckets("").is_empty());
    assert_eq!(bench.post(&format!("{ALICE}/ban?for=1ms")).0, 200);
    // A key that ends with `*` and that requests have.
    bench.passes("team-*");
    assert_eq!(bench.post("/v1/buckets/per-user/team-*/ban").0, 200);
    assert!(!bench.passes("team-*") && bench.passes("team-a"));
}

#[test]
fn a_rule_that_refuses_nobody_bans_nobody() {
    let mut bench = Bench::new();
    for mode in ["off", "shadow"] {
        let body = json!({ "mode": mode });
        bench.edit("PUT", "/v1/rules/per-user", "*", Some(&body));
        bench.refused(&format!("{ALICE}/ban"), mode);
    }
    assert!(bench.buckets("").is_empty());
}

#[test]
fn a_second_ban_never_shortens_the_first() {
    let mut bench = Bench::new();
    let (_, first) = bench.post(&format!("{ALICE}/ban?for=1h"));
    assert_eq!(first["changed"], true);
    let end = first["bucket"]["ban"]["until_ns"].clone();
    let seq = bench.seq();
    for query in ["for=60s", "for=1h"] {
        let (status, answer) = bench.post(&format!("{ALICE}/ban?{query}"));
        assert_eq!(
            (status, &answer["changed"]),
            (200, &json!(false)),
            "{query}"
        );
        assert_eq!(answer["bucket"]["ban"]["until_ns"], end, "{query}");
    }
    assert_eq!(bench.seq(), seq, "no event");
    let (_, longer) = bench.post(&format!("{ALICE}/ban?for=2h"));
    assert_eq!(longer["changed"], true);
    let (_, endless) = bench.post(&format!("{ALICE}/ban"));
    assert_eq!(endless["bucket"]["ban"]["until_ns"], Value::Null);
    let (_, kept) = bench.post(&format!("{ALICE}/ban?for=2h"));
    assert_eq!(
        (&kept["changed"], &kept["bucket"]["ban"]["until_ns"]),
        (&json!(false), &Value::Null)
    );
    for query in ["for=1s&replace", "for=1s&replace=true"] {
        let (_, shorter) = bench.post(&format!("{ALICE}/ban?{query}"));
        let now = shorter["now_ns"].as_u64().expect("now");
        assert_eq!(shorter["bucket"]["ban"]["until_ns"], now + 1_000_000_000);
    }
    assert_eq!(bench.post(&format!("{ALICE}/ban?replace=1")).0, 400);
}

#[test]
fn the_longer_ban_of_a_penalty_becomes_the_operators() {
    let mut bench = Bench::new();
    let penalty = json!({ "penalty": { "after": 1, "within": "1m", "ban": "1h" } });
    bench.edit("PUT", "/v1/rules/per-user", "*", Some(&penalty));
    assert!(bench.passes("alice") && bench.passes("alice") && !bench.passes("alice"));
    let by_penalty = bench.get(ALICE)["ban"].clone();
    assert_eq!(by_penalty["by"], "penalty");
    let (_, answer) = bench.post(&format!("{ALICE}/ban?for=60s"));
    let ban = &answer["bucket"]["ban"];
    assert_eq!(
        (&ban["by"], &ban["until_ns"]),
        (&json!("operator"), &by_penalty["until_ns"])
    );
    assert_eq!(answer["changed"], true);
}

#[test]
fn an_unban_of_who_is_free_changes_nothing() {
    let mut bench = Bench::new();
    bench.passes("alice");
    let (seq, written) = (bench.seq(), bench.host.store.borrow().clone());
    for key in ["alice", "nobody"] {
        let (status, answer) = bench.post(&format!("/v1/buckets/per-user/{key}/unban"));
        assert_eq!((status, &answer["changed"]), (200, &json!(false)));
    }
    assert_eq!(bench.seq(), seq);
    assert!(*bench.host.store.borrow() == written, "nothing is written");
    bench.post(&format!("{ALICE}/ban"));
    let (_, answer) = bench.post(&format!("{ALICE}/unban"));
    assert_eq!(answer["changed"], true);
}

#[test]
fn a_ban_is_based_on_the_ban_that_was_seen() {
    let mut bench = Bench::new();
    let ban = format!("{ALICE}/ban?for=1h");
    assert_eq!(bench.post_if(&ban, "\"ban-operator\"").0, 412);
    assert_eq!(bench.post_if(&ban, "ban-none").0, 400);
    assert!(bench.buckets("").is_empty());
    assert_eq!(bench.post_if(&ban, NONE).0, 200);
    // The second operator has not seen it.
    let (status, answer) = bench.post_if(&format!("{ALICE}/ban?for=2h&replace"), NONE);
    assert_eq!(status, 412, "{answer}");
    let tag = bench.tag_of("GET", ALICE);
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert!(detail.contains(&tag), "{detail} names {tag}");
    // It moves neither with requests nor with time.
    assert!(!bench.passes("alice"));
    bench.host.pass(Nanos::from_secs(1));
    assert_eq!(bench.tag_of("GET", ALICE), tag);
    assert_eq!(bench.post_if(&format!("{ALICE}/unban"), NONE).0, 412);
    assert!(!bench.passes("alice"));
    assert_eq!(
        bench
            .post_if(&format!("{ALICE}/unban"), &format!("W/{tag}"))
            .0,
        412
    );
    assert_eq!(
        bench
            .post_if(&format!("{ALICE}/unban"), &format!("\"x\", {tag}"))
            .0,
        200
    );
    assert_eq!(bench.tag_of("GET", ALICE), NONE);
    let tag = bench.tag_of("POST", &format!("{ALICE}/ban"));
    assert_eq!(
        (tag.as_str(), bench.tag_of("GET", ALICE).as_str()),
        ("\"ban-operator\"", "\"ban-operator\"")
    );
    assert_eq!(bench.post_if(&format!("{ALICE}/unban"), "*").0, 200);
    // A ban that is over counts as none.
    bench.post(&format!("{ALICE}/ban?for=1s"));
    bench.host.pass(Nanos::from_secs(1));
    assert_eq!(bench.tag_of("GET", ALICE), NONE);
    assert_eq!(bench.post_if(&ban, NONE).0, 200);
}
