//! The counts of frequent keys, and the times at which they are shared.

use loudou_store::top::{By, recent};

use super::*;
use crate::host::HostStore;

/// Keys with their counts, as shared now.
fn shared(host: &FakeHost, by: By) -> Vec<(String, u64)> {
    let recent = recent(&mut HostStore(host), "loudou", by, host.now()).expect("a store");
    let most = recent.counts.most(|_| true);
    let most = most.iter().map(|entry| (entry.key.clone(), entry.count));
    most.collect()
}

/// Returns the shared counts after the timer has fired.
fn flushed(plane: &mut DataPlane, host: &FakeHost) -> [Vec<(String, u64)>; 2] {
    host.pass(Nanos::from_millis(250));
    plane.tick(host);
    By::ALL.map(|by| shared(host, by))
}

fn list(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = expected
        .iter()
        .map(|(key, count)| ((*key).to_owned(), *count));
    owned.collect()
}

#[test]
fn the_timer_runs_until_all_is_flushed() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 0);
    send(&mut plane, &host, Some(b"alice"));
    assert_eq!(host.timer_ms.get(), 250);
    assert_eq!(shared(&host, By::Admitted), list(&[]));
    host.pass(Nanos::from_millis(200));
    send(&mut plane, &host, Some(b"alice"));
    host.pass(Nanos::from_millis(50));
    plane.tick(&host);
    assert_eq!(shared(&host, By::Admitted), list(&[("alice", 2)]));
    assert_eq!(host.timer_ms.get(), 0);
    // A request finds the flush due before the timer does.
    send(&mut plane, &host, Some(b"alice"));
    host.pass(Nanos::from_millis(251));
    send(&mut plane, &host, Some(b"bob"));
    assert_eq!(shared(&host, By::Refused), list(&[("alice", 1)]));
    assert_eq!(
        shared(&host, By::Admitted),
        list(&[("alice", 2), ("bob", 1)])
    );
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 0, "nothing is left to flush");
}

#[test]
fn the_timer_wakes_for_both() {
    let limit = json!({ "name": "l", "algorithm": "leaky_queue", "capacity": 5, "rate": "2/s" });
    let host = FakeHost::default();
    let rules = rules("enforce", &[("limits", json!([limit]))]);
    let mut plane = DataPlane::new(file(&rules), Nanos::ZERO);
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 0);
    assert_eq!(send(&mut plane, &host, Some(b"alice")), 1, "held");
    assert_eq!(host.timer_ms.get(), 20, "it looks for edits");
    host.pass(Nanos::from_millis(250));
    plane.tick(&host);
    assert_eq!(shared(&host, By::Admitted), list(&[("alice", 2)]));
    host.pass(Nanos::from_millis(240));
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 10, "then the held request");
    assert_eq!(send(&mut plane, &host, Some(b"bob")), 0);
    assert_eq!(host.timer_ms.get(), 10, "and this later");
    host.pass(Nanos::from_millis(10));
    plane.tick(&host);
    assert_eq!(
        (host.resumed.borrow().as_slice(), host.timer_ms.get()),
        (&[1][..], 240)
    );
}

#[test]
fn counts_that_cannot_be_shared_wait() {
    let host = FakeHost::default();
    let mut plane = DataPlane::new(file(&rules("enforce", &[])), Nanos::ZERO);
    send(&mut plane, &host, Some(b"alice"));
    host.pass(Nanos::from_millis(250));
    host.store_fails.set(true);
    plane.tick(&host);
    assert_eq!(host.timer_ms.get(), 250);
    host.store_fails.set(false);
    assert_eq!(flushed(&mut plane, &host)[1], list(&[("alice", 1)]));
    assert_eq!(host.timer_ms.get(), 0);
}

/// A request counts if it has a key and the rule's metrics count it as refused or admitted.
#[test]
fn outcomes_of_keys_are_counted() {
    for mode in ["enforce", "shadow"] {
        let host = FakeHost::default();
        let extra = [("on_missing_key", json!("refuse"))];
        let mut plane = DataPlane::new(file(&rules(mode, &extra)), Nanos::ZERO);
        for user in [
            Some(&b"alice"[..]),
            None,
            Some(b"alice"),
            Some(b"alice"),
            Some(b"bob"),
        ] {
            send(&mut plane, &host, user);
        }
        let [refused, admitted] = flushed(&mut plane, &host);
        assert_eq!(refused, list(&[("alice", 1)]), "{mode}");
        assert_eq!(admitted, list(&[("alice", 2), ("bob", 1)]), "{mode}");
    }
}

/// A rule that admitted a request which another one refused counts as neither.
#[test]
fn overruled_outcomes_do_not_count() {
    let rule = |name: &str, capacity: u32| {
        json!({
            "name": name,
            "key": [{ "literal": name }],
            "limits": [{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }],
        })
    };
    let host = FakeHost::default();
    let rules = json!([rule("loose", 9), rule("strict", 1)]);
    let mut plane = DataPlane::new(file(&rules), Nanos::ZERO);
    for _ in 0..3 {
        send(&mut plane, &host, None);
    }
    let [refused, admitted] = flushed(&mut plane, &host);
    assert_eq!(refused, list(&[("strict", 2)]));
    let mut admitted = admitted;
    admitted.sort();
    assert_eq!(admitted, list(&[("loose", 1), ("strict", 1)]));
}
