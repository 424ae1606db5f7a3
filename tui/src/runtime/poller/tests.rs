//! The calls of a poll, and the buckets that it reads from a server with many buckets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use loudou_client::fake::Fake;

mod world;

use world::World;

const MINE: &str = "0f1e2d3c4b5a6978";

/// One poll, and the change of the simulated server before it.
type Step = (PollRequest, fn(&mut World));

/// Runs polls against a simulated server, which may change in between. Returns the snapshot and the
/// calls of each poll.
fn polls(world: World, requests: Vec<Step>) -> Vec<(Result<Snapshot, ClientError>, Vec<String>)> {
    let world = Arc::new(Mutex::new(world));
    let served = Arc::clone(&world);
    let fake = Fake::serving(move |request| served.lock().expect("a world").answer(request));
    let client = fake.client(Duration::from_secs(10));
    // These tests are not about time limits, which a busy machine would exceed.
    let mut poller = Poller::new(&client, Clock::standing());
    let mut done = Vec::new();
    for (request, change) in requests {
        change(&mut world.lock().expect("a world"));
        // The clock stands still, but each of these polls counts as a second after the previous
        // one.
        poller.searched_at = poller.searched_at.and(None);
        let snapshot = poller.poll(&request);
        let mut calls = Vec::new();
        while let Some(request) = fake.try_request() {
            let line = request.lines().next().unwrap_or("");
            let call = line.trim_end_matches(" HTTP/1.1").replace("/v1/", "");
            let body = request.lines().last().unwrap_or("");
            calls.push(if call.starts_with("POST") {
                format!("{call} {body}")
            } else {
                call
            });
        }
        done.push((snapshot, calls));
    }
    done
}

fn one(world: World, request: PollRequest) -> (Snapshot, Vec<String>) {
    let (snapshot, calls) = polls(world, vec![(request, |_| {})]).remove(0);
    (snapshot.expect("all answered"), calls)
}

fn lists() -> PollRequest {
    PollRequest {
        lists: true,
        ..PollRequest::default()
    }
}

fn names(keys: impl IntoIterator<Item = usize>) -> Vec<BucketName> {
    let keys = keys.into_iter();
    keys.map(|key| BucketName::new("r", &format!("k{key}")))
        .collect()
}

fn keys(snapshot: &Snapshot) -> BTreeSet<&str> {
    snapshot
        .buckets
        .iter()
        .map(|(_, bucket)| bucket.key.as_str())
        .collect()
}

#[test]
fn few_buckets_are_all_read_at_once() {
    let (snapshot, calls) = one(World::new(600), lists());
    assert_eq!((snapshot.buckets.len(), snapshot.truncated), (500, true));
    let (snapshot, _) = one(World::new(400), lists());
    assert_eq!((snapshot.buckets.len(), snapshot.truncated), (400, false));
    assert_eq!(
        calls,
        [
            "GET status",
            "GET events?after=0",
            "GET top?by=refused&limit=256",
            "GET top?by=admitted&limit=256",
            "GET rules",
            "GET buckets?limit=500",
        ]
    );
}

/// The call for the rows is slow, so the status that was read before it is old.
#[test]
fn a_slow_call_for_rows_makes_the_status_old() {
    const SLOW: Nanos = Nanos::from_millis(40);
    let mut world = World::new(600);
    let fake = Fake::serving(move |request| {
        if request.starts_with("POST /v1/buckets") {
            loudou_client::clock::pause(SLOW);
        }
        world.answer(request)
    });
    let client = fake.client(Duration::from_secs(10));
    let mut poller = Poller::new(&client, Clock::start());
    let request = PollRequest {
        shown: names([1, 2]),
        ..PollRequest::default()
    };
    let snapshot = poller.poll(&request).expect("answered");
    assert!(snapshot.status_age >= SLOW, "{}", snapshot.status_age);
}

/// A store of one page is read completely in every poll, so that no bucket is missing in the list.
#[test]
fn a_small_store_is_read_whole_with_every_poll() {
    let steps: Vec<Step> = vec![
        (lists(), |_| {}),
        (lists(), |world| world.buckets = 2),
        (lists(), |world| world.buckets = 1),
    ];
    let polled = polls(World::new(1), steps);
    let read = polled.iter().map(|(snapshot, _)| {
        let snapshot = snapshot.as_ref().expect("answered");
        (snapshot.buckets.len(), snapshot.truncated)
    });
    assert_eq!(
        read.collect::<Vec<_>>(),
        [(1, false), (2, false), (1, false)]
    );
}

/// After lost changes were applied, the searches of a large store restart at once.
#[test]
fn searches_begin_anew_when_asked() {
    let anew = PollRequest {
        anew: true,
        ..lists()
    };
    let steps: Vec<Step> = vec![(lists(), |_| {}), (lists(), |_| {}), (anew, |_| {})];
    let polled = polls(World::new(600), steps);
    let searches = polled.iter().map(|(_, calls)| {
        let calls = calls.iter();
        calls.filter(|call| call.starts_with("GET buckets")).count()
    });
    // The last search is for any bucket and for banned ones.
    assert_eq!(searches.collect::<Vec<_>>(), [1, 0, 3]);
}

/// However many buckets there are, a poll reads the buckets on screen and some with new requests.
#[test]
fn a_poll_costs_the_same_with_a_million_buckets() {
    for buckets in [1_000, 1_000_000] {
        let mut world = World::new(buckets);
        world.page = 20;
        world.refused = (0..256).map(|key| (key, 1_000)).collect();
        let request = PollRequest {
            shown: names(900..940),
            others: names(500..900),
            ..lists()
        };
        let busy: fn(&mut World) =
            |world| world.refused.iter_mut().for_each(|(_, count)| *count += 1);
        let polled = polls(world, (0..4).map(|_| (request.clone(), busy)).collect());
        for (place, (snapshot, calls)) in polled.iter().enumerate() {
            let snapshot = snapshot.as_ref().expect("all answered");
            let read = keys(snapshot);
            assert!((900..940).all(|key| read.contains(format!("k{key}").as_str())));
            // The searches end early in the first polls.
            assert!(
                calls.len() <= if place < 3 { 60 } else { 10 },
                "{place}: {calls:?}"
            );
        }
        // All refused keys are read within a few polls.
        let read = polled
            .iter()
            .take(3)
            .filter_map(|(snapshot, _)| snapshot.as_ref().ok());
        let read: BTreeSet<&str> = read.flat_map(|snapshot| keys(snapshot)).collect();
        assert!((0..256).all(|key| read.contains(format!("k{key}").as_str())));
    }
}

/// Data that are not on screen are not read.
#[test]
fn a_poll_without_a_list_reads_the_status() {
    let mut world = World::new(10);
    world.refused = vec![(1, 5)];
    let request = PollRequest {
        instance: MINE.to_owned(),
        generation: Some(1),
        ..PollRequest::default()
    };
    let (snapshot, calls) = one(world.clone(), request.clone());
    assert_eq!(calls, ["GET status", "GET events?after=0f1e2d3c4b5a6978-0"]);
    assert_eq!(snapshot.buckets, []);
    let shown = PollRequest {
        shown: names([3]),
        ..request
    };
    let (snapshot, calls) = one(world, shown);
    assert_eq!(
        calls.last().map(String::as_str),
        Some(r#"POST buckets {"buckets":[["r","k3"]]}"#)
    );
    assert_eq!(keys(&snapshot), BTreeSet::from(["k3"]));
}

#[test]
fn a_key_that_is_refused_anew_is_read_at_once() {
    let mut world = World::new(10_000);
    world.page = 1;
    let steps: Vec<Step> = vec![
        (lists(), |_| {}),
        (lists(), |world| world.refused = vec![(9_999, 1)]),
        (lists(), |_| {}),
    ];
    let polled = polls(world, steps);
    let has = |place: usize| keys(polled[place].0.as_ref().expect("answered")).contains("k9999");
    assert_eq!([has(0), has(1), has(2)], [false, true, false]);
}

/// A call may read fewer names than it contains, and buckets that do not exist are reported.
#[test]
fn names_are_read_in_as_many_calls_as_it_takes() {
    let mut world = World::new(100);
    world.reads = Some(8);
    let request = PollRequest {
        shown: names(90..130),
        ..PollRequest::default()
    };
    let (snapshot, calls) = one(world, request);
    assert_eq!(keys(&snapshot).len(), 10);
    assert_eq!(snapshot.gone, names(100..130));
    let reads = calls.iter().filter(|call| call.starts_with("POST"));
    assert_eq!(reads.count(), 5);
}

/// An older server has no call for several buckets.
#[test]
fn buckets_of_an_earlier_filter_are_read_one_by_one() {
    let mut world = World::new(100);
    world.is_old = true;
    let request = PollRequest {
        shown: names(98..102),
        ..PollRequest::default()
    };
    let steps: Vec<Step> = vec![(request.clone(), |_| {}), (request, |_| {})];
    let polled = polls(world, steps);
    for (snapshot, _) in &polled {
        let snapshot = snapshot.as_ref().expect("answered");
        assert_eq!(keys(snapshot), BTreeSet::from(["k98", "k99"]));
        assert_eq!(snapshot.gone, names(100..102));
        assert!(snapshot.buckets.iter().all(|(at, _)| *at == 9));
    }
    let posts = polled[1].1.iter().filter(|call| call.starts_with("POST"));
    assert_eq!(posts.count(), 0, "it is known by then");
}

/// The search for a filter text continues through the store, and shows its progress.
#[test]
fn a_filter_searches_the_store() {
    let mut world = World::new(10_000);
    world.page = 20;
    let request = PollRequest {
        wanted: vec![Wanted {
            key: Some("k99".to_owned()),
            ..Wanted::default()
        }],
        ..lists()
    };
    let steps: Vec<Step> = (0..4)
        .map(|_| -> Step { (request.clone(), |_| {}) })
        .collect();
    let polled = polls(world, steps);
    let snapshots = polled
        .iter()
        .map(|(snapshot, _)| snapshot.as_ref().expect("answered"));
    let progress: Vec<Option<u64>> = snapshots
        .clone()
        .map(|snapshot| snapshot.searching)
        .collect();
    assert_eq!(progress, [Some(40), Some(80), None, None]);
    let read: BTreeSet<&str> = snapshots
        .flat_map(keys)
        .filter(|key| key.contains("k99"))
        .collect();
    assert_eq!(read.len(), 111);
}

/// The numbers and rules of one frame have the same generation, even if an edit is made between the
/// calls.
#[test]
fn a_poll_is_of_one_generation() {
    for edits in 0..6 {
        let mut world = World::new(10);
        world.edits = edits;
        let request = PollRequest {
            shown: names(0..3),
            ..PollRequest::default()
        };
        let (snapshot, calls) = one(world, request);
        let rules = snapshot.rules.expect("rules").generation;
        assert_eq!(rules, snapshot.status.generation, "{edits}: {calls:?}");
    }
}

/// If the process restarts between two calls, the poll is discarded.
#[test]
fn a_poll_is_of_one_process() {
    for call in [
        "/v1/events",
        "POST /v1/buckets",
        "/v1/rules",
        "GET /v1/buckets",
    ] {
        let mut world = World::new(10);
        let fake = Fake::serving(move |request| {
            let other = request.contains(call);
            world.instance = if other { "fedcba9876543210" } else { MINE }.to_owned();
            world.answer(request)
        });
        let client = fake.client(Duration::from_secs(10));
        let mut poller = Poller::new(&client, Clock::standing());
        let request = PollRequest {
            shown: names([1]),
            ..lists()
        };
        let error = poller.poll(&request).expect_err("two processes");
        assert!(
            matches!(error, ClientError::Restarted { .. }),
            "{call}: {error}"
        );
    }
}

/// The rules of another process are read even if they have the same generation.
#[test]
fn rules_of_another_process_are_read() {
    let request = PollRequest {
        instance: "fedcba9876543210".to_owned(),
        generation: Some(1),
        ..PollRequest::default()
    };
    assert!(one(World::new(1), request).0.rules.is_some());
}

#[test]
fn names_fit_into_a_header() {
    let long = BucketName::new(&"r".repeat(64), &"%C3".repeat(100));
    let names = vec![long; 64];
    let fits = fitting(&names);
    let call = BucketNames {
        buckets: names
            .iter()
            .take(fits)
            .map(|name| (name.rule.clone(), name.key.clone()))
            .collect(),
    };
    let text = serde_json::to_string(&call).expect("JSON").len();
    assert!(fits >= 8 && text < 8 * 1024, "{fits} {text}");
    assert_eq!(fitting(&[BucketName::new("r", &"k".repeat(9_000))]), 1);
}

/// A server with many searching clients demands long pauses. The rest of a poll does not wait for
/// them, and no poll fails.
#[test]
fn a_poll_does_not_wait_for_searches() {
    for is_busy in [false, true] {
        let mut world = World::new(10_000);
        world.page = 1;
        world.wait_ns = 60_000_000_000;
        world.is_busy = is_busy;
        let request = PollRequest {
            shown: names(0..3),
            ..lists()
        };
        let steps: Vec<Step> = (0..3)
            .map(|_| -> Step { (request.clone(), |_| {}) })
            .collect();
        let polled = polls(world, steps);
        let searches = polled.iter().flat_map(|(_, calls)| calls);
        let searches = searches.filter(|call| call.starts_with("GET buckets"));
        assert_eq!(searches.count(), 1, "the next one is not due");
        for (snapshot, _) in &polled {
            assert!(keys(snapshot.as_ref().expect("answered")).len() >= 3);
        }
    }
}

/// A new configuration removes the rule that the filter names. The poll must return the new rules,
/// and must not fail permanently.
#[test]
fn a_filter_by_a_rule_that_is_gone_finds_nothing() {
    let request = PollRequest {
        wanted: vec![Wanted {
            rule: Some("gone".to_owned()),
            ..Wanted::default()
        }],
        ..lists()
    };
    let (snapshot, _) = one(World::new(10), request);
    assert!(snapshot.rules.is_some());
    assert_eq!((snapshot.searching, snapshot.buckets.len()), (None, 10));
}
