//! The work of a call does not grow with the configuration. Only changed parts are read and
//! compiled again.

use super::*;
use crate::RecordCaches;
use crate::record::work::{self, Work};

const RULES: usize = 16;
const OVERRIDES: usize = 64;

/// Rules with many overrides.
fn rules() -> Vec<Value> {
    let overrides: serde_json::Map<String, Value> = (0..OVERRIDES)
        .map(|n| (format!("user-{n:03}"), json!({ "scale": n + 1 })))
        .collect();
    let rule = |n| {
        json!({
            "name": format!("r{n}"),
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "name": "burst", "algorithm": "funnel", "capacity": 9, "rate": "1/d" }],
            "overrides": overrides,
        })
    };
    (0..RULES).map(rule).collect()
}

/// A bench with these, whose roles share a sandbox, or not, and have read everything.
fn large(shares: bool) -> Bench {
    let mut bench = Bench::with(FakeHost::default(), 64, &json!(rules()));
    if shares {
        let mut caches = RecordCaches::default();
        bench.data = bench.data.sharing(&mut caches);
        bench.admin = bench.admin.sharing(&mut caches);
    }
    for path in CALLS {
        bench.get(path);
    }
    explain(&mut bench);
    assert!(bench.passes("bob"));
    work::take();
    bench
}

/// In a new VM, a call may come before the data role is active. It finds that role's rules, because
/// a VM that read them again would stay larger.
#[test]
fn the_first_call_of_a_sandbox_reads_no_rule_again() {
    let mut bench = large(false);
    let file = config::parse(&json!({ "version": 1, "rules": rules() }));
    let data = DataPlane::new(file.file.expect("valid"), Nanos::ZERO);
    let mut caches = RecordCaches::default();
    bench.data = data.sharing(&mut caches);
    bench.admin = bench.admin.sharing(&mut caches);
    work::take();
    bench.get("/v1/rules/r3");
    assert_eq!(work::take().parts, RULES, "only their histories");
}

const CALLS: [&str; 7] = [
    "/v1/status",
    "/v1/rules",
    "/v1/rules/r3",
    "/v1/export",
    "/v1/buckets",
    "/v1/top",
    "/v1/events",
];

fn explain(bench: &mut Bench) {
    let token = format!("Bearer {VIEW}");
    let headers: [(&str, &[u8]); 2] = [
        ("authorization", token.as_bytes()),
        ("content-type", b"application/json"),
    ];
    let request = json!({ "path": "/", "headers": { "x-user-id": "alice" } });
    let (status, answer) = bench.call("POST", "/v1/explain", &headers, Some(&request));
    assert_eq!(status, 200, "{answer}");
}

fn put(bench: &mut Bench, path: &str, body: &Value) {
    let token = format!("Bearer {EDIT}");
    let headers: [(&str, &[u8]); 3] = [
        ("authorization", token.as_bytes()),
        ("if-match", b"*"),
        ("content-type", b"application/json"),
    ];
    let (status, answer) = bench.call("PUT", path, &headers, Some(body));
    assert_eq!(status, 200, "{answer}");
}

#[test]
fn a_call_that_changes_nothing_reads_nothing_again() {
    for shares in [true, false] {
        let mut bench = large(shares);
        for path in CALLS {
            bench.get(path);
            assert_eq!(work::take(), Work::default(), "{path}");
        }
        explain(&mut bench);
        assert_eq!(work::take(), Work::default());
        // Also when the record itself is read again.
        bench.host.pass(Nanos::from_secs(5));
        for path in CALLS {
            bench.get(path);
            assert_eq!(work::take(), Work::default(), "{path}");
        }
        assert!(bench.passes("bob"));
        assert_eq!(work::take(), Work::default());
    }
}

#[test]
fn an_edit_makes_every_worker_read_what_it_changed() {
    let limits = json!([{ "name": "burst", "algorithm": "funnel", "capacity": 7, "rate": "1/d" }]);
    for shares in [true, false] {
        let mut bench = large(shares);
        // Two parts: the edit or the edited overrides, and the history.
        for (path, body) in [
            ("/v1/rules/r3?carry=keep", json!({ "limits": limits })),
            ("/v1/rules/r3?carry=keep", json!({ "mode": "shadow" })),
            ("/v1/overrides/r9/user-003", json!({ "scale": 7 })),
            ("/v1/overrides/r3/somebody", json!("banned")),
        ] {
            put(&mut bench, path, &body);
            let of_edit = work::take();
            assert_eq!(of_edit.parts, 0, "{path}");
            assert!(of_edit.activated <= 1, "{path}: {of_edit:?}");
            for _ in 0..2 {
                assert!(bench.passes("alice"));
                for path in CALLS {
                    bench.get(path);
                }
                explain(&mut bench);
            }
            let after = work::take();
            // The VM that made the edit has it cached.
            let sandboxes = usize::from(!shares);
            assert!(after.parts <= 2 * sandboxes, "{path}: {after:?}");
            assert!(after.bytes <= 1_000 * sandboxes, "{path}: {after:?}");
            assert!(after.activated <= sandboxes, "{path}: {after:?}");
        }
    }
}

#[test]
fn a_long_list_comes_in_pages_of_one_generation() {
    let mut bench = large(true);
    let mut names = Vec::new();
    let mut pages = 0;
    let mut cursor = String::new();
    loop {
        let page = bench.get(&format!("/v1/rules{cursor}"));
        pages += 1;
        for rule in page["rules"].as_array().expect("rules") {
            names.push(rule["name"].as_str().expect("a name").to_owned());
        }
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = format!("?cursor={next}");
    }
    let all: Vec<String> = (0..RULES).map(|n| format!("r{n}")).collect();
    assert_eq!((names, pages), (all, 3));
    put(
        &mut bench,
        "/v1/rules/r0?carry=keep",
        &json!({ "mode": "shadow" }),
    );
    let token = format!("Bearer {VIEW}");
    let headers: [(&str, &[u8]); 1] = [("authorization", token.as_bytes())];
    let path = format!("/v1/rules{cursor}");
    assert_eq!(bench.call("GET", &path, &headers, None).0, 409);
    let damaged = bench.call("GET", "/v1/export?cursor=x", &headers, None);
    assert_eq!(damaged.0, 400);
}
