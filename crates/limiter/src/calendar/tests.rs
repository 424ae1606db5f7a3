//! Cases that no present zone has, and ends of months and years. `tests/calendar` compares the rest
//! with zoneinfo.
#![expect(clippy::arithmetic_side_effects, reason = "dates of tests are small")]

use alloc::string::String;
use alloc::vec::Vec;

use super::*;

const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
/// Clocks change at midnight: the last Friday of April has no midnight.
const CAIRO: &str = "EET-2EEST,M4.5.5/0,M10.5.4/24";
/// On the last Sunday of October, clocks are put back from 1:00 to 0:00.
const AZORES: &str = "<-01>1<+00>,M3.5.0/0,M10.5.0/1";

fn calendar(period: Period, zone: &str) -> Calendar {
    Calendar::new(period, Zone::parse(zone).expect(zone))
}

/// Returns the second at a UTC time.
fn utc(year: i64, month: i64, day: u8, hour: i64) -> i64 {
    day_of(year, month - 1, day) * DAY + hour * 3_600
}

fn span(calendar: &Calendar, second: i64) -> Span {
    calendar.span(seconds(second))
}

/// Returns the local begins of the windows from a UTC date to the end of `count` windows.
fn begins(calendar: &Calendar, (year, month, day): (i64, i64, u8), count: usize) -> Vec<String> {
    let mut at = utc(year, month, day, 12);
    let next = || {
        let span = span(calendar, at);
        at = span.end;
        Some(calendar.local(span.start))
    };
    core::iter::from_fn(next).take(count).collect()
}

#[test]
fn a_month_without_its_first_day_begins_on_its_last() {
    let months = calendar(Period::Month { day: 31 }, "UTC");
    let expected = [
        "2023-12-31 00:00",
        "2024-01-31 00:00",
        "2024-02-29 00:00",
        "2024-03-31 00:00",
        "2024-04-30 00:00",
    ];
    assert_eq!(begins(&months, (2024, 1, 15), 5), expected);
    let months = calendar(Period::Month { day: 29 }, "UTC");
    let expected = ["2100-01-29 00:00", "2100-02-28 00:00", "2100-03-29 00:00"];
    assert_eq!(begins(&months, (2100, 2, 3), 3), expected);
}

#[test]
fn a_year_from_the_leap_day() {
    let years = calendar(Period::Year { month: 2, day: 29 }, "UTC");
    let expected = [
        "2023-02-28 00:00",
        "2024-02-29 00:00",
        "2025-02-28 00:00",
        "2026-02-28 00:00",
    ];
    assert_eq!(begins(&years, (2024, 2, 28), 4), expected);
}

#[test]
fn weeks_begin_on_their_weekday() {
    // 1970-01-01 was a Thursday, and 2024-02-29 was one.
    for (weekday, first) in ["26", "27", "28", "29"].iter().enumerate() {
        let weekday = u8::try_from(weekday).expect("small");
        let weeks = calendar(Period::Week { weekday }, "UTC");
        let first = format!("2024-02-{first} 00:00");
        assert_eq!(begins(&weeks, (2024, 2, 29), 1), [first], "{weekday}");
    }
    let since_sunday = calendar(Period::Week { weekday: 6 }, "UTC");
    assert_eq!(
        begins(&since_sunday, (2024, 2, 29), 1),
        ["2024-02-25 00:00"]
    );
}

#[test]
fn days_are_shorter_and_longer_when_clocks_change() {
    let days = calendar(Period::Day, BERLIN);
    let hours = |second| span(&days, second).length().secs_ceil() / 3_600;
    let lengths = [(3, 30), (3, 31), (4, 1), (10, 26), (10, 27), (10, 28)];
    let lengths = lengths.map(|(month, day)| hours(utc(2024, month, day, 12)));
    assert_eq!(lengths, [24, 23, 24, 24, 25, 24]);
}

#[test]
fn a_midnight_that_does_not_exist_is_the_instant_of_the_change() {
    let days = calendar(Period::Day, CAIRO);
    let day = span(&days, utc(2024, 4, 26, 12));
    assert_eq!(days.local(day.start), "2024-04-26 01:00");
    assert_eq!(day.start, utc(2024, 4, 25, 22));
    assert_eq!(day.length(), Nanos::from_secs(23 * 3_600));
    // Clocks are put forward from 23:30 to 0:30.
    let early = calendar(Period::Day, "AAA0BBB,M3.5.0/-0:30,M10.5.0");
    let day = span(&early, utc(2024, 3, 31, 12));
    assert_eq!(early.local(day.start), "2024-03-31 00:30");
    assert_eq!(day.start, utc(2024, 3, 30, 23) + 1_800);
    // In October, Thursday ends an hour later: its last hour passes twice.
    let thursday = span(&days, utc(2024, 10, 31, 12));
    assert_eq!(thursday.length(), Nanos::from_secs(25 * 3_600));
}

#[test]
fn of_two_midnights_the_first_counts() {
    let days = calendar(Period::Day, AZORES);
    let day = span(&days, utc(2024, 10, 27, 12));
    assert_eq!(day.start, utc(2024, 10, 27, 0));
    assert_eq!(day.length(), Nanos::from_secs(25 * 3_600));
    // Here, clocks are put back from 0:30 to 23:30, so the evening before is shown again after the
    // day has begun.
    let days = calendar(Period::Day, "AAA0BBB,M3.5.0,M10.5.0/0:30");
    let day = span(&days, utc(2024, 10, 27, 12));
    assert_eq!(day.start, utc(2024, 10, 26, 23));
    let again = utc(2024, 10, 26, 23) + 1_800;
    assert_eq!(days.local(again), "2024-10-26 23:30");
    assert_eq!(span(&days, again), day);
    assert_eq!(span(&days, day.start - 1).end, day.start);
}

/// Every date of a change, with the first day of summer and of winter in 2023 and 2024.
#[test]
fn changes_of_every_form() {
    let zones = [
        // A day of the year without the leap day, and with it.
        ("AAA0BBB,J60,J365", ["03-01", "12-31", "03-01", "12-31"]),
        ("AAA0BBB,59,364", ["03-01", "12-31", "02-29", "12-30"]),
        // Times before midnight, and up to a week later.
        (
            "AAA0BBB,M3.2.0/-2,M10.1.0",
            ["03-11", "10-01", "03-09", "10-06"],
        ),
        (
            "AAA0BBB,M3.4.4/50,M10.1.0",
            ["03-25", "10-01", "03-30", "10-06"],
        ),
        (
            "AAA0BBB,M3.1.0/-167,M10.1.0/167",
            ["02-26", "10-07", "02-25", "10-12"],
        ),
        // The southern hemisphere.
        (
            "AAA0BBB,M10.1.0,M4.1.0/3",
            ["10-01", "04-02", "10-06", "04-07"],
        ),
        // Summer time that is behind.
        (
            "IST-1GMT0,M10.5.0,M3.5.0/1",
            ["10-29", "03-26", "10-27", "03-31"],
        ),
    ];
    for (rule, expected) in zones {
        let zone = Zone::parse(rule).expect(rule);
        let summer = if rule.starts_with("IST") { 0 } else { 3_600 };
        let first = |year, of_summer: bool| {
            let days = (0..366).map(|day| year_start(year) + day);
            let is_summer = |day: i64| zone.offset(day * DAY + 86_399) == summer;
            let mut changed = days.filter(|day| is_summer(*day) != is_summer(*day - 1));
            let day = changed.find(|day| is_summer(*day) == of_summer);
            let local = Calendar::new(Period::Day, Zone::utc()).local(day.expect(rule) * DAY);
            local.chars().skip(5).take(5).collect::<String>()
        };
        let found = [(2023, true), (2023, false), (2024, true), (2024, false)];
        let found = found.map(|(year, of_summer)| first(year, of_summer));
        assert_eq!(found, expected, "{rule}");
    }
}

#[test]
fn summer_can_last_all_year() {
    // The example of RFC 8536: five hours behind standard time's four, always.
    for rule in ["XXX3EDT4,0/0,J365/23", "EST5EDT,0/0,J365/25"] {
        let days = calendar(Period::Day, rule);
        for year in 2023..2026 {
            for (month, day) in [(1, 1), (2, 29), (7, 1), (12, 31)] {
                let noon = utc(year, month, day, 12);
                assert_eq!(days.zone.offset(noon), -4 * 3_600, "{rule}");
                assert_eq!(
                    span(&days, noon).length(),
                    Nanos::from_secs(86_400),
                    "{rule}"
                );
            }
        }
    }
}

#[test]
fn windows_have_no_gaps_and_contain_their_instants() {
    // Rules at the bounds of the grammar, of which some have days that never come.
    let zones = [
        "UTC",
        "+14:00",
        "-12:00",
        BERLIN,
        CAIRO,
        AZORES,
        "AAA24:59:59BBB-24:59:59,0/-167,J365/167",
        "AAA-24:59:59BBB24:59:59,J365/167,0/-167",
        "AAA0BBB-24,J100,J101",
        "AAA0BBB24,M1.1.0,M1.1.0",
        "AAA0BBB,0/0,0/0",
    ];
    let periods = [
        Period::Day,
        Period::Week { weekday: 3 },
        Period::Month { day: 31 },
        Period::Year { month: 2, day: 29 },
    ];
    for zone in zones {
        for period in periods {
            let calendar = calendar(period, zone);
            let mut last: Option<Span> = None;
            for step in 0..900 {
                let second = utc(2023, 12, 25, 0) + step * 40_013;
                let now = span(&calendar, second);
                assert!(
                    (now.start..now.end).contains(&second),
                    "{zone} {period:?} {second}"
                );
                assert!(
                    now.length() <= calendar.longest(),
                    "{zone} {period:?} {second}"
                );
                if let Some(last) = last.filter(|last| *last != now) {
                    assert!(last.end <= now.start, "{zone} {period:?} {second}");
                    assert_eq!(
                        span(&calendar, now.start - 1).end,
                        now.start,
                        "{zone} {period:?}"
                    );
                }
                last = Some(now);
            }
        }
    }
}

#[test]
fn ends_of_the_clock() {
    for period in Period::NAMES.map(|name| Period::named(name).expect("a period")) {
        for zone in ["UTC", "+23:59", "-23:59", BERLIN] {
            let calendar = calendar(period, zone);
            let first = calendar.span(Nanos::ZERO);
            assert!((first.start..first.end).contains(&0), "{zone} {period:?}");
            let end = calendar.span(Nanos::MAX).end;
            assert!(end > 18_446_744_073, "{zone} {period:?}");
        }
    }
}

#[test]
fn zones_have_a_form() {
    for text in [
        "",
        "utc",
        "Z",
        "GMT",
        "Europe/Berlin",
        "CET",
        "CET-1CEST",
        "+9:00",
        "+0900",
        "+24:00",
        "+09:60",
        "+0x:00",
        "++1:00",
        "CET-25",
        "CE-1",
        "<+3>-3",
        "<+03-3",
        "<+0_3>-3",
        "CET-1CEST,M3.5.0",
        "CET-1CEST,M3.5.0,M10.5.0/3,",
        "CET-1CEST,M3.5.0,M10.5.0/168",
        "CET-1CEST,M13.5.0,M10.5.0",
        "CET-1CEST,M3.6.0,M10.5.0",
        "CET-1CEST,M3.0.0,M10.5.0",
        "CET-1CEST,M3.5.7,M10.5.0",
        "CET-1CEST,J0,J365",
        "CET-1CEST,J1,J366",
        "CET-1CEST,0,366",
        "CET-1CEST,M3.5.0/1:60,M10.5.0",
        "CET-1CEST,M3.5.0/0001,M10.5.0",
        "CET-1CEST,M3.5.0 ,M10.5.0",
        "CÉT-1",
        "CET-１",
    ] {
        assert_eq!(Zone::parse(text), None, "{text}");
    }
    let long = |letters: usize| format!("{}-1", "A".repeat(letters));
    assert!(Zone::parse(&long(MAX_ZONE - 2)).is_some());
    assert_eq!(Zone::parse(&long(MAX_ZONE - 1)), None);
    for text in [
        "UTC",
        "-00:30",
        "JST-9",
        "<+0545>-5:45",
        "LMT+0:00:01",
        BERLIN,
    ] {
        let zone = Zone::parse(text).expect(text);
        assert_eq!(format!("{zone}"), text);
    }
}
