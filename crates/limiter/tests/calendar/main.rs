//! Compares calendar windows with Python's zoneinfo, for the zones of the IANA database.
//!
//! `windows.py` searched the windows in `windows.tsv` and describes the format.
#![cfg(test)]

use loudou_limiter::Nanos;
use loudou_limiter::calendar::{Calendar, Period, Span, Zone};

fn number(digits: &str) -> i64 {
    i64::from_str_radix(digits, 36).expect("a number in base 36")
}

fn period(text: &str) -> Period {
    let (kind, day) = text.split_at(1);
    let number = |digits: &str| digits.parse().expect("a small number");
    match kind {
        "d" => Period::Day,
        "w" => Period::Week {
            weekday: number(day),
        },
        "m" => Period::Month { day: number(day) },
        "y" => {
            let (month, day) = day.split_once('.').expect("a month and a day");
            let (month, day) = (number(month), number(day));
            Period::Year { month, day }
        }
        _ => panic!("unknown period {text}"),
    }
}

#[test]
fn windows_agree_with_zoneinfo() {
    let (mut zones, mut windows) = (0, 0);
    let mut zone = Zone::utc();
    for line in include_str!("windows.tsv").lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let [first, second, third] = parts[..] else {
            panic!("a line without three parts: {line}");
        };
        if first == "zone" {
            zone = Zone::parse(third).unwrap_or_else(|| panic!("no rule: {line}"));
            zones += 1;
            continue;
        }
        let start = number(second);
        let span = Span {
            start,
            end: start + number(third),
        };
        let calendar = Calendar::new(period(first), zone.clone());
        for second in [
            span.start,
            i64::midpoint(span.start, span.end),
            span.end - 1,
        ] {
            let wall = Nanos::from_secs(u64::try_from(second).expect("after 1970"));
            assert_eq!(calendar.span(wall), span, "{line} of {zone} at {second}");
        }
        assert!(span.length() <= calendar.longest(), "{line} of {zone}");
        windows += 1;
    }
    assert!(
        zones >= 200 && windows == 10_000,
        "{zones} zones, {windows} windows"
    );
}
