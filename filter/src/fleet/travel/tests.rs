use loudou_rules::size::FLEET_CHANGES;

use super::*;
use crate::host::fake::FakeHost;

const SHARE: &str = "s";

fn at(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn edit(rule: &str, value: &str) -> LocalChange {
    edit_of(rule, "b", value)
}

/// An edit of this version of the rule.
fn edit_of(rule: &str, base: &str, value: &str) -> LocalChange {
    LocalChange {
        name: ChangeName::Edit {
            rule: rule.to_owned(),
            base: None,
        },
        base: Some(base.to_owned()),
        value: value.as_bytes().to_vec(),
        until: Nanos::MAX,
    }
}

/// The changes of an Envoy that made these.
fn made(changes: &[LocalChange], now: Nanos) -> Changes {
    let mut all = Changes::default();
    assert!(all.make(changes, now));
    all
}

fn received(name: &str, value: &str, age_ms: u64, generation: u64) -> ReceivedChange {
    ReceivedChange {
        name: name.to_owned(),
        value: value.as_bytes().to_vec(),
        age: at(age_ms),
        generation,
        ..ReceivedChange::default()
    }
}

fn response(epoch: &str, generation: u64, received: Vec<ReceivedChange>) -> ChangesAnswer {
    ChangesAnswer {
        epoch: epoch.to_owned(),
        generation,
        received,
        ..ChangesAnswer::default()
    }
}

fn sent(changes: &Changes) -> Vec<(String, u64)> {
    let unsent = changes.unsent().into_iter();
    unsent
        .map(|change| (change.name.clone(), change.version))
        .collect()
}

fn value(changes: &Changes, name: &str) -> String {
    let known = changes.all.iter().find(|change| change.name == name);
    String::from_utf8(known.expect("known").value.clone()).expect("UTF-8")
}

#[test]
fn the_shared_value_is_read_as_it_was_written() {
    let mut changes = made(&[edit("r", "{}"), LocalChange::unban("r", "k")], at(5));
    let until = ReceivedChange {
        ends_in: Some(at(9)),
        by: "00ff".to_owned(),
        ..received("ban/r/x", "1", 3, 7)
    };
    assert!(changes.adopt_response(&[], &response("e", 7, vec![until]), at(8)));
    (changes.head.seen, changes.head.checked) = (3, 4);
    changes.all[0].sent = Sent::Refused;
    changes.all[1].here = LocalState::Waiting;
    let bytes = changes.bytes();
    assert_eq!(Changes::read(&bytes).as_ref(), Some(&changes));
    let head = Head::read(&bytes).expect("a head");
    assert_eq!((head.count, head.due, head.unsent), (3, 1, 1));
    assert_eq!(
        (changes.all[2].made_at, changes.all[2].until),
        (at(5), at(17))
    );
    for length in 0..bytes.len() {
        let cut = Changes::read(&bytes[..length]);
        assert!(cut.is_none_or(|cut| cut.all.len() < 3), "{length}");
    }
}

/// The bound holds for many short changes, for a few long changes, and for long names of authors.
#[test]
fn the_shared_value_is_as_small_as_is_promised() {
    for (told_of, value, by) in [(8_200, 0, 0), (100, 60 << 10, 0), (100, 1, 60 << 10)] {
        let mut changes = Changes::default();
        for number in 0..told_of {
            let change = ReceivedChange {
                by: "b".repeat(by),
                ..received(&format!("edit/{number}"), &"1".repeat(value), 0, number + 1)
            };
            assert!(changes.adopt_response(&[], &response("e", number + 1, vec![change]), at(1)));
        }
        let bytes = changes.bytes().len();
        assert!(bytes <= FLEET_CHANGES, "{value} {by}: {bytes}");
    }
}

#[test]
fn nothing_is_noted_without_a_fleet() {
    let host = FakeHost::default();
    assert_eq!(note(&host, SHARE, &[edit("r", "1")], at(1)), None);
    assert_eq!(find(&host, SHARE), Changes::default());
}

#[test]
fn what_was_acknowledged_is_told_once() {
    let mut changes = made(&[edit("r", "1")], at(0));
    let first = sent(&changes);
    assert_eq!(first.len(), 1);
    // The engine's failure emptied this answer, so it carries no news.
    assert!(!changes.adopt_response(&first, &response("", 0, Vec::new()), at(1)));
    assert_eq!(sent(&changes), first);
    // While the call is in flight, another change of this name is made, which must still be
    // reported.
    assert!(changes.make(&[edit("r", "2")], at(2)));
    let echo = vec![received("edit/r", "1", 3, 1)];
    assert!(changes.adopt_response(&first, &response("e", 1, echo), at(3)));
    let second = sent(&changes);
    assert_ne!(second, first);
    assert_eq!((second.len(), value(&changes, "edit/r").as_str()), (1, "2"));
    let echo = vec![received("edit/r", "2", 2, 2)];
    assert!(changes.adopt_response(&second, &response("e", 2, echo), at(4)));
    assert!(sent(&changes).is_empty() && !changes.is_due());
    assert_eq!(changes.head.generation, 2);
}

#[test]
fn what_others_made_is_to_be_applied_once() {
    let mut changes = Changes::default();
    let news = response("e", 3, vec![received("edit/r", "1", 10, 3)]);
    assert!(changes.adopt_response(&[], &news, at(20)));
    assert!(changes.is_due());
    let version = changes.all[0].version;
    changes.settle("edit/r", version, LocalState::InForce);
    // The same change again, and a change that was overtaken.
    assert!(changes.adopt_response(&[], &news, at(30)));
    let old = response("e", 2, vec![received("edit/r", "0", 40, 2)]);
    assert!(changes.adopt_response(&[], &old, at(30)));
    assert!(!changes.is_due());
    assert_eq!(
        (changes.head.generation, value(&changes, "edit/r").as_str()),
        (3, "1")
    );
    // A later one replaces it, and what was found of the earlier one does not count for it.
    assert!(changes.adopt_response(
        &[],
        &response("e", 4, vec![received("edit/r", "2", 0, 4)]),
        at(50)
    ));
    changes.settle("edit/r", version, LocalState::InForce);
    assert!(changes.is_due());
}

/// The engine has lost everything. Each Envoy reports all that it knows, and the later of two
/// changes applies.
#[test]
fn another_epoch_is_told_all_again() {
    let mut changes = Changes::default();
    let all = vec![
        received("edit/r", "1", 100, 1),
        received("edit/s", "1", 100, 2),
        received("ban/r/k", "", 100, 3),
    ];
    assert!(changes.adopt_response(&[], &response("e", 3, all), at(1_000)));
    assert!(sent(&changes).is_empty());
    // Another Envoy was faster with an older change of `r`, and with a younger one of `s`.
    let all = vec![
        received("edit/r", "0", 900, 1),
        received("edit/s", "2", 50, 2),
    ];
    assert!(changes.adopt_response(&[], &response("f", 2, all), at(1_000)));
    let names: Vec<String> = sent(&changes).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["edit/r", "ban/r/k"]);
    assert_eq!(value(&changes, "edit/s"), "2");
    assert_eq!(
        (changes.head.epoch.as_str(), changes.head.generation),
        ("f", 2)
    );
}

#[test]
fn a_refused_change_stays_here() {
    let mut changes = made(&[edit("r", "1"), edit("s", "1")], at(0));
    let all = sent(&changes);
    let refused = ChangesAnswer {
        refused: vec![("edit/r".to_owned(), "no room".to_owned())],
        ..response("e", 1, vec![received("edit/s", "1", 1, 1)])
    };
    assert!(changes.adopt_response(&all, &refused, at(1)));
    assert_eq!(changes.all[0].sent, Sent::Refused);
    assert_eq!(changes.all[1].sent, Sent::Known);
    assert!(sent(&changes).is_empty());
    // Until an operator changes it later.
    assert!(changes.adopt_response(
        &[],
        &response("e", 2, vec![received("edit/r", "2", 0, 2)]),
        at(2)
    ));
    assert!(changes.is_due());
}

#[test]
fn what_is_over_is_forgotten() {
    let host = FakeHost::default();
    let ban = LocalChange {
        until: at(1_000),
        ..LocalChange::ban("r", "k", &BanValue::default(), None)
    };
    let all = [ban, edit("r", "1"), LocalChange::unban("r", "x")];
    let put = |now| {
        change(&host, SHARE, now, &mut |changes| {
            let made = changes.make(&all, now);
            changes
                .all
                .iter_mut()
                .for_each(|change| change.sent = Sent::Known);
            made
        })
    };
    assert!(put(at(0)));
    let names = |now| {
        change(&host, SHARE, now, &mut |_| true);
        let all = find(&host, SHARE).all.into_iter();
        all.map(|change| change.name).collect::<Vec<_>>()
    };
    assert_eq!(names(at(999)).len(), 3);
    assert_eq!(names(at(1_000)), ["edit/r", "ban/r/x"]);
    assert_eq!(names(at(3_600_000)), ["edit/r"]);
}

#[test]
fn what_one_call_tells_is_bounded() {
    let many: Vec<LocalChange> = (0..200).map(|n| edit(&n.to_string(), "1")).collect();
    assert_eq!(sent(&made(&many, at(0))).len(), 64);
    let long = format!("\"{}\"", "x".repeat(60 << 10));
    let large: Vec<LocalChange> = (0..5).map(|n| edit(&n.to_string(), &long)).collect();
    assert_eq!(sent(&made(&large, at(0))).len(), 2);
    let huge = format!("\"{}\"", "x".repeat(64 << 10));
    let mut known = made(&[edit("r", "1"), edit("s", "1")], at(0));
    assert!(!known.make(&[edit("t", "1"), edit("r", &huge)], at(1)));
    // The value that was known before does not hold here any more.
    assert_eq!((known.all.len(), known.all[0].sent), (2, Sent::Refused));
    assert_eq!(known.all[1].sent, Sent::Unsent);
    let too_many: Vec<LocalChange> = (0..4_097).map(|n| edit(&n.to_string(), "1")).collect();
    assert!(!Changes::default().make(&too_many, at(0)));
}

/// An Envoy that missed the shortening of a ban must receive its end. Otherwise its earlier, longer
/// ban stays.
#[test]
fn the_end_of_what_was_cut_short_is_told() {
    let host = FakeHost::default();
    let ban = |key: &str, until| LocalChange {
        until: at(until),
        ..LocalChange::ban("r", key, &BanValue::default(), None)
    };
    let put = |all: &[LocalChange], now| {
        let now = at(now);
        change(&host, SHARE, now, &mut |changes| {
            let made = changes.make(all, now);
            let known = changes.all.iter_mut();
            let known = known.filter(|change| change.name != "ban/r/untold");
            known.for_each(|change| change.sent = Sent::Known);
            made
        })
    };
    // For a change that the engine never got, the state elsewhere is unknown.
    assert!(put(&[ban("untold", 1_000)], 0));
    assert!(put(&[ban("short", 9_000_000), ban("long", 1_000)], 0));
    assert!(put(&[ban("short", 2_000), ban("long", 5_000)], 100));
    assert_eq!(head(&host, SHARE).over_ns, at(1_000).get());
    let left = |now| {
        change(&host, SHARE, at(now), &mut |_| true);
        find(&host, SHARE).all
    };
    let all = left(6_000);
    let [untold, short] = all.as_slice() else {
        panic!("two are told: {all:?}")
    };
    assert!(untold.value.is_empty() && untold.name == "ban/r/untold");
    assert!(short.value.is_empty() && short.name == "ban/r/short");
    assert_eq!((short.sent, short.made_at), (Sent::Unsent, at(100)));
    assert_eq!(left(2_000 + 3_600_000), []);
}

/// A change ends while the call that reports it is in flight, so its end must be reported, too.
#[test]
fn what_ends_on_its_way_is_told_again() {
    let mut changes = Changes::default();
    let ban = LocalChange {
        until: at(50),
        ..LocalChange::ban("r", "k", &BanValue::default(), None)
    };
    assert!(changes.make(&[ban], at(0)));
    let first = sent(&changes);
    changes.drop_over(at(60));
    assert!(changes.adopt_response(&first, &response("e", 1, Vec::new()), at(70)));
    assert_eq!(sent(&changes).len(), 1);
    assert_eq!(value(&changes, "ban/r/k"), "");
}

/// The JSON of an edit of this version of a rule.
fn of(base: &str) -> String {
    String::from_utf8(of_edit(base, &1)).expect("UTF-8")
}

/// Returns the names of all changes that are not ends.
fn live(changes: &Changes) -> Vec<&str> {
    let all = changes.all.iter().filter(|change| !change.is_end());
    all.map(|change| change.name.as_str()).collect()
}

/// An older build knows no names with bases, and takes the plain one.
#[test]
fn what_loses_its_name_to_another_version_is_told_under_its_own() {
    let mut changes = made(&[edit_of("r", "a", &of("a"))], at(0));
    let all = sent(&changes);
    assert!(changes.adopt_response(&all, &response("e", 1, Vec::new()), at(1)));
    let until = Some(at(500));
    let taken = ReceivedChange {
        ends_in: until,
        ..received("edit/r", &of("b"), 0, 2)
    };
    assert!(changes.adopt_response(&[], &response("e", 2, vec![taken]), at(10)));
    assert_eq!(live(&changes), ["edit/r", "edit/r@a"]);
    let own = changes.all[1].clone();
    assert_eq!(
        (own.made_at, own.here, own.sent),
        (at(0), LocalState::InForce, Sent::Unsent)
    );
    assert_eq!(value(&changes, "edit/r@a"), of("a"));
    // The next version of the other build's edit replaces nothing here.
    assert!(changes.adopt_response(
        &[],
        &response("e", 3, vec![received("edit/r", &of("c"), 0, 3)]),
        at(20)
    ));
    let version = changes.all[0].version;
    changes.settle("edit/r", version, LocalState::Waiting);
    assert!(changes.adopt_response(
        &[],
        &response("e", 4, vec![received("edit/r", &of("d"), 0, 4)]),
        at(30)
    ));
    assert!(!live(&changes).contains(&"edit/r@d"));
    // The end of an own change, and a ban, have no other names.
    let ban = LocalChange::ban("r", "k", &BanValue::default(), None);
    assert!(changes.make(&[ban], at(40)));
    assert!(live(&changes).contains(&"ban/r/k"));
}

#[test]
fn a_version_takes_the_plain_name_once_it_is_free() {
    let mut changes = made(&[edit_of("r", "a", &of("a"))], at(0));
    assert!(changes.make(&[edit_of("r", "b", &of("b"))], at(1)));
    assert_eq!(live(&changes), ["edit/r", "edit/r@b"]);
    // One of each version: neither ends, nor replaces, the other one.
    assert!(changes.make(&[edit_of("r", "a", "")], at(2)));
    assert_eq!(live(&changes), ["edit/r@b"]);
    assert!(changes.make(&[edit_of("r", "b", &of("b"))], at(3)));
    assert_eq!(live(&changes), ["edit/r"]);
    assert_eq!(value(&changes, "edit/r@b"), "", "its end is told");
}

/// Configurations of years, each with an edit that nobody dropped.
#[test]
fn changes_of_few_versions_are_kept() {
    let mut changes = Changes::default();
    for number in 0..40 {
        let base = format!("{number:02}");
        assert!(changes.make(&[edit_of("r", &base, &of(&base))], at(number)));
        assert!(changes.make(&[edit_of("s", "a", &of("a"))], at(number)));
    }
    let names = live(&changes);
    let of_r = names.iter().filter(|name| name.starts_with("edit/r"));
    assert_eq!(of_r.count(), 8, "{names:?}");
    assert!(names.contains(&"edit/s"));
    for last in ["edit/r@38", "edit/r@39"] {
        assert!(names.contains(&last), "{names:?}");
    }
}
