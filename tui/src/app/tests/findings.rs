//! Each finding has a cause and a number. None appears without its cause, or twice.

use loudou_api::{BanBy, BanView, Event, EventKind};

use super::*;
use crate::app::findings::findings;
use crate::app::fixture::{rules, snapshot};
use crate::app::msg::Snapshot;

const S: u64 = 1_000_000_000;

fn texts(state: &State) -> Vec<String> {
    let found = findings(state).into_iter();
    found.map(|finding| finding.text).collect()
}

/// Returns true if a finding contains these words.
fn has(state: &State, words: &str) -> bool {
    texts(state).iter().any(|text| text.contains(words))
}

/// Applies the answer to poll number `at`, changed by `change`. It arrives `at` seconds after the
/// first poll.
fn answer(state: &mut State, at: u64, change: impl Fn(&mut Snapshot)) {
    let mut snapshot = snapshot(at);
    snapshot.status.warnings.clear();
    change(&mut snapshot);
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    update(state, msg, Nanos::from_secs(at));
}

#[test]
fn findings_have_causes() {
    let mut state = state(SIZE, 3);
    let warning = "no tokens are configured: every process on this machine may edit";
    let refuses = "reply-per-user refuses 57% of its requests, 12/s of 21/s";
    assert_eq!(texts(&state), [warning, refuses]);
    answer(&mut state, 3, |snapshot| {
        snapshot.status.uptime_ns = 7_300 * S;
        snapshot.status.rules[1].refused = 0;
        for rule in &mut snapshot.status.rules {
            rule.admitted = 7;
        }
    });
    state.history.rules.clear();
    assert_eq!(
        texts(&state),
        ["search-per-key has refused nothing in the 2h1m since Envoy started"]
    );
}

/// The admin listener is slow, and polls stop for a while.
#[test]
fn slow_answers_and_gaps_are_findings() {
    let mut state = state(SIZE, 3);
    assert_eq!(texts(&state).len(), 2, "the two of the fixture");
    for at in [4, 5, 15, 16, 17] {
        answer(&mut state, at, |snapshot| {
            snapshot.took = Nanos::from_millis(400);
        });
    }
    for text in [
        "the admin listener takes 400ms to answer: it, or the way to it, is busy",
        "1 gap of up to 10s in the last 5 minutes of polls: rates across them are averages",
    ] {
        assert!(has(&state, text), "{:?}", texts(&state));
    }
}

/// The call for the rows takes 5 s, and the call for the totals no time. The screen shows the
/// totals' age at once.
#[test]
fn totals_before_a_slow_call_are_drawn_as_old() {
    let mut state = state(SIZE, 3);
    let text = |state: &State| crate::ui::tests::text(state, (120, 40));
    assert!(!state.is_stale() && !text(&state).contains("stale"));
    answer(&mut state, 8, |snapshot| {
        snapshot.status_age = Nanos::from_secs(5);
    });
    assert_eq!(state.age(), Nanos::from_secs(5));
    assert!(
        has(&state, "the last answer is 5s old"),
        "{:?}",
        texts(&state)
    );
    assert!(
        text(&state).contains("connected, stale 5s"),
        "{}",
        text(&state)
    );
    // The call is fast again.
    answer(&mut state, 9, |_| {});
    assert!(!state.is_stale() && !text(&state).contains("stale"));
}

/// A rule that refused requests earlier becomes a finding after an hour without refusals, if the
/// screen watched all of that hour.
#[test]
fn a_rule_that_refuses_nothing_for_an_hour() {
    const QUIET: &str = "search-per-key has refused nothing in the last hour";
    let mut state = state(SIZE, 0);
    state.settings.interval = Nanos::from_secs(20);
    // One more refusal after 100 s, and no requests of by-source.
    let poll = |state: &mut State, at: u64, restarts: bool| {
        answer(state, at, |snapshot| {
            snapshot.status.rules[1].refused = if at < 100 { 3 } else { 4 };
            snapshot.status.rules[2].admitted = 7_000;
            snapshot.status.rules[2].shadow_refused = 40;
            if restarts {
                snapshot.status.instance = "another".to_owned();
            }
        });
    };
    for at in (0..3_680).step_by(20) {
        poll(&mut state, at, false);
        assert!(!has(&state, "refused nothing"), "{at}: {:?}", texts(&state));
    }
    poll(&mut state, 3_720, false);
    assert_eq!(
        texts(&state)
            .iter()
            .filter(|text| text.contains("refused nothing"))
            .count(),
        1
    );
    assert!(has(&state, QUIET), "{:?}", texts(&state));
    // Over a time without answers the counts are known. Over a restart they are not.
    poll(&mut state, 4_200, false);
    assert!(has(&state, QUIET), "{:?}", texts(&state));
    poll(&mut state, 4_220, true);
    poll(&mut state, 4_240, true);
    assert!(!has(&state, QUIET), "{:?}", texts(&state));
}

/// Old evictions are no finding. Current evictions are a finding with their rate, which replaces
/// the filter's warning.
#[test]
fn evictions_are_those_of_now() {
    let mut state = state(SIZE, 0);
    let poll = |state: &mut State, at: u64, evicted: u64| {
        answer(state, at, |snapshot| {
            let status = &mut snapshot.status;
            status.store.evicted_lossy = evicted;
            status.warnings.extend(status.store.evictions());
        });
    };
    for at in 0..10 {
        poll(&mut state, at, 5_000);
    }
    assert!(!has(&state, "evicted"), "{:?}", texts(&state));
    for screen in ["1", "5"] {
        type_keys(&mut state, screen);
        let text = crate::ui::tests::text(&state, SIZE);
        assert!(!text.contains("were evicted"), "{text}");
    }
    for at in 10..50 {
        poll(&mut state, at, 5_000 + 6 * (at - 9));
    }
    let evicts =
        "the store evicted 240 buckets in use in the last 49s, 4.9/s: their keys begin anew";
    assert!(has(&state, evicts), "{:?}", texts(&state));
    assert_eq!(
        texts(&state)
            .iter()
            .filter(|text| text.contains("evicted"))
            .count(),
        1
    );
    for at in 50..171 {
        poll(&mut state, at, 5_240);
    }
    assert!(!has(&state, "evicted"), "{:?}", texts(&state));
}

/// Feeds 30 polls in which `new` of `all` requests a second create a bucket in a store of `buckets`,
/// and returns the finding about new keys.
fn new_keys(buckets: u64, uptime: u64, (new, all): (u64, u64)) -> Option<String> {
    let mut state = state(SIZE, 0);
    for at in 0..30 {
        answer(&mut state, at, |snapshot| {
            let status = &mut snapshot.status;
            let created = 100 + new * at;
            status.uptime_ns = (uptime + at) * S;
            let store = &mut status.store;
            (store.buckets, store.used) = (buckets, created.min(buckets));
            store.evicted_lossy = created.saturating_sub(buckets) / 2;
            store.evicted_lossless = created.saturating_sub(buckets) - store.evicted_lossy;
            for rule in &mut status.rules {
                (rule.admitted, rule.refused, rule.shadow_refused) = (0, 0, 0);
            }
            status.rules[0].admitted = 100 + all * at;
        });
    }
    texts(&state)
        .into_iter()
        .find(|text| text.contains("new key"))
}

/// New keys are a finding if most requests have one, or if a minute of them would fill the store.
/// New users who send several requests each are none, and neither is the first minute of Envoy.
#[test]
fn a_flood_of_new_keys_is_counted() {
    let of_most =
        "98% of requests have a new key: 300 new keys/s; store 13% full, none evicted in use";
    let full =
        "98% of requests have a new key: 300 new keys/s; store 100% full, 150/s evicted in use";
    let fills =
        "30% of requests have a new key: 1.5k new keys/s; store 67% full, none evicted in use";
    for (buckets, uptime, requests, expected) in [
        (65_536, 600, (300, 305), Some(of_most)),
        (1_024, 600, (300, 305), Some(full)),
        (65_536, 600, (1_500, 5_000), Some(fills)),
        (65_536, 600, (300, 900), None),
        (65_536, 600, (5, 5), None),
        (65_536, 20, (300, 305), None),
    ] {
        let found = new_keys(buckets, uptime, requests);
        assert_eq!(found.as_deref(), expected, "{requests:?} at {uptime}");
    }
}

/// The filter's warning about a nearly full store is not repeated as a finding.
#[test]
fn a_full_store_is_one_finding() {
    let mut state = state(SIZE, 0);
    answer(&mut state, 0, |snapshot| {
        let warning = "about 98% of the store is in use by buckets that are not idle";
        snapshot.status.warnings = vec![warning.to_owned()];
        (snapshot.status.store.used, snapshot.status.store.sampled) = (4_000, 100);
    });
    assert_eq!(
        texts(&state)
            .iter()
            .filter(|text| text.contains("store"))
            .count(),
        1
    );
}

/// Edits, overrides and bans by operators that end within five minutes, ordered by their end.
#[test]
fn live_changes_that_end_soon() {
    let mut state = state(SIZE, 3);
    let now_ns = state.server_ns() + 2 * S;
    let ban = |key: &str, until_s: u64| Event {
        at_ns: now_ns,
        kind: EventKind::Ban,
        by: "ops".to_owned(),
        rule: Some("reply-per-user".to_owned()),
        key: Some(key.to_owned()),
        until_ns: Some(now_ns + until_s * S),
        ..Event::default()
    };
    answer(&mut state, 4, |snapshot| {
        let mut rules = rules();
        if let Some(edit) = &mut rules[1].edit {
            edit.expires_at_ns = Some(now_ns + 90 * S);
        }
        snapshot.rules = Some(loudou_api::Rules {
            rules,
            ..loudou_api::Rules::default()
        });
        // Alice's ban ends later, and bob's is by a penalty.
        snapshot.events = vec![ban("alice", 400)];
        for (_, bucket) in &mut snapshot.buckets {
            let by = match bucket.key.as_str() {
                "mallory" => BanBy::Operator,
                "bob" => BanBy::Penalty,
                _ => continue,
            };
            let until_ns = Some(now_ns + 60 * S);
            bucket.ban = Some(BanView { until_ns, by });
        }
    });
    let ending = |state: &State| {
        let texts = texts(state).into_iter();
        texts
            .filter(|text| text.contains("end"))
            .collect::<Vec<_>>()
    };
    let edit = "the edit of search-per-key ends in 1m30s";
    assert_eq!(
        ending(&state),
        ["the ban of mallory in reply-per-user ends in 1m", edit]
    );
    // If there are many, they are counted.
    answer(&mut state, 5, |snapshot| {
        snapshot.truncated = true;
        snapshot.buckets.clear();
        let bans = (0..20).map(|number| ban(&format!("k{number:02}"), 200 + number));
        snapshot.events = bans.collect();
    });
    let ending = ending(&state);
    assert_eq!(ending.len(), 9, "{ending:?}");
    assert_eq!(ending[8], "14 more changes by operators end within 5m");
}
