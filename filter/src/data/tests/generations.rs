//! Workers of several configurations, and workers that have not read a change yet.

use loudou_limiter::Carry;

use super::*;
use crate::metrics::{Registry, StoreMetrics};
use crate::record::Author;

/// Two rules that both match, of which the second one has this capacity.
fn two(capacity: u32) -> RuleFile {
    let rule = |name: &str, capacity: u32| {
        json!({
            "name": name,
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
        })
    };
    file(&json!([rule("first", 100), rule("second", capacity)]))
}

fn admitted(plane: &mut DataPlane, host: &FakeHost, user: &[u8]) -> u32 {
    let passes = |_: &u32| send(plane, host, Some(user)) == 0;
    u32::try_from((0..20).take_while(passes).count()).expect("few")
}

/// An edit of `second` to another capacity that is not announced to workers.
fn edit_in_silence(host: &FakeHost, capacity: u32) {
    let limits =
        json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }]);
    let edit = config::parse_edit(&json!({ "limits": limits })).expect("an edit");
    let author = Author {
        by: "ops".to_owned(),
        reason: String::new(),
        carry: Carry::Keep,
        at: host.now(),
        at_unix_ms: 0,
        expires_after: None,
    };
    let edited = records().edit(host, &mut |record| {
        let version = record.next_version();
        let rule = record.rule_mut("second").expect("the rule");
        rule.apply(&edit, &author, version);
        true
    });
    edited.expect("edited");
}

/// Such a worker finds a bucket that another worker has converted. It reads the rules and decides
/// by them, and other rules take tokens for the request only once.
#[test]
fn a_worker_that_has_not_heard_of_an_edit_decides_by_it() {
    let host = FakeHost::default();
    let mut old = DataPlane::new(two(4), Nanos::ZERO);
    assert_eq!(send(&mut old, &host, Some(b"alice")), 0);
    edit_in_silence(&host, 6);
    let mut new = DataPlane::new(two(4), Nanos::ZERO);
    assert_eq!(send(&mut new, &host, Some(b"alice")), 0);
    assert_eq!(admitted(&mut old, &host, b"alice"), 4, "six in all");
    assert_eq!(send(&mut new, &host, Some(b"alice")), 429);
    assert_eq!(host.metric("loudou.rule.first.admitted"), 6);
    assert_eq!(host.metric("loudou.rule.second.refused"), 2);
}

/// The record decides for workers of an older configuration, too.
#[test]
fn a_worker_of_an_older_configuration_goes_by_the_record() {
    let host = FakeHost::default();
    let mut old = DataPlane::new(two(4), Nanos::ZERO);
    assert_eq!(admitted(&mut old, &host, b"alice"), 4);
    host.pass(Nanos::from_secs(1));
    let mut new = DataPlane::new(two(10), host.now());
    assert!(new.start(&host));
    for (plane, left, other) in [(&mut old, 6, b"bob"), (&mut new, 0, b"eve")] {
        assert_eq!(
            admitted(plane, &host, b"alice"),
            left,
            "four of ten are used"
        );
        assert_eq!(admitted(plane, &host, other), 10);
    }
}

fn connection(host: &FakeHost, number: u64) {
    let mut properties = host.properties.borrow_mut();
    properties.insert("connection\0id".to_owned(), number.to_le_bytes().to_vec());
}

/// Connections that come one after the other are all noticed, however fast.
#[test]
fn a_burst_of_new_connections_is_no_rollback() {
    let host = FakeHost::default();
    let mut old = DataPlane::new(two(4), Nanos::ZERO);
    for number in 7..=9 {
        connection(&host, number);
        assert_eq!(send(&mut old, &host, Some(b"x")), 0);
    }
    host.pass(Nanos::from_secs(1));
    let mut new = DataPlane::new(two(10), host.now());
    assert!(new.start(&host));
    host.pass(Nanos::from_secs(2));
    for number in 7..=9 {
        connection(&host, number);
        send(&mut old, &host, Some(b"x"));
        let store_metrics = StoreMetrics::define(&host, &mut Registry::default(), "loudou");
        let record = crate::current::load(&host, &records(), &store_metrics, host.now());
        assert_eq!(record.expect("a record").generation, 2, "{number}");
    }
}

/// The newest connection shows which configuration is in force.
#[test]
fn a_newer_connection_is_a_rollback() {
    let host = FakeHost::default();
    let mut old = DataPlane::new(two(4), Nanos::ZERO);
    connection(&host, 7);
    assert_eq!(send(&mut old, &host, Some(b"x")), 0);
    host.pass(Nanos::from_secs(1));
    let mut new = DataPlane::new(two(10), host.now());
    connection(&host, 9);
    assert_eq!(send(&mut new, &host, Some(b"x")), 0);
    let capacity = |host: &FakeHost| {
        let store_metrics = StoreMetrics::define(host, &mut Registry::default(), "loudou");
        let record =
            crate::current::load(host, &records(), &store_metrics, host.now()).expect("a record");
        let rule = record.rule("second").expect("the rule").effective();
        rule.limits
            .iter()
            .next()
            .map(|limit| limit.algorithm().capacity())
    };
    // Workers may still be switching to the new configuration.
    connection(&host, 10);
    assert_eq!(send(&mut old, &host, Some(b"x")), 0);
    assert_eq!(capacity(&host), Some(10));
    host.pass(Nanos::from_secs(2));
    // An old connection means nothing, and a connection that the new configuration has served is
    // not newer.
    for number in [7, 8, 9] {
        connection(&host, number);
        assert_eq!(send(&mut old, &host, Some(b"x")), 0);
        assert_eq!(capacity(&host), Some(10), "{number}");
    }
    connection(&host, 11);
    assert_eq!(
        send(&mut old, &host, Some(b"x")),
        429,
        "six of four are used"
    );
    assert_eq!(capacity(&host), Some(4));
    // Requests over connections of the configuration that drains now change nothing.
    host.pass(Nanos::from_secs(2));
    connection(&host, 10);
    send(&mut new, &host, Some(b"x"));
    assert_eq!(capacity(&host), Some(4));
}
