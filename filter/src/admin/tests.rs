//! The admin role on the fake host, together with a data role that limits.

use loudou_limiter::Nanos;
use loudou_rules::config;
use serde_json::{Value, json};

use super::*;
use crate::data::{DataPlane, RequestOutcome};
use crate::host::fake::FakeHost;
use crate::plugin::{Plugin, read};

mod audit;
mod buckets;
mod explain;
mod fleet;
mod formats;
mod in_header;
mod metrics;
mod of_keys;
mod outage;
mod released;
mod restart;
mod slips;
mod storms;
mod strict;
mod strict_bans;
mod strict_hosts;
mod top;
mod travel;
mod trials;
mod work;

const EDIT: &str = "edit-token";
const VIEW: &str = "view-token";
/// The `ETag` of the initial rules, in the first process.
const AT_1: &str = "\"0707070707070707-1\"";

struct Bench {
    host: FakeHost,
    data: DataPlane,
    admin: AdminPlane,
}

impl Bench {
    fn new() -> Self {
        Self::of(65_536, Nanos::ZERO)
    }

    fn with_buckets(buckets: u32) -> Self {
        Self::of(buckets, Nanos::ZERO)
    }

    fn started_at(now: Nanos) -> Self {
        Self::of(65_536, now)
    }

    /// A bench in another process, with other random bytes.
    fn of_process(chance: u8) -> Self {
        let host = FakeHost::default();
        host.chance.set(chance);
        Self::on(host, 65_536)
    }

    fn of(buckets: u32, now: Nanos) -> Self {
        let host = FakeHost::default();
        host.now.set(now.get());
        Self::on(host, buckets)
    }

    fn on(host: FakeHost, buckets: u32) -> Self {
        Self::with(
            host,
            buckets,
            &json!([{
                "name": "per-user",
                "key": [{ "header": "x-user-id" }],
                "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
            }]),
        )
    }

    fn with(host: FakeHost, buckets: u32, rules: &Value) -> Self {
        let store = json!({ "buckets": buckets });
        Self::with_file(
            host,
            &json!({ "version": 1, "store": store, "rules": rules }),
        )
    }

    fn with_file(host: FakeHost, file: &Value) -> Self {
        let file = config::parse(file).file.expect("valid");
        let hash = |token: &str| {
            use sha2::Digest;
            let digest = sha2::Sha256::digest(token);
            digest
                .iter()
                .fold(String::new(), |hex, b| format!("{hex}{b:02x}"))
        };
        let tokens = json!([
            { "name": "ops", "sha256": hash(EDIT), "may": "edit" },
            { "name": "wall", "sha256": hash(VIEW), "may": "view" },
        ]);
        let admin = json!({ "version": 1, "admin": { "role": "admin", "tokens": tokens } });
        let bytes = serde_json::to_vec(&admin).expect("JSON");
        let Ok((Plugin::Admin(settings), _)) = read(&bytes) else {
            panic!("admin")
        };
        let mut bench = Self {
            host,
            data: DataPlane::new(file, Nanos::ZERO),
            admin: AdminPlane::new(settings),
        };
        assert!(bench.data.start(&bench.host));
        bench
    }

    fn passes(&mut self, user: &str) -> bool {
        self.host
            .request("GET", "/", &[("x-user-id", user.as_bytes())]);
        matches!(
            self.data.decide(&self.host, 1, false).0,
            RequestOutcome::Pass(_)
        )
    }

    fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &[u8])],
        body: Option<&Value>,
    ) -> (u16, Value) {
        self.host.request(method, path, headers);
        if let Some(body) = body {
            *self.host.body.borrow_mut() = serde_json::to_vec(body).expect("JSON");
        }
        let reply = match self.admin.begin(&self.host, body.is_some()) {
            Begin::Answer(reply) => reply,
            Begin::AwaitBody(call) => self.admin.finish(&self.host, call),
        };
        (
            reply.status,
            serde_json::from_slice(&reply.body).expect("JSON"),
        )
    }

    fn get(&mut self, path: &str) -> Value {
        let token = format!("Bearer {VIEW}");
        let (status, body) = self.call("GET", path, &[("authorization", token.as_bytes())], None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// All buckets of a query, page by page.
    fn buckets(&mut self, query: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut path = format!("/v1/buckets?{query}");
        loop {
            let page = self.get(&path);
            all.extend(page["buckets"].as_array().expect("list").iter().cloned());
            let Some(cursor) = page["next_cursor"].as_str() else {
                return all;
            };
            path = format!("/v1/buckets?{query}&cursor={cursor}");
        }
    }

    fn edit(
        &mut self,
        method: &str,
        path: &str,
        if_match: &str,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let token = format!("Bearer {EDIT}");
        let mut headers: Vec<(&str, &[u8])> = vec![
            ("authorization", token.as_bytes()),
            ("content-type", b"application/json; charset=utf-8"),
        ];
        if !if_match.is_empty() {
            headers.push(("if-match", if_match.as_bytes()));
        }
        self.call(method, path, &headers, body)
    }
}

fn key(bucket: &Value) -> String {
    bucket["key"].as_str().expect("key").to_owned()
}

fn capacity(capacity: u32) -> Value {
    json!({ "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }] })
}

#[test]
fn who_may_do_what() {
    let mut bench = Bench::new();
    let body = capacity(5);
    let status =
        |bench: &mut Bench, method: &str, headers: &[(&str, &[u8])], body: Option<&Value>| {
            bench.call(method, "/v1/rules/per-user", headers, body).0
        };
    let view: (&str, &[u8]) = ("authorization", b"Bearer view-token");
    let edit: (&str, &[u8]) = ("authorization", b"bearer edit-token");
    let json: (&str, &[u8]) = ("content-type", b"application/json");
    assert_eq!(status(&mut bench, "GET", &[], None), 401);
    assert_eq!(
        status(
            &mut bench,
            "GET",
            &[("authorization", b"Bearer nobody")],
            None
        ),
        401
    );
    assert_eq!(
        status(
            &mut bench,
            "GET",
            &[("authorization", b"Basic dmlldw==")],
            None
        ),
        401
    );
    assert_eq!(status(&mut bench, "GET", &[view], None), 200);
    assert_eq!(
        status(&mut bench, "GET", &[view, ("origin", b"http://evil")], None),
        403
    );
    assert_eq!(status(&mut bench, "PUT", &[view, json], Some(&body)), 403);
    assert_eq!(status(&mut bench, "PUT", &[edit], Some(&body)), 415);
    assert_eq!(status(&mut bench, "PUT", &[edit, json], Some(&body)), 428);
    assert_eq!(status(&mut bench, "PATCH", &[edit], None), 405);
}

#[test]
fn an_edit_acts_at_once_and_is_told() {
    let mut bench = Bench::new();
    assert!(bench.passes("alice") && bench.passes("alice") && !bench.passes("alice"));
    let path = "/v1/rules/per-user?carry=keep&reason=big+customer";
    let (status, answer) = bench.edit("PUT", path, AT_1, Some(&capacity(3)));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["change"], "burst: capacity 2 → 3");
    assert_eq!(answer["after"]["generation"], 2);
    assert!(bench.passes("alice") && !bench.passes("alice"));

    let (status, stale) = bench.edit("PUT", path, AT_1, Some(&capacity(4)));
    assert_eq!(status, 412);
    assert_eq!(stale["current"]["rule"]["limits"][0]["capacity"], 3);

    let (status, _) = bench.edit(
        "DELETE",
        "/v1/rules/per-user",
        "\"0707070707070707-2\"",
        None,
    );
    assert_eq!(status, 200);
    let events = bench.get("/v1/events?after=0");
    let kinds: Vec<&str> = events["events"]
        .as_array()
        .expect("list")
        .iter()
        .map(|e| e["kind"].as_str().expect("kind"))
        .collect();
    assert_eq!(kinds, ["configured", "edit", "edit_dropped"]);
    assert_eq!(events["events"][1]["by"], "ops");
    assert_eq!(events["events"][1]["reason"], "big customer");
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut bench = Bench::new();
    let (status, answer) = bench.edit(
        "PUT",
        "/v1/rules/per-user?dry_run=true",
        AT_1,
        Some(&capacity(9)),
    );
    assert_eq!((status, &answer["dry_run"]), (200, &json!(true)));
    assert_eq!(answer["after"]["rule"]["limits"][0]["capacity"], 9);
    assert_eq!(
        bench.get("/v1/rules")["rules"][0]["rule"]["limits"][0]["capacity"],
        2
    );
    assert_eq!(bench.get("/v1/status")["generation"], 1);
}

#[test]
fn every_problem_of_a_bad_edit_is_told() {
    let mut bench = Bench::new();
    let wrong = json!({
        "mode": "enforced",
        "limit": [],
        "limits": [{ "algorithm": "funel", "capacity": 0, "rate": "0/s" }],
    });
    let (status, answer) = bench.edit("PUT", "/v1/rules/per-user", AT_1, Some(&wrong));
    assert_eq!(status, 400);
    assert_eq!(
        answer["problems"].as_array().expect("list").len(),
        5,
        "{answer:#}"
    );
}

#[test]
fn without_tokens_only_loopback_may_call() {
    let mut bench = Bench::new();
    bench.admin = AdminPlane::new(Settings::default());
    for (address, status) in [
        ("127.0.0.1:5", 200),
        ("[::1]:5", 200),
        ("10.0.0.1:5", 403),
        ("127.0.0.1:0", 403),
        ("", 403),
    ] {
        let property = ("source\0address".to_owned(), address.as_bytes().to_vec());
        bench.host.properties.borrow_mut().extend([property]);
        let here: [(&str, &[u8]); 1] = [(":authority", b"localhost")];
        assert_eq!(
            bench.call("GET", "/v1/status", &here, None).0,
            status,
            "{address}"
        );
    }
}

#[test]
fn paths_and_queries_are_read_strictly() {
    let mut bench = Bench::new();
    let view: [(&str, &[u8]); 1] = [("authorization", b"Bearer view-token")];
    for (path, status) in [
        ("/v1/nothing", 404),
        ("/", 404),
        ("/v1/rules/none", 404),
        ("/v1/buckets?limit=0", 400),
        ("/v1/buckets?limit=501", 400),
        ("/v1/buckets?limit=x", 400),
        ("/v1/buckets?cursor=zz", 400),
        ("/v1/buckets?cursor=99999999", 200),
        ("/v1/buckets?colour=red", 400),
        ("/v1/buckets?state=sleepy", 400),
        ("/v1/buckets/per-user/%FF", 400),
        ("/v1/events?after=-1", 400),
        ("/v1/export", 200),
    ] {
        assert_eq!(bench.call("GET", path, &view, None).0, status, "{path}");
    }
}

#[test]
fn an_edit_that_ran_out_is_gone_even_without_traffic() {
    let mut bench = Bench::new();
    let (status, _) = bench.edit(
        "PUT",
        "/v1/rules/per-user?for=60s",
        AT_1,
        Some(&capacity(9)),
    );
    assert_eq!(status, 200);
    assert_eq!(bench.get("/v1/rules/per-user")["edit"]["by"], "ops");
    bench.host.pass(Nanos::from_secs(60));
    let rule = bench.get("/v1/rules/per-user");
    assert_eq!(
        (&rule["edit"], &rule["generation"]),
        (&Value::Null, &json!(3))
    );
    assert_eq!(rule["rule"]["limits"][0]["capacity"], 2);
    let newest = bench.get("/v1/events?after=2");
    assert_eq!(newest["events"][0]["kind"], "edit_expired");
    assert_eq!(
        bench.host.metric("loudou.generation"),
        3,
        "announced to the workers once"
    );
}
