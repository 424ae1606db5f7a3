//! Shared limits: leases of buckets, the fleet in the status, and its events.

use loudou_api::{
    BucketState, BucketView, BucketsPage, Event, EventKind, Events, FleetChanges, FleetStatus,
    LeaseView, OutageView, Status,
};
use serde_json::{Value, json};

use super::canned::{self, NOW, S, ok};
use super::*;

const MS: u64 = 1_000_000;

fn lease() -> LeaseView {
    LeaseView {
        tokens: 3,
        left: vec![12],
        heard_ns: NOW - 40 * MS,
        debt: 0,
        denied_until_ns: None,
    }
}

fn leased(lease: LeaseView) -> BucketView {
    BucketView {
        lease: Some(lease),
        ..canned::bucket("alice", 0, BucketState::Busy)
    }
}

/// Returns a lease that has a debt and is denied.
fn denied() -> BucketView {
    leased(LeaseView {
        tokens: 0,
        left: vec![0],
        debt: 2,
        denied_until_ns: Some(NOW + 350 * MS),
        ..lease()
    })
}

fn status(workers_down: u64) -> Status {
    Status {
        fleet: Some(FleetStatus {
            envoys: 4,
            answered_ns: NOW - 40 * MS,
            workers_down,
            calls: 1_204,
            failed: 3,
            granted: 5_310,
            held: 12,
            local: 7,
            changes: FleetChanges {
                generation: 41,
                known: 12,
                waiting: workers_down,
                ..FleetChanges::default()
            },
        }),
        ..canned::status()
    }
}

#[test]
fn one_bucket_reports_its_lease() {
    let run = |bucket: &BucketView, line: &str| {
        let answers = vec![ok(bucket), ok(&status(0))];
        Loudou::answers(answers).run(line)
    };
    let ran = run(&leased(lease()), "get per-user alice");
    assert_snapshot!(ran.seen(), @r"
    RULE      KEY    STATE  ADMITTED  REFUSED    SEEN
    per-user  alice  busy        420        0  3s ago
    3 here, 12 left for all Envoys 40ms ago

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    --- exit code 0
    ");
    let ran = run(&denied(), "get per-user alice");
    assert_snapshot!(ran.seen(), @r"
    RULE      KEY    STATE  ADMITTED  REFUSED    SEEN
    per-user  alice  busy        420        0  3s ago
    0 here, 0 left for all Envoys 40ms ago
    2 passed on credit, not charged yet
    for 350ms more, refused locally

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    --- exit code 0
    ");
    let ran = run(&leased(lease()), "get per-user alice --fleet");
    assert_snapshot!(ran.seen(), @r"
    rule           per-user
    key            alice
    leased here    3
    left centrally 12 for all Envoys, 40ms ago
    fleet          4 Envoys; last answer 40ms ago
    --- exit code 0
    ");
    let ran = run(&denied(), "get per-user alice --fleet");
    assert_snapshot!(ran.seen(), @r"
    rule            per-user
    key             alice
    leased here     0
    left centrally  0 for all Envoys, 40ms ago
    not charged yet 2, which passed on credit
    denied          for 350ms more, refused locally
    fleet           4 Envoys; last answer 40ms ago
    --- exit code 0
    ");
    let ran = run(&denied(), "get per-user alice --fleet -o csv");
    assert_snapshot!(ran.seen(), @r"
    rule,key,now_ns,tokens,limit,left,heard_ns,debt,denied_until_ns,envoys,outage
    per-user,alice,7500000000000,0,burst,0,7499960000000,2,7500350000000,4,
    --- exit code 0
    ");
    let ran = run(&denied(), "get per-user alice --fleet -o json");
    let printed: Value = serde_json::from_str(&ran.out).expect("JSON");
    let fleet = serde_json::to_value(status(0).fleet).expect("JSON");
    let lease = serde_json::to_value(denied().lease).expect("JSON");
    assert_eq!(
        printed,
        json!({ "rule": "per-user", "key": "alice", "now_ns": NOW, "lease": lease, "fleet": fleet })
    );
    let alone = BucketView {
        outage: Some(OutageView::Local { envoys: 4 }),
        ..denied()
    };
    let ran = run(&alone, "get per-user alice");
    assert_snapshot!(ran.seen(), @r"
    RULE      KEY    STATE  ADMITTED  REFUSED    SEEN
    per-user  alice  busy        420        0  3s ago
    0 here, 0 left for all Envoys 40ms ago, not in effect
    2 passed on credit, not charged yet
    the relay does not answer: this Envoy limits alone, with the limits divided by 4 Envoys

    LIMIT  ALGORITHM  RATE  LEVEL       LEFT  RETRY  RESET
    burst  funnel     30/m  ███▊······  9/15      -    11s
    --- exit code 0
    ");
    let ran = run(&alone, "get per-user alice --fleet");
    assert_snapshot!(ran.seen(), @r"
    rule            per-user
    key             alice
    leased here     0
    left centrally  0 for all Envoys, 40ms ago
    not charged yet 2, which passed on credit
    outage          the relay does not answer: this Envoy limits alone, with the limits divided by 4 Envoys
    fleet           4 Envoys; last answer 40ms ago
    --- exit code 0
    ");
    let ran = run(&alone, "get per-user alice --fleet -o csv");
    assert_snapshot!(ran.seen(), @r"
    rule,key,now_ns,tokens,limit,left,heard_ns,debt,denied_until_ns,envoys,outage
    per-user,alice,7500000000000,0,burst,0,7499960000000,2,7500350000000,4,local
    --- exit code 0
    ");
    let ran = run(&denied(), "get per-user alice --fleet -o jsonl");
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
}

/// Each limit has a separate number of remaining units.
#[test]
fn several_limits_have_their_own_units_left() {
    let two = || {
        let mut two = leased(LeaseView {
            left: vec![6, 970],
            ..lease()
        });
        two.limits.push(canned::limit("daily", 3, 24, None));
        two
    };
    let run = |line: &str| Loudou::answers(vec![ok(&two()), ok(&status(0))]).run(line);
    let lines = |line: &str, from: usize| {
        let out = run(line).out;
        out.lines()
            .skip(from)
            .take(2)
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_snapshot!(lines("get per-user alice --fleet", 2), @"
    leased here    3
    left centrally 6 of burst and 970 of daily for all Envoys, 40ms ago
    ");
    assert_snapshot!(lines("get per-user alice --fleet -o csv", 1), @"
    per-user,alice,7500000000000,3,burst,6,7499960000000,0,,4,
    per-user,alice,7500000000000,3,daily,970,7499960000000,0,,4,
    ");
    let page = BucketsPage {
        buckets: vec![two()],
        ..canned::buckets()
    };
    let out = Loudou::answers(vec![ok(&page)]).run("buckets -o csv").out;
    let numbers = out.lines().skip(1).map(|line| {
        let record: Vec<_> = line.split(',').collect();
        [record[6], record[22], record[23]].join(" ")
    });
    assert_eq!(numbers.collect::<Vec<_>>(), ["burst 3 6", "daily 3 970"]);
}

/// An answer without a server time has no age.
#[test]
fn a_lease_of_unknown_age() {
    let ran = Loudou::answers(vec![ok(&denied()), canned::not_found()]).run("get per-user alice");
    assert_eq!(ran.code, 0, "{}", ran.seen());
    let lines: Vec<&str> = ran.out.lines().skip(2).take(3).collect();
    assert_eq!(
        lines,
        [
            "0 here, 0 left for all Envoys when the relay last answered",
            "2 passed on credit, not charged yet",
            "for some time, refused locally",
        ]
    );
}

#[test]
fn a_key_without_a_lease() {
    let mut shared = canned::rule();
    shared.rule["scope"] = json!("fleet");
    let bucket = || ok(&canned::bucket("alice", 0, BucketState::Busy));
    let unheard = BucketView {
        outage: Some(OutageView::Refuse),
        ..canned::bucket("alice", 0, BucketState::Refusing)
    };
    for (name, answers) in [
        ("get_fleet_local", vec![bucket(), ok(&canned::rule())]),
        ("get_fleet_unheard", vec![bucket(), ok(&shared)]),
        ("get_fleet_alone_unheard", vec![ok(&unheard)]),
        ("get_fleet_none", vec![canned::not_found(), ok(&shared)]),
        (
            "get_fleet_none_local",
            vec![canned::not_found(), ok(&canned::rule())],
        ),
    ] {
        let ran = Loudou::answers(answers).run("get per-user alice --fleet -o json");
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{name}");
        assert_snapshot!(name, ran.err);
    }
}

#[test]
fn buckets_have_a_column_for_leases() {
    let page = || {
        ok(&BucketsPage {
            buckets: vec![
                denied(),
                canned::bucket("bob", 0, BucketState::Busy),
                BucketView {
                    key: "carol".to_owned(),
                    ..leased(lease())
                },
            ],
            ..canned::buckets()
        })
    };
    let run = |line: &str| Loudou::answers(vec![page()]).run(line).seen();
    assert_snapshot!(run("buckets --sort key"), @r"
    RULE      KEY    LEVEL       LEFT  LEASED  ADMITTED  REFUSED  RETRY  SEEN  STATE
    per-user  alice  ███▊······  9/15       0       420        0      -    3s  busy
    per-user  bob    ███▊······  9/15       -       420        0      -    3s  busy
    per-user  carol  ███▊······  9/15       3       420        0      -    3s  busy
    --- exit code 0
    ");
    assert_snapshot!(run("buckets --sort key -o csv"), @r"
    rule,key,state,admitted,refused,last_seen_ns,limit,algorithm,capacity,rate,remaining,retry_after_ns,reset_after_ns,drain_ns,used,drains,ban_until_ns,ban_by,strikes,penalties,override,override_gives,lease_tokens,lease_left,lease_heard_ns,lease_debt,lease_denied_until_ns,outage,refused_at_ns,refused_since_ns,shadow
    per-user,alice,busy,420,0,7497000000000,burst,funnel,15,30/m,9,,11000000000,30000000000,6,true,,,0,0,,,0,0,7499960000000,2,7500350000000,,,,false
    per-user,bob,busy,420,0,7497000000000,burst,funnel,15,30/m,9,,11000000000,30000000000,6,true,,,0,0,,,,,,,,,,,false
    per-user,carol,busy,420,0,7497000000000,burst,funnel,15,30/m,9,,11000000000,30000000000,6,true,,,0,0,,,3,12,7499960000000,0,,,,,false
    --- exit code 0
    ");
}

#[test]
fn the_status_shows_the_fleet() {
    let lines = |status: &Status, line: &str| {
        let out = Loudou::answers(vec![ok(status)]).run(line).out;
        let lines = out.lines().filter(|line| line.contains("fleet"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    assert_snapshot!(lines(&status(0), "status"), @r"
    fleet         4 Envoys; last answer 40ms ago
    fleet calls   1204 made, 3 failed; units granted: 5310
    fleet held    12 requests waited for the relay, 7 decided alone
    fleet changes 12 known here
    ");
    let colored = lines(&status(1), "status --color always");
    assert_snapshot!(colored.replace('\u{1b}', "ESC"), @r"
    ESC[1mfleet         ESC[0mESC[33m4 Envoys; last answer 40ms ago; 1 worker down, decided by fleet.on_outageESC[0m
    ESC[1mfleet calls   ESC[0m1204 made, 3 failed; units granted: 5310
    ESC[1mfleet held    ESC[0m12 requests waited for the relay, 7 decided alone
    ESC[1mfleet changes ESC[0m12 known here; 1 change waiting for the rule that it was made for
    ");
    assert_snapshot!(lines(&status(1), "status -o csv"), @r"
    fleet.envoys,4
    fleet.answered_ns,7499960000000
    fleet.workers_down,1
    fleet.calls,1204
    fleet.failed,3
    fleet.granted,5310
    fleet.held,12
    fleet.local,7
    ");
    let unheard = Status {
        fleet: Some(FleetStatus::default()),
        ..canned::status()
    };
    assert_snapshot!(lines(&unheard, "status"), @r"
    fleet         the relay has not answered yet
    fleet calls   0 made, 0 failed; units granted: 0
    fleet held    0 requests waited for the relay, 0 decided alone
    fleet changes 0 known here
    ");
}

#[test]
fn an_outage_is_marked_among_events() {
    let event = |seq, kind| Event {
        seq,
        kind,
        at_unix_ms: canned::UNIX_MS,
        by: "loudou".to_owned(),
        detail: "the relay".to_owned(),
        ..Event::default()
    };
    let events = Events {
        now_ns: NOW + S,
        events: vec![event(1, EventKind::FleetDown), event(2, EventKind::FleetUp)],
        last_seq: 2,
        ..Events::default()
    };
    let ran = Loudou::answers(vec![ok(&events)]).run("events --color always");
    assert_snapshot!(ran.out.replace('\u{1b}', "ESC"), @r"
    ESC[1mSEQESC[0m  ESC[1mTIMEESC[0m                  ESC[1mKINDESC[0m        ESC[1mRULEESC[0m  ESC[1mKEYESC[0m  ESC[1mBYESC[0m      ESC[1mDETAILESC[0m     ESC[1mREASONESC[0m
      1  2026-11-21 14:03:07Z  ESC[33mfleet_downESC[0m  -     -    loudou  the relay  -
      2  2026-11-21 14:03:07Z  fleet_up    -     -    loudou  the relay  -
    ");
}
