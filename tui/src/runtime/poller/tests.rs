//! What a poll reads of many buckets, and in which order.

use std::time::Duration;

use loudou_api::{BucketsPage, Rules, Status, StoreStatus};

use super::*;
use crate::client::fake::{Answer, Fake};

fn page(state: BucketState, keys: std::ops::Range<usize>, next_cursor: Option<&str>) -> Answer {
    let buckets = keys.map(|key| BucketView {
        rule: "r".to_owned(),
        key: format!("k{key}"),
        state,
        ..BucketView::default()
    });
    let page = BucketsPage {
        now_ns: 9,
        buckets: buckets.collect(),
        next_cursor: next_cursor.map(ToOwned::to_owned),
        ..BucketsPage::default()
    };
    Answer::json("200 OK", &page)
}

/// Polls a store of `used` buckets that answers with `pages`; returns the snapshot and the requested pages.
fn polled(used: u64, was_cut: bool, pages: Vec<Answer>) -> (Snapshot, Vec<String>) {
    sought(used, was_cut, None, pages)
}

/// The same, with a filter for a key.
fn sought(
    used: u64,
    was_cut: bool,
    key: Option<&str>,
    pages: Vec<Answer>,
) -> (Snapshot, Vec<String>) {
    let status = Status {
        store: StoreStatus {
            used,
            ..StoreStatus::default()
        },
        ..Status::default()
    };
    let mut answers = vec![
        Answer::json("200 OK", &status),
        Answer::json("200 OK", &<Rules>::default()),
        Answer::json("200 OK", &<Events>::default()),
    ];
    answers.extend(pages);
    let fake = Fake::new(answers);
    let client = fake.client(Duration::from_secs(10));
    let request = PollRequest {
        key: key.map(ToOwned::to_owned),
        ..PollRequest::default()
    };
    // The bound of time is not what these test, and a busy machine would meet it.
    let snapshot = poll(&client, Clock::standing(), &request, was_cut);
    let mut asked = Vec::new();
    while let Some(request) = fake.try_request() {
        let query = request.strip_prefix("GET /v1/buckets?");
        asked.extend(query.map(|rest| rest.split(' ').next().unwrap_or("").to_owned()));
    }
    (snapshot.expect("all answered"), asked)
}

fn count_of(snapshot: &Snapshot, state: BucketState) -> usize {
    let buckets = snapshot.buckets.iter();
    buckets.filter(|(_, bucket)| bucket.state == state).count()
}

#[test]
fn few_buckets_are_read_once() {
    let pages = vec![
        page(BucketState::Refusing, 0..500, Some("7")),
        page(BucketState::Busy, 500..600, None),
    ];
    let (snapshot, asked) = polled(600, false, pages);
    assert_eq!(asked, ["limit=500", "cursor=7&limit=500"]);
    assert_eq!((snapshot.buckets.len(), snapshot.truncated), (600, false));
}

#[test]
fn of_many_those_that_stand_out_come_first_and_none_twice() {
    for (used, was_cut) in [(6_000, false), (0, true)] {
        let mut pages = vec![
            page(BucketState::Refusing, 0..2, Some("9")),
            page(BucketState::Refusing, 2..3, None),
            page(BucketState::Banned, 10..14, None),
        ];
        for from in (0..6_000).step_by(500) {
            pages.push(page(BucketState::Busy, from..from + 500, Some("1")));
        }
        let (snapshot, asked) = polled(used, was_cut, pages);
        assert_eq!(
            asked[..4],
            [
                "state=refusing&limit=500",
                "state=refusing&cursor=9&limit=500",
                "state=banned&limit=500",
                "limit=500"
            ]
        );
        assert_eq!(asked.len(), 13);
        assert_eq!((snapshot.buckets.len(), snapshot.truncated), (5_000, true));
        let of = |state| count_of(&snapshot, state);
        assert_eq!((of(BucketState::Refusing), of(BucketState::Banned)), (3, 4));
        assert_eq!(snapshot.buckets[0].1.key, "k0");
    }
}

#[test]
fn neither_the_refusing_nor_the_banned_crowd_out_the_others() {
    let mut pages = Vec::new();
    for from in (0..2_500).step_by(500) {
        pages.push(page(BucketState::Refusing, from..from + 500, Some("1")));
    }
    pages.push(page(BucketState::Banned, 9_000..9_100, None));
    for from in (2_500..5_000).step_by(500) {
        let to = (from + 500).min(4_900);
        pages.push(page(BucketState::Refusing, from..to, Some("1")));
    }
    let (snapshot, asked) = polled(20_000, false, pages);
    assert_eq!(asked[5], "state=banned&limit=500");
    assert_eq!(asked[6], "state=refusing&cursor=1&limit=500");
    assert_eq!(
        asked.last().map(String::as_str),
        Some("state=refusing&cursor=1&limit=400")
    );
    assert_eq!((snapshot.buckets.len(), snapshot.truncated), (5_000, true));
    let of = |state| count_of(&snapshot, state);
    let stand_out = (of(BucketState::Refusing), of(BucketState::Banned));
    assert_eq!(stand_out, (4_900, 100));
}

/// Empty pages: the scan passes through the store and finds nothing for long.
#[test]
fn searching_leaves_pages_for_the_rest() {
    let mut pages = Vec::new();
    for _ in 0..MOST_PAGES / 2 {
        pages.push(page(BucketState::Banned, 0..0, Some("1")));
    }
    // What is left of the share of the others is the refusing ones'.
    for _ in 0..MOST_PAGES / 4 {
        pages.push(page(BucketState::Refusing, 0..0, Some("1")));
    }
    pages.push(page(BucketState::Busy, 0..100, None));
    let (snapshot, asked) = polled(20_000, false, pages);
    assert_eq!(asked.len(), MOST_PAGES / 4 * 3 + 1);
    assert_eq!((snapshot.buckets.len(), snapshot.truncated), (100, false));
}

#[test]
fn of_many_those_that_are_looked_for_are_there() {
    let pages = vec![
        page(BucketState::Refusing, 0..1, None),
        page(BucketState::Banned, 1..2, None),
        page(BucketState::Busy, 0..40, None),
        page(BucketState::Busy, 100..200, None),
    ];
    let (snapshot, asked) = sought(6_000, false, Some("k"), pages);
    assert_eq!(asked[2..], ["key=k&limit=500", "limit=500"]);
    assert_eq!(snapshot.buckets.len(), 140);
    // All of few are read, and these with them.
    let pages = vec![page(BucketState::Busy, 0..9, None)];
    let (_, asked) = sought(9, false, Some("k"), pages);
    assert_eq!(asked, ["limit=500"]);
}

/// The process restarts between two calls: the poll is discarded.
#[test]
fn a_poll_is_of_one_process() {
    let mine = || "0f1e2d3c4b5a6978".to_owned();
    let other = || "fedcba9876543210".to_owned();
    let answers = |rules: String, events: String, buckets: String| {
        let status = Status {
            instance: mine(),
            ..Status::default()
        };
        let rules: Rules = Rules {
            instance: rules,
            ..Rules::default()
        };
        let events = Events {
            instance: events,
            ..Events::default()
        };
        let page = BucketsPage {
            instance: buckets,
            ..BucketsPage::default()
        };
        vec![
            Answer::json("200 OK", &status),
            Answer::json("200 OK", &rules),
            Answer::json("200 OK", &events),
            Answer::json("200 OK", &page),
        ]
    };
    let polled = |answers: Vec<Answer>, request: &PollRequest| {
        let fake = Fake::new(answers);
        let client = fake.client(Duration::from_secs(10));
        poll(&client, Clock::start(), request, false)
    };
    let request = PollRequest {
        instance: mine(),
        ..PollRequest::default()
    };
    assert!(polled(answers(mine(), mine(), mine()), &request).is_ok());
    for mixed in [
        answers(other(), mine(), mine()),
        answers(mine(), other(), mine()),
        answers(mine(), mine(), other()),
    ] {
        let error = polled(mixed, &request).expect_err("two processes");
        assert!(matches!(error, ClientError::Restarted { .. }), "{error}");
    }
    // The same generation of another process is none that was read.
    let seen = PollRequest {
        instance: other(),
        generation: Some(0),
        ..PollRequest::default()
    };
    let snapshot = polled(answers(mine(), mine(), mine()), &seen).expect("read");
    assert!(snapshot.rules.is_some());
}
