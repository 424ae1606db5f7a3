//! The start of an Envoy in a fleet: a ban that was made elsewhere applies from the first request
//! on.

use loudou_api::Change;

use super::*;
use crate::fleet::travel;

/// Returns a host whose clock has started.
fn running() -> FakeHost {
    let host = FakeHost::default();
    host.pass(Nanos::from_secs(1));
    host
}

/// Returns local rules, each for a separate path.
fn file(names: &[&str]) -> RuleFile {
    let rule = |name: &&str| {
        json!({
            "name": name, "match": { "path": { "prefix": format!("/{name}") } },
            "key": [{ "header": "x-user-id" }],
            "limits": [{ "algorithm": "funnel", "capacity": 2, "rate": "1/d" }],
        })
    };
    let rules: Vec<_> = names.iter().map(rule).collect();
    let whole = json!({ "version": 1, "fleet": { "cluster": "relay" }, "rules": rules });
    let parsed = config::parse(&whole);
    parsed
        .file
        .unwrap_or_else(|| panic!("{:?}", parsed.problems))
}

fn tag(name: &str) -> u32 {
    let (host, mut plane) = (
        FakeHost::default(),
        DataPlane::new(file(&[name]), Nanos::ZERO),
    );
    assert!(plane.start(&host));
    let active = plane.active.as_ref().expect("active");
    active.rules().first().expect("a rule").tag()
}

/// Returns the answer of an engine in which `users` of the rule `here` are banned.
fn banned(users: &[&str]) -> LeaseAnswer {
    let tag = tag("here");
    let ban = |(generation, user): (u64, &&str)| Change {
        name: format!("ban/here/{user}"),
        value: json!({ "tag": tag, "by": "ops", "reason": "", "at_unix_ms": 0 }),
        instance: "00000000000000aa".to_owned(),
        generation,
        ..Change::default()
    };
    LeaseAnswer {
        envoys: 2,
        epoch: "e".to_owned(),
        generation: u64::try_from(users.len()).expect("few"),
        changes: (1..).zip(users).map(ban).collect(),
        ..LeaseAnswer::default()
    }
}

fn asks(host: &FakeHost, plane: &mut DataPlane, (stream, path): (u32, &str), user: &str) -> u16 {
    host.request("GET", path, &[("x-user-id", user.as_bytes())]);
    let headers = host.headers.borrow().clone();
    host.paused.borrow_mut().insert(stream, headers);
    status(&plane.decide(host, stream, false).0)
}

#[test]
fn requests_wait_for_the_first_answer_about_changes() {
    let (host, mut plane) = (running(), DataPlane::new(file(&["here"]), Nanos::ZERO));
    plane.configured(&host);
    assert_eq!(host.calls.borrow().len(), 1, "the call leaves at once");
    for (stream, path, user) in [(1, "/here", "mallory"), (2, "/here", "bob")] {
        assert_eq!(asks(&host, &mut plane, (stream, path), user), 1);
    }
    assert_eq!(
        asks(&host, &mut plane, (3, "/other"), "mallory"),
        0,
        "no rule"
    );
    assert_eq!(host.metric("loudou.waiting"), 2);
    let mut call = 0;
    let decided = end(&host, &mut plane, &mut call, Some(&banned(&["mallory"])));
    assert_eq!(decided, [(1, 429), (2, 0)]);
    assert_eq!(host.metric("loudou.waiting"), 0);
    assert_eq!(host.calls.borrow().len(), 1);
    assert_eq!(asks(&host, &mut plane, (4, "/here"), "mallory"), 429);

    // Another worker of this Envoy knows the ban, too.
    let mut other = DataPlane::new(file(&["here"]), Nanos::ZERO);
    other.configured(&host);
    assert_eq!(asks(&host, &mut other, (5, "/here"), "mallory"), 429);
    assert_eq!(asks(&host, &mut other, (6, "/here"), "carol"), 0);
    assert_eq!(host.calls.borrow().len(), 1);
}

/// More changes than an answer carries, or than a call puts in force.
#[test]
fn requests_wait_for_all_changes() {
    let (host, mut plane) = (running(), DataPlane::new(file(&["here"]), Nanos::ZERO));
    plane.configured(&host);
    let users: Vec<String> = (0..130).map(|n| format!("user-{n}")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    assert_eq!(asks(&host, &mut plane, (1, "/here"), users[129]), 1);
    let mut first = banned(&users);
    let later = first.changes.split_off(100);
    (first.more, first.generation) = (true, 100);
    let mut call = 0;
    assert_eq!(end(&host, &mut plane, &mut call, Some(&first)), []);
    let rest = LeaseAnswer {
        changes: later,
        ..banned(&users)
    };
    let decided = end(&host, &mut plane, &mut call, Some(&rest));
    assert_eq!(decided, [(1, 429)]);
}

/// Without an answer, no request waits longer than for a lease.
#[test]
fn without_an_answer_requests_wait_once_for_the_time_out() {
    let (host, mut plane) = (running(), DataPlane::new(file(&["here"]), Nanos::ZERO));
    plane.configured(&host);
    host.pass(Nanos::from_secs(5));
    assert_eq!(asks(&host, &mut plane, (1, "/here"), "bob"), 1);
    host.pass(Nanos::from_millis(20));
    assert_eq!(asks(&host, &mut plane, (2, "/here"), "bob"), 1);
    let again = plane.tick(&host);
    assert_eq!(decide_again(&host, &mut plane, again), []);
    host.pass(Nanos::from_millis(10));
    assert_eq!(asks(&host, &mut plane, (3, "/here"), "bob"), 0, "at once");
    let again = plane.tick(&host);
    let decided = decide_again(&host, &mut plane, again);
    assert_eq!(decided, [(1, 0), (2, 429)]);
    assert_eq!(host.metric("loudou.waiting"), 0);
}

/// A lost call, or one hanging relay out of two, lets no banned key pass.
#[test]
fn another_call_leaves_while_requests_wait() {
    let (host, mut plane) = (running(), DataPlane::new(file(&["here"]), Nanos::ZERO));
    plane.configured(&host);
    assert_eq!(asks(&host, &mut plane, (1, "/here"), "mallory"), 1);
    host.pass(Nanos::from_millis(8));
    let again = plane.tick(&host);
    assert_eq!(decide_again(&host, &mut plane, again), []);
    assert!(host.calls.borrow().len() > 1, "the first one may hang");
    let mut call = 1;
    let decided = end(&host, &mut plane, &mut call, Some(&banned(&["mallory"])));
    assert_eq!(decided, [(1, 429)]);
    // Failures end the wait as soon as they open the breaker.
    let (host, mut plane) = (running(), DataPlane::new(file(&["here"]), Nanos::ZERO));
    host.has_no_cluster.set(true);
    plane.configured(&host);
    assert_eq!(asks(&host, &mut plane, (1, "/here"), "bob"), 1);
    let mut decided = Vec::new();
    for _ in 0..15 {
        host.pass(Nanos::from_millis(1));
        let again = plane.tick(&host);
        decided.extend(decide_again(&host, &mut plane, again));
    }
    assert_eq!(decided, [(1, 0)]);
    assert_eq!(host.metric("loudou.fleet.down"), 1);
}

/// A ban of a rule that only another configuration has applies from that configuration's first
/// request on.
#[test]
fn a_ban_that_waited_holds_from_the_first_request() {
    let host = running();
    let mut plane = DataPlane::new(file(&["there"]), Nanos::ZERO);
    plane.configured(&host);
    let mut call = 0;
    let users: Vec<String> = (0..70).map(|n| format!("user-{n}")).collect();
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    end(&host, &mut plane, &mut call, Some(&banned(&users)));
    let waiting = travel::find(&host, "loudou").all.len();
    assert_eq!(waiting, 70);
    host.pass(Nanos::from_millis(100));
    let mut later = DataPlane::new(file(&["there", "here"]), host.now());
    later.configured(&host);
    for (stream, user) in (1..).zip(&users) {
        assert_eq!(
            asks(&host, &mut later, (stream, "/here"), user),
            429,
            "{user}"
        );
    }
}

/// The first configuration is in force before a request or a tick. A later configuration, which
/// Envoy may still reject, is not.
#[test]
fn only_the_first_configuration_is_in_force_before_it_is_accepted() {
    let host = running();
    let rules_in_force = || {
        let record = records().read(&host).expect("a record");
        let names = record.rules.iter().map(|rule| rule.base.name.clone());
        names.collect::<Vec<_>>()
    };
    DataPlane::new(file(&["here"]), Nanos::ZERO).configured(&host);
    assert_eq!(rules_in_force(), ["here"]);
    host.pass(Nanos::from_secs(1));
    let mut later = DataPlane::new(file(&["there"]), host.now());
    later.configured(&host);
    assert_eq!(rules_in_force(), ["here"]);
    assert!(later.start(&host));
    assert_eq!(rules_in_force(), ["there"]);
}

/// Without a fleet, bans are in shared data, so they apply from the first request of a
/// configuration on.
#[test]
fn a_ban_here_holds_from_the_first_request_of_a_configuration() {
    let host = running();
    let rules = |capacity: u32| {
        let limits = json!([{ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }]);
        let whole = json!({ "version": 1, "rules": rules("enforce", &[("limits", limits)]) });
        config::parse(&whole).file.expect("valid")
    };
    let mut plane = DataPlane::new(rules(2), Nanos::ZERO);
    assert_eq!(arrive(&host, &mut plane, 1, "mallory").0, 0);
    let active = plane.active.as_ref().expect("active");
    let ban = loudou_store::SetBan {
        rule: &**active.rules().first().expect("a rule"),
        key: "mallory",
        ban: loudou_store::BanChange::Banned(None),
        clock: loudou_limiter::Clock::at(host.now()),
    };
    let store = &mut HostStore(&host);
    let stats = &mut StoreStats::default();
    let set = active.table.set_ban_if(store, &ban, &|_| true, stats);
    assert!(set.is_ok());
    host.pass(Nanos::from_secs(1));
    let mut later = DataPlane::new(rules(100), host.now());
    later.configured(&host);
    assert_eq!(arrive(&host, &mut later, 2, "mallory").0, 429);
}
