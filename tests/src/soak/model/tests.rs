//! Tests that the model finds the violations of a broken limiter, and none in a correct limiter.

use super::super::rules::{Family, Numbers};
use super::super::timeline::OPEN;
use super::*;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

fn rule(kind: Kind, family: Family) -> Rule {
    Rule {
        name: "r".to_owned(),
        kind,
        family,
        slow: true,
    }
}

const fn numbers(capacity: u64, refill: u64) -> Numbers {
    Numbers { capacity, refill }
}

fn timeline(first: Numbers) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.propose(0, OPEN, first);
    timeline
}

/// Adds a change that is sent at one instant and answered at another.
fn change(timeline: &mut Timeline, sent: At, answered: At, to: Numbers) {
    timeline.propose(sent, OPEN, to);
    timeline.settle(sent, answered);
}

/// Creates `count` requests, one per millisecond, all with this outcome.
fn train(from: At, count: u64, outcome: Outcome) -> Vec<Event> {
    let event = |n: u64| Event {
        sent: from + n * 1_000_000,
        answered: from + (n + 1) * 1_000_000,
        outcome,
        opened: 0,
        held_until: None,
        pass: None,
    };
    (0..count).map(event).collect()
}

fn admitted(from: At, count: u64) -> Vec<Event> {
    train(from, count, Outcome::Admitted)
}

fn refused(from: At, count: u64) -> Vec<Event> {
    train(from, count, Outcome::Refused)
}

fn record(events: &[Vec<Event>]) -> Record {
    Record {
        events: events.concat(),
        ..Record::default()
    }
}

fn broken(rule: &Rule, timeline: &Timeline, record: &Record) -> Vec<Promise> {
    let breaches = check(rule, timeline, record);
    breaches.iter().map(|breach| breach.promise).collect()
}

fn own(gives: Gives, from: At, sure: [At; 2], until: At) -> KeySpan {
    KeySpan {
        from,
        sure_from: sure[0],
        sure_until: sure[1],
        until,
        gives,
        is_ban: gives == Gives::Banned,
    }
}

fn counting() -> impl Iterator<Item = Kind> {
    Kind::ALL
        .into_iter()
        .filter(|kind| !kind.pays_later() && *kind != Kind::Concurrency)
}

#[test]
fn one_request_too_many_is_found_in_every_algorithm() {
    for kind in counting() {
        for family in [Family::Share, Family::Units] {
            let (rule, timeline) = (rule(kind, family), timeline(numbers(5, 10 * MINUTE)));
            let right = record(&[admitted(SECOND, 5), refused(2 * SECOND, 3)]);
            assert_eq!(broken(&rule, &timeline, &right), [], "{rule:?}");
            let wrong = record(&[admitted(SECOND, 6)]);
            assert_eq!(
                broken(&rule, &timeline, &wrong),
                [Promise::AtMost],
                "{rule:?}"
            );
        }
    }
}

#[test]
fn one_refused_too_early_is_found_in_every_algorithm() {
    for kind in counting() {
        let (rule, timeline) = (rule(kind, Family::Share), timeline(numbers(5, 10 * MINUTE)));
        let wrong = record(&[admitted(SECOND, 4), refused(2 * SECOND, 1)]);
        assert_eq!(
            broken(&rule, &timeline, &wrong),
            [Promise::AtLeast],
            "{rule:?}"
        );
        let never = record(&[refused(2 * SECOND, 1)]);
        assert_eq!(
            broken(&rule, &timeline, &never),
            [Promise::AtLeast],
            "{rule:?}"
        );
    }
}

#[test]
fn what_time_gives_is_allowed_and_no_more() {
    let slow = timeline(numbers(5, 50 * SECOND));
    for kind in [Kind::Funnel, Kind::TokenBucket, Kind::SlidingCounter] {
        let rule = rule(kind, Family::Share);
        // One unit is refilled every ten seconds.
        let right = record(&[admitted(0, 5), admitted(10 * SECOND, 1)]);
        assert_eq!(broken(&rule, &slow, &right), []);
        let wrong = record(&[admitted(0, 5), admitted(9 * SECOND, 1)]);
        assert_eq!(broken(&rule, &slow, &wrong), [Promise::AtMost]);
    }
    for kind in [Kind::FixedWindow, Kind::SlidingLog, Kind::SlidingWindow] {
        let rule = rule(kind, Family::Share);
        let right = record(&[admitted(0, 5), admitted(50 * SECOND, 5)]);
        assert_eq!(broken(&rule, &slow, &right), []);
        let wrong = record(&[admitted(0, 5), admitted(44 * SECOND, 1)]);
        assert_eq!(broken(&rule, &slow, &wrong), [Promise::AtMost]);
    }
}

#[test]
fn an_edit_there_and_back_gives_nothing() {
    let rule = rule(Kind::Funnel, Family::Share);
    let mut timeline = timeline(numbers(10, 10 * MINUTE));
    change(&mut timeline, SECOND, 2 * SECOND, numbers(11, 10 * MINUTE));
    change(
        &mut timeline,
        3 * SECOND,
        4 * SECOND,
        numbers(10, 10 * MINUTE),
    );
    let right = record(&[admitted(0, 10), refused(5 * SECOND, 4)]);
    assert_eq!(broken(&rule, &timeline, &right), []);
    // A key may use the larger of the two numbers, because it was in force for some time.
    let larger = record(&[admitted(0, 10), admitted(1_500_000_000, 1)]);
    assert_eq!(broken(&rule, &timeline, &larger), []);
    let gains = record(&[admitted(0, 10), admitted(5 * SECOND, 2)]);
    assert_eq!(broken(&rule, &timeline, &gains), [Promise::AtMost]);
}

#[test]
fn after_the_answer_the_old_numbers_are_gone() {
    let rule = rule(Kind::FixedWindow, Family::Share);
    let mut timeline = timeline(numbers(10, 10 * MINUTE));
    change(&mut timeline, SECOND, 2 * SECOND, numbers(3, 10 * MINUTE));
    assert_eq!(
        broken(&rule, &timeline, &record(&[admitted(1_990_000_000, 10)])),
        []
    );
    let late = record(&[admitted(2 * SECOND + 1, 4)]);
    assert_eq!(broken(&rule, &timeline, &late), [Promise::AtMost]);
    // And the new numbers are in force.
    change(
        &mut timeline,
        3 * SECOND,
        4 * SECOND,
        numbers(10, 10 * MINUTE),
    );
    let few = record(&[admitted(5 * SECOND, 8), refused(6 * SECOND, 1)]);
    assert_eq!(broken(&rule, &timeline, &few), [Promise::AtLeast]);
}

#[test]
fn each_reset_gives_one_capacity() {
    for units in [Family::Share, Family::Units] {
        let rule = rule(Kind::SlidingLog, units);
        let mut timeline = timeline(numbers(4, 10 * MINUTE));
        timeline.resets.push((SECOND, 2 * SECOND));
        let mut record = record(&[admitted(0, 4), admitted(3 * SECOND, 4)]);
        assert_eq!(broken(&rule, &timeline, &record), []);
        record.events.extend(admitted(4 * SECOND, 1));
        assert_eq!(broken(&rule, &timeline, &record), [Promise::AtMost]);
        record.resets.push((3 * SECOND, 4 * SECOND));
        assert_eq!(broken(&rule, &timeline, &record), []);
    }
}

#[test]
fn overrides_give_more_while_they_last_and_bans_nothing() {
    let rule = rule(Kind::Funnel, Family::Units);
    let timeline = timeline(numbers(4, 10 * MINUTE));
    let mut record = record(&[admitted(0, 4), admitted(2 * SECOND, 8)]);
    assert_eq!(broken(&rule, &timeline, &record), [Promise::AtMost]);
    let sure = [2 * SECOND, 3 * SECOND];
    record.spans = vec![own(Gives::Scale(3), SECOND, sure, 4 * SECOND)];
    assert_eq!(broken(&rule, &timeline, &record), []);
    record.spans = vec![own(
        Gives::Own(numbers(12, MINUTE)),
        SECOND,
        sure,
        4 * SECOND,
    )];
    assert_eq!(broken(&rule, &timeline, &record), []);
    record.spans = vec![own(Gives::Unlimited, SECOND, sure, 4 * SECOND)];
    assert_eq!(broken(&rule, &timeline, &record), []);
    record.events.extend(refused(2_500_000_000, 1));
    assert_eq!(broken(&rule, &timeline, &record), [Promise::Unlimited]);
    record.spans = vec![own(Gives::Banned, SECOND, sure, 4 * SECOND)];
    assert_eq!(
        broken(&rule, &timeline, &record),
        [Promise::Banned, Promise::AtMost]
    );
}

#[test]
fn a_ban_excuses_refusals_until_its_latest_end() {
    let rule = rule(Kind::TokenBucket, Family::Share);
    let timeline = timeline(numbers(4, 10 * MINUTE));
    let mut record = record(&[refused(0, 1), refused(3 * SECOND, 1)]);
    let sure = [SECOND, 2 * SECOND];
    record.spans = vec![own(Gives::Banned, 0, sure, 4 * SECOND)];
    assert_eq!(broken(&rule, &timeline, &record), []);
    record.events.extend(refused(5 * SECOND, 1));
    assert_eq!(broken(&rule, &timeline, &record), [Promise::AtLeast]);
}

#[test]
fn a_key_that_was_left_alone_is_full_again() {
    let fast = timeline(numbers(4, 2 * SECOND));
    for kind in counting() {
        let rule = rule(kind, Family::Share);
        let soon = record(&[admitted(0, 4), refused(3 * SECOND, 1)]);
        assert_eq!(
            broken(&rule, &fast, &soon),
            [],
            "within two refills: {kind:?}"
        );
        let late = record(&[admitted(0, 4), refused(5 * SECOND, 1)]);
        assert_eq!(broken(&rule, &fast, &late), [Promise::AtLeast], "{kind:?}");
    }
}

#[test]
fn what_a_dead_sandbox_answered_excuses_but_does_not_count() {
    let rule = rule(Kind::FixedWindow, Family::Share);
    let timeline = timeline(numbers(4, 10 * MINUTE));
    let unknown = train(0, 3, Outcome::Unknown);
    let took = record(&[unknown.clone(), admitted(SECOND, 1), refused(2 * SECOND, 1)]);
    assert_eq!(broken(&rule, &timeline, &took), []);
    let took_nothing = record(&[unknown, admitted(SECOND, 4)]);
    assert_eq!(broken(&rule, &timeline, &took_nothing), []);
}

#[test]
fn a_share_that_is_rounded_is_excused_once_for_each_change() {
    let mut timeline = timeline(numbers(10, 10 * MINUTE));
    change(&mut timeline, SECOND, SECOND, numbers(3, 10 * MINUTE));
    // The used tenth becomes 0.3 of three units. Rounded, this is one unit at most, so two remain.
    let events = [
        admitted(0, 1),
        admitted(2 * SECOND, 1),
        refused(3 * SECOND, 1),
    ];
    assert_eq!(
        broken(
            &rule(Kind::FixedWindow, Family::Share),
            &timeline,
            &record(&events)
        ),
        []
    );
    let exact = rule(Kind::Funnel, Family::Share);
    let breaches = broken(&exact, &timeline, &record(&events));
    assert_eq!(breaches, [Promise::AtLeast], "0.3 and 1 of 3 are used");
}

#[test]
fn what_pays_later_takes_one_more_and_has_only_to_begin() {
    for (kind, most) in [
        (Kind::LeakyQueue, 6),
        (Kind::SmoothBursty, 1),
        (Kind::SmoothWarmup, 1),
    ] {
        let (rule, timeline) = (rule(kind, Family::Share), timeline(numbers(5, 10 * MINUTE)));
        let right = record(&[admitted(SECOND, most), refused(2 * SECOND, 3)]);
        assert_eq!(broken(&rule, &timeline, &right), [], "{rule:?}");
        let wrong = record(&[admitted(SECOND, most + 1)]);
        assert_eq!(
            broken(&rule, &timeline, &wrong),
            [Promise::AtMost],
            "{rule:?}"
        );
        let never = record(&[refused(SECOND, 1)]);
        assert_eq!(
            broken(&rule, &timeline, &never),
            [Promise::AtLeast],
            "{rule:?}"
        );
    }
}

#[test]
fn no_more_are_in_flight_than_there_are_places() {
    let (rule, timeline) = (
        rule(Kind::Concurrency, Family::Share),
        timeline(numbers(3, 10 * MINUTE)),
    );
    let held = |count: u64, until: At| {
        let mut events = admitted(SECOND, count);
        for event in &mut events {
            event.held_until = Some(until);
        }
        events
    };
    let right = record(&[held(3, 2 * SECOND), admitted(3 * SECOND, 3)]);
    assert_eq!(broken(&rule, &timeline, &right), []);
    let wrong = record(&[held(3, 2 * SECOND), admitted(1_900_000_000, 1)]);
    assert_eq!(broken(&rule, &timeline, &wrong), [Promise::AtMost]);
    let mut reset = wrong.clone();
    reset.resets.push((1_500_000_000, 1_500_000_001));
    assert_eq!(broken(&rule, &timeline, &reset), []);
    // After its lease, a slot may go to another request.
    let mut old = timeline.clone();
    change(&mut old, 0, 0, numbers(3, SECOND / 2));
    assert_eq!(broken(&rule, &old, &wrong), []);
    let refused = record(&[held(1, 2 * SECOND), refused(1_900_000_000, 1)]);
    assert_eq!(broken(&rule, &timeline, &refused), [Promise::AtLeast]);
}

/// Creates a record of requests that arrived together and passed at these instants, in
/// milliseconds. Each may have been due 10 ms earlier.
fn passes(came: At, at: &[u64]) -> Record {
    const MS: u64 = 1_000_000;
    let event = |at: &u64| Event {
        sent: came,
        answered: (at + 1) * MS,
        outcome: Outcome::Admitted,
        opened: 0,
        held_until: None,
        pass: Some(Pass {
            came,
            decided_until: came,
            due_from: (at.saturating_sub(10) * MS).max(came),
            arrived: at * MS,
        }),
    };
    Record {
        events: at.iter().map(event).collect(),
        ..Record::default()
    }
}

#[test]
fn those_that_wait_pass_at_the_rate_and_as_late_as_their_workers() {
    let rule = rule(Kind::Line, Family::Units);
    // One request passes per 100 ms.
    let mut timeline = timeline(numbers(5, SECOND / 2));
    let broken = |timeline: &Timeline, at: &[u64]| broken(&rule, timeline, &passes(0, at));
    assert_eq!(broken(&timeline, &[0, 100, 200, 300]), []);
    assert_eq!(broken(&timeline, &[0, 100, 210, 300]), [], "one was late");
    let found = broken(&timeline, &[0, 100, 220, 300]);
    assert_eq!(found, [Promise::AtMost], "no worker was as late");
    assert_eq!(broken(&timeline, &[0, 99]), [Promise::AtMost], "early");
    let found = broken(&timeline, &[0, 100, 311]);
    assert_eq!(found, [Promise::AtLeast], "too late");
    // From then on, one request passes per 20 ms.
    change(
        &mut timeline,
        SECOND / 10,
        SECOND / 10,
        numbers(5, SECOND / 10),
    );
    assert_eq!(broken(&timeline, &[0, 100, 120, 140]), []);
    let found = broken(&timeline, &[0, 100, 200, 300]);
    assert_eq!(found, [Promise::AtLeast], "by the old numbers");
    let found = broken(&timeline, &[0, 100, 300, 301, 302]);
    assert_eq!(found, [Promise::AtMost, Promise::AtLeast], "all at once");
}

#[test]
fn those_that_were_due_before_a_worker_looked_for_changes_pass_together() {
    let rule = rule(Kind::Line, Family::Units);
    let mut timeline = timeline(numbers(5, SECOND / 2));
    // One request passes per 5 ms. Before, it was one per 100 ms.
    change(
        &mut timeline,
        SECOND / 10,
        SECOND / 10,
        numbers(5, SECOND / 40),
    );
    let late = |look: u64| {
        let at = [0, 100, look, look, look, look, look + 5];
        broken(&rule, &timeline, &passes(0, &at))
    };
    assert_eq!(late(120), []);
    assert!(late(150).contains(&Promise::AtMost));
}

#[test]
fn a_line_whose_bucket_was_deleted_passes_beside_another() {
    let rule = rule(Kind::Line, Family::Units);
    let timeline = timeline(numbers(5, SECOND / 2));
    let mut two = passes(0, &[0, 100, 200, 300, 400]);
    let new = passes(SECOND / 10, &[101, 201, 301, 401]);
    two.events.extend(new.events);
    assert_eq!(broken(&rule, &timeline, &two), [Promise::AtMost]);
    two.resets = vec![(SECOND / 11, SECOND / 10)];
    assert_eq!(broken(&rule, &timeline, &two), []);
}

#[test]
fn those_that_wait_take_their_places_and_no_more() {
    let rule = rule(Kind::Line, Family::Units);
    let timeline = timeline(numbers(3, 3 * SECOND));
    let mut three = passes(0, &[0, 1_000, 2_000, 3_000]);
    three.events.extend(refused(1_000_000, 1));
    assert_eq!(broken(&rule, &timeline, &three), []);
    let mut two = three.clone();
    two.events.remove(3);
    assert_eq!(broken(&rule, &timeline, &two), [Promise::AtLeast]);
    // The third request waited until its key was banned.
    three.events[3].pass = None;
    three.events[3].outcome = Outcome::Refused;
    three.spans = vec![own(
        Gives::Banned,
        2 * SECOND,
        [2 * SECOND, 3 * SECOND],
        3 * SECOND,
    )];
    assert_eq!(broken(&rule, &timeline, &three), []);
}
