//! The fields of limits with a window, when read, written, and invalid.

use loudou_limiter::Nanos;
use loudou_limiter::algorithm::{
    Algorithm, Align, FixedWindow, Grid, SlidingCounter, SlidingLog, SlidingWindow,
};
use loudou_limiter::calendar::{Calendar, Period, Zone};
use loudou_rules::config::{Form, limit_fields, parse_limits};
use serde_json::{Value, json};

fn read(limit: &Value) -> Algorithm {
    let limits = parse_limits(&json!([limit])).expect("valid");
    limits.iter().next().expect("one").algorithm().clone()
}

/// The problems of a limit, without the path to the limit.
fn wrong(limit: &Value) -> Vec<String> {
    let problems = parse_limits(&json!([limit])).err().unwrap_or_default();
    let lines = problems.iter().map(ToString::to_string);
    lines.map(|line| line.replace("[0].", "")).collect()
}

/// A limit of 15 per minute with other fields.
fn limit(algorithm: &str, fields: &Value) -> Value {
    let mut limit = json!({ "algorithm": algorithm, "capacity": 15, "window": "1m" });
    for (name, value) in fields.as_object().expect("an object") {
        limit[name] = value.clone();
    }
    limit
}

#[test]
fn fields_and_defaults() {
    let minute = Nanos::from_secs(60);
    let fixed = |align| Algorithm::from(FixedWindow::new(15, minute, align).expect("valid"));
    let sliding = |slots, slot_capacity| {
        let window = SlidingWindow::new(15, minute, slots, Some(slot_capacity));
        Algorithm::from(window.expect("valid"))
    };
    let log = |count| Algorithm::from(SlidingLog::new(15, minute, count).expect("valid"));
    for (algorithm, given, expected) in [
        ("fixed_window", json!({}), fixed(Align::First)),
        (
            "fixed_window",
            json!({ "align": "first" }),
            fixed(Align::First),
        ),
        (
            "fixed_window",
            json!({ "align": "clock" }),
            fixed(Align::Clock),
        ),
        ("sliding_window", json!({}), sliding(10, 3)),
        ("sliding_window", json!({ "slots": 2 }), sliding(2, 15)),
        ("sliding_window", json!({ "slots": 64 }), sliding(64, 1)),
        (
            "sliding_window",
            json!({ "slots": 4.0, "slot_capacity": 4.0 }),
            sliding(4, 4),
        ),
        (
            "sliding_window",
            json!({ "slot_capacity": 15 }),
            sliding(10, 15),
        ),
        ("sliding_log", json!({}), log(false)),
        ("sliding_log", json!({ "count_refused": false }), log(false)),
        ("sliding_log", json!({ "count_refused": true }), log(true)),
    ] {
        assert_eq!(
            read(&limit(algorithm, &given)),
            expected,
            "{algorithm}: {given}"
        );
    }
}

#[test]
fn periods_lie_on_the_process_clock_unless_aligned() {
    let minute = Nanos::from_secs(60);
    let counter = |align| {
        let counter = SlidingCounter::new(15, minute).expect("valid");
        Algorithm::from(counter.aligned(align))
    };
    let slots = SlidingWindow::new(15, minute, 10, None).expect("valid");
    for (algorithm, given, expected) in [
        (
            "sliding_window",
            json!({ "align": "clock" }),
            slots.aligned(Grid::Clock).into(),
        ),
        (
            "sliding_counter",
            json!({ "window": "60s" }),
            counter(Grid::Process),
        ),
        (
            "sliding_counter",
            json!({ "align": "process" }),
            counter(Grid::Process),
        ),
        (
            "sliding_counter",
            json!({ "align": "clock" }),
            counter(Grid::Clock),
        ),
    ] {
        assert_eq!(
            read(&limit(algorithm, &given)),
            expected,
            "{algorithm}: {given}"
        );
    }
}

/// With the defaults in it, and read back as the same.
#[test]
fn limits_are_written_as_they_are_read() {
    for (algorithm, expected) in [
        ("fixed_window", json!({ "align": "first" })),
        ("sliding_window", json!({ "slots": 10, "slot_capacity": 3 })),
        ("sliding_log", json!({ "count_refused": false })),
        ("sliding_counter", json!({})),
    ] {
        let first = parse_limits(&json!([limit(algorithm, &json!({}))])).expect("valid");
        let written = serde_json::to_value(&first).expect("serialises");
        let mut expected = limit(algorithm, &expected);
        expected["name"] = algorithm.into();
        assert_eq!(written, json!([expected]));
        assert_eq!(parse_limits(&written), Ok(first));
    }
}

#[test]
fn windows() {
    let allowed =
        "a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, 1h, 1d; from 1ns to 366d";
    for algorithm in [
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "sliding_counter",
    ] {
        let allowed = match algorithm {
            "fixed_window" => format!("{allowed}; or day, week, month, year"),
            _ => allowed.to_string(),
        };
        for (window, said) in [
            (
                json!("0s"),
                format!("window: \"0s\": out of range; allowed: {allowed}"),
            ),
            (
                json!("367d"),
                format!("window: \"367d\": out of range; allowed: {allowed}"),
            ),
            (
                json!("1 minute"),
                format!("window: \"1 minute\": invalid duration; allowed: {allowed}"),
            ),
            (
                json!(60),
                format!("window: 60: invalid duration; allowed: {allowed}; did you mean `60s`?"),
            ),
        ] {
            let lines = wrong(&limit(algorithm, &json!({ "window": window })));
            assert_eq!(lines, [said], "{algorithm}");
        }
        let missing = json!({ "algorithm": algorithm, "capacity": 15 });
        let said = format!("[0]: `window` is missing; allowed: {allowed}");
        assert_eq!(wrong(&missing), [said]);
        for window in ["1ns", "366d"] {
            let lines = wrong(&limit(algorithm, &json!({ "window": window })));
            assert_eq!(lines, [""; 0], "{algorithm}");
        }
    }
}

#[test]
fn numbers_of_one_algorithm() {
    let slots = "a whole number from 2 to 64";
    let reach = "with this the capacity cannot be reached; allowed: capacity/slots, rounded up, to capacity";
    for (algorithm, given, said) in [
        (
            "fixed_window",
            json!({ "align": "wall" }),
            "align: \"wall\": unknown value; allowed: first, clock".to_string(),
        ),
        (
            "sliding_window",
            json!({ "slots": 1 }),
            format!("slots: 1: out of range; allowed: {slots}"),
        ),
        (
            "sliding_window",
            json!({ "slots": 65 }),
            format!("slots: 65: out of range; allowed: {slots}"),
        ),
        (
            "sliding_window",
            json!({ "slot_capacity": 16 }),
            "slot_capacity: 16: out of range; allowed: a whole number from 1 to 15".to_string(),
        ),
        (
            "sliding_window",
            json!({ "slot_capacity": 1 }),
            format!("slot_capacity: 1: {reach}"),
        ),
        (
            "sliding_log",
            json!({ "capacity": 257 }),
            "capacity: 257: out of range; allowed: a whole number from 1 to 256".to_string(),
        ),
        (
            "sliding_log",
            json!({ "count_refused": "yes" }),
            "count_refused: \"yes\": a text instead of true or false; allowed: true, false"
                .to_string(),
        ),
        (
            "sliding_log",
            json!({ "align": "clock" }),
            "align: unknown field; allowed: name, algorithm, capacity, window, count_refused"
                .to_string(),
        ),
        (
            "sliding_counter",
            json!({ "align": "first" }),
            "align: \"first\": unknown value; allowed: process, clock".to_string(),
        ),
    ] {
        assert_eq!(wrong(&limit(algorithm, &given)), [said], "{algorithm}");
    }
}

#[test]
fn several_at_once_and_the_largest() {
    let all = json!({ "capacity": 0, "window": "0s", "slots": 0, "slot_capacity": 0 });
    assert_eq!(wrong(&limit("sliding_window", &all)).len(), 4);
    assert_eq!(
        wrong(&limit("sliding_log", &json!({ "capacity": 256 }))),
        [""; 0]
    );
    // A bucket holds at most four logs of 256 entries.
    let logs = |many: u32| {
        let log = |n| {
            json!({
                "name": format!("l{n}"), "algorithm": "sliding_log", "capacity": 256, "window": "1h"
            })
        };
        parse_limits(&(0..many).map(log).collect()).is_ok()
    };
    assert!(logs(4) && !logs(5));
}

/// The source of edit forms and of the schema.
#[test]
fn the_tables_of_fields() {
    let names = |algorithm: &str| -> Vec<&str> {
        limit_fields(algorithm)
            .iter()
            .map(|field| field.name)
            .collect()
    };
    assert_eq!(
        names("fixed_window"),
        ["capacity", "window", "align", "zone", "starts"]
    );
    assert_eq!(
        names("sliding_window"),
        ["capacity", "window", "slots", "slot_capacity", "align"]
    );
    assert_eq!(
        names("sliding_log"),
        ["capacity", "window", "count_refused"]
    );
    assert_eq!(names("sliding_counter"), ["capacity", "window", "align"]);
    assert_eq!(limit_fields("sliding_log")[0].form, Form::Integer(1, 256));
}

/// A limit per period of the calendar.
fn period(window: &str, fields: &Value) -> Value {
    let mut limit = limit("fixed_window", fields);
    limit["window"] = window.into();
    limit
}

#[test]
fn periods_of_the_calendar() {
    const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
    for (window, given, expected, zone) in [
        ("day", json!({}), Period::Day, "UTC"),
        (
            "day",
            json!({ "align": "clock", "zone": "+09:00" }),
            Period::Day,
            "+09:00",
        ),
        ("week", json!({}), Period::Week { weekday: 0 }, "UTC"),
        (
            "week",
            json!({ "starts": { "weekday": "sun" } }),
            Period::Week { weekday: 6 },
            "UTC",
        ),
        (
            "month",
            json!({ "starts": {} }),
            Period::Month { day: 1 },
            "UTC",
        ),
        (
            "month",
            json!({ "zone": BERLIN, "starts": { "day": 15.0 } }),
            Period::Month { day: 15 },
            BERLIN,
        ),
        ("year", json!({}), Period::Year { month: 1, day: 1 }, "UTC"),
        (
            "year",
            json!({ "starts": { "month": 4 } }),
            Period::Year { month: 4, day: 1 },
            "UTC",
        ),
        (
            "year",
            json!({ "starts": { "month": 4, "day": 6 } }),
            Period::Year { month: 4, day: 6 },
            "UTC",
        ),
    ] {
        let calendar = Calendar::new(expected, Zone::parse(zone).expect("a zone"));
        let expected = FixedWindow::of_calendar(15, calendar)
            .expect("valid")
            .into();
        let read = read(&period(window, &given));
        assert_eq!(read, expected, "{window} {given}");
        assert_eq!(
            super::windows::read(&serde_json::to_value(&read).expect("serialises")),
            read
        );
    }
    let written = serde_json::to_value(read(&period("week", &json!({})))).expect("serialises");
    let expected = json!({
        "algorithm": "fixed_window", "capacity": 15, "window": "week", "align": "clock", "zone": "UTC",
        "starts": { "weekday": "mon" }
    });
    assert_eq!(written, expected);
}

#[test]
fn wrong_periods() {
    let zones = "UTC, an offset such as +09:00, or a POSIX rule such as CET-1CEST,M3.5.0,M10.5.0/3";
    let fixed = "a window of a fixed length has neither a time zone nor a first day; allowed: with window: day, \
                 week, month, year";
    let day = "a whole number from 1 to 31";
    for (window, given, said) in [
        (
            "month",
            json!({ "zone": "Europe/Berlin" }),
            format!("zone: \"Europe/Berlin\": unknown time zone; allowed: {zones}"),
        ),
        ("1d", json!({ "zone": "UTC" }), format!("zone: \"UTC\": {fixed}")),
        ("1d", json!({ "starts": { "day": 2 } }), format!("starts: {{\"day\":2}}: {fixed}")),
        (
            "month",
            json!({ "align": "first" }),
            "align: \"first\": a period of the calendar does not start with a request; allowed: clock".into(),
        ),
        (
            "day",
            json!({ "starts": {} }),
            "starts: {}: a day starts at midnight; allowed: no `starts` with window: day".into(),
        ),
        (
            "week",
            json!({ "starts": { "day": 1 } }),
            "starts: {\"day\":1}: a week starts on a weekday; allowed: { weekday: mon }".into(),
        ),
        (
            "week",
            json!({ "starts": { "weekday": "tuesday" } }),
            "starts.weekday: \"tuesday\": unknown value; allowed: mon, tue, wed, thu, fri, sat, sun".into(),
        ),
        (
            "month",
            json!({ "starts": { "month": 4 } }),
            "starts: {\"month\":4}: a month starts on a day; allowed: { day: 1 }".into(),
        ),
        (
            "month",
            json!({ "starts": { "day": 32 } }),
            format!("starts.day: 32: out of range; allowed: {day}"),
        ),
        (
            "month",
            json!({ "starts": { "day": 0 } }),
            format!("starts.day: 0: out of range; allowed: {day}"),
        ),
        (
            "year",
            json!({ "starts": { "month": 13 } }),
            "starts.month: 13: out of range; allowed: a whole number from 1 to 12".into(),
        ),
        (
            "year",
            json!({ "starts": { "dai": 3 } }),
            "starts.dai: unknown field; allowed: weekday, month, day; did you mean `day`?".into(),
        ),
        (
            "mouth",
            json!({}),
            "window: \"mouth\": invalid duration; allowed: a whole number and a unit: 500ns, 20us, 250ms, 60s, 5m, \
             1h, 1d; from 1ns to 366d; or day, week, month, year; did you mean `month`?".into(),
        ),
    ] {
        assert_eq!(wrong(&period(window, &given)), [said], "{window} {given}");
    }
    let sliding = limit("sliding_window", &json!({ "window": "month" }));
    assert_eq!(wrong(&sliding).len(), 1);
}
