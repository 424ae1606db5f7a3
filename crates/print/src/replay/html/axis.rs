//! Computes the ticks and labels of count axes and time axes.

use crate::replay::html::markup::grouped;
use crate::replay::over_time::CALENDAR_NS;
use loudou_words::text::{date, humanise};

/// Maximum number of steps on a count axis.
const COUNT_STEPS: u64 = 4;
/// Maximum number of steps on a time axis.
const TIME_STEPS: u64 = 7;
const SECOND_NS: u64 = 1_000_000_000;
/// Step widths that match clock and calendar units, in seconds.
const CLOCK_S: [u64; 23] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000,
];

/// Returns the ticks for an axis of counts up to `most`. The last tick is at least `most`.
pub(super) fn counts(most: u64) -> Vec<u64> {
    let most = most.max(1);
    let step = decimal_step(most, COUNT_STEPS);
    let steps = most.div_ceil(step);
    (0..=steps).map(|n| n.saturating_mul(step)).collect()
}

/// Returns the smallest of 1, 2, 5, 10, 20 … that divides `span` into at most `steps` steps.
fn decimal_step(span: u64, steps: u64) -> u64 {
    let decades = (0..20).map(|digits| 10_u64.saturating_pow(digits));
    let mut candidates = decades.flat_map(|decade| [1, 2, 5].map(|n| decade.saturating_mul(n)));
    let found = candidates.find(|step| span.div_ceil(*step) <= steps);
    found.unwrap_or(span)
}

/// Formats a count as a short label.
pub(super) fn label(count: u64) -> String {
    let units = [
        (1_000_000_000_000_000, " P"),
        (1_000_000_000_000, " T"),
        (1_000_000_000, " G"),
        (1_000_000, " M"),
    ];
    for (unit, name) in units {
        if count >= unit {
            let tenths = count / (unit / 10);
            let (whole, tenth) = (tenths / 10, tenths % 10);
            return match tenth {
                0 => format!("{whole}{name}"),
                _ => format!("{whole}.{tenth}{name}"),
            };
        }
    }
    grouped(count)
}

/// A tick of the time axis.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tick {
    /// Time since the start, in nanoseconds.
    pub(super) at_ns: u64,
    pub(super) label: String,
    /// The date, if it differs from the date of the previous tick.
    pub(super) day: Option<String>,
}

/// A time axis.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Time {
    /// Name of the axis, including its unit or origin.
    pub(super) name: String,
    pub(super) ticks: Vec<Tick>,
}

/// Creates a time axis for a time span.
pub(super) fn time(start_ns: u64, span_ns: u64) -> Time {
    let clock = CLOCK_S.map(|seconds| seconds.saturating_mul(SECOND_NS));
    let mut clock = clock.into_iter();
    let found = clock.find(|step| span_ns.div_ceil(*step) <= TIME_STEPS);
    let is_long = span_ns > SECOND_NS * TIME_STEPS / 2;
    let step = match found {
        Some(step) if is_long => step,
        None => decimal_step(span_ns / (86_400 * SECOND_NS), TIME_STEPS) * 86_400 * SECOND_NS,
        Some(_) => decimal_step(span_ns, TIME_STEPS),
    };
    let is_calendar = start_ns >= CALENDAR_NS;
    if is_calendar && is_long {
        return Time {
            name: "time (UTC)".to_owned(),
            ticks: calendar(start_ns, span_ns, step),
        };
    }
    let count = span_ns.checked_div(step).unwrap_or(0);
    let ticks = (0..=count).map(|n| {
        let at_ns = n.saturating_mul(step);
        Tick {
            at_ns,
            label: humanise(at_ns),
            day: None,
        }
    });
    Time {
        name: if is_calendar {
            format!("time since {}", date(start_ns / 1_000_000))
        } else {
            "time since the first request".to_owned()
        },
        ticks: ticks.collect(),
    }
}

/// Returns ticks at round wall-clock times.
fn calendar(start_ns: u64, span_ns: u64, step_ns: u64) -> Vec<Tick> {
    let first = start_ns.div_ceil(step_ns).saturating_mul(step_ns);
    let end = start_ns.saturating_add(span_ns);
    let count = end.saturating_sub(first) / step_ns;
    let mut last_day = String::new();
    let mut ticks = Vec::new();
    if first > end {
        return ticks;
    }
    for n in 0..=count {
        let at = first.saturating_add(n.saturating_mul(step_ns));
        let text = date(at / 1_000_000);
        let (day, clock) = text.split_once(' ').unwrap_or((&text, ""));
        let at_ns = at.saturating_sub(start_ns);
        if step_ns >= 86_400 * SECOND_NS {
            ticks.push(Tick {
                at_ns,
                label: day.to_owned(),
                day: None,
            });
            continue;
        }
        let clock = clock.trim_end_matches('Z');
        let minutes = clock.rsplit_once(':').map_or(clock, |(minutes, _)| minutes);
        let is_fine = step_ns < 60 * SECOND_NS;
        let is_new = last_day != day;
        day.clone_into(&mut last_day);
        ticks.push(Tick {
            at_ns,
            label: if is_fine { clock } else { minutes }.to_owned(),
            day: is_new.then(|| day.to_owned()),
        });
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_few_round_ticks() {
        assert_eq!(counts(0), [0, 1]);
        assert_eq!(counts(3), [0, 1, 2, 3]);
        assert_eq!(counts(884), [0, 500, 1_000]);
        assert_eq!(counts(1_999), [0, 500, 1_000, 1_500, 2_000]);
        for most in [1, 7, 1 << 40, u64::MAX] {
            let ticks = counts(most);
            assert!(ticks.len() <= 5, "{ticks:?}");
            assert!(ticks.last().is_some_and(|last| *last >= most), "{ticks:?}");
        }
        assert_eq!(label(1_500_000), "1.5 M");
        assert_eq!(label(2_000), "2\u{202f}000");
    }

    fn labels(start_ns: u64, span_ns: u64) -> String {
        let Time { name, ticks } = time(start_ns, span_ns);
        let ticks = ticks.into_iter().map(|tick| {
            let day = tick.day.map(|day| format!(" ({day})"));
            format!("{}{}", tick.label, day.unwrap_or_default())
        });
        format!("{name}: {}", ticks.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn times_are_round() {
        let start = 1_714_550_402 * SECOND_NS;
        let hour = 3_600 * SECOND_NS;
        assert_eq!(
            labels(start, 6 * hour),
            "time (UTC): 09:00 (2024-05-01), 10:00, 11:00, 12:00, 13:00, 14:00"
        );
        assert_eq!(
            labels(start, 30 * hour),
            "time (UTC): 12:00 (2024-05-01), 18:00, 00:00 (2024-05-02), 06:00, 12:00"
        );
        assert_eq!(
            labels(start, 60 * 24 * hour),
            "time (UTC): 2024-05-09, 2024-05-23, 2024-06-06, 2024-06-20"
        );
        assert_eq!(
            labels(start, 2 * SECOND_NS),
            "time since 2024-05-01 08:00:02Z: 0s, 500ms, 1s, 1.5s, 2s"
        );
        assert_eq!(
            labels(0, 300 * SECOND_NS),
            "time since the first request: 0s, 1m, 2m, 3m, 4m, 5m"
        );
    }

    #[test]
    fn any_span_has_few_ticks() {
        for start in [0, 1 << 60, u64::MAX] {
            for shift in 0..64 {
                let ticks = time(start, u64::MAX >> shift).ticks;
                assert!(ticks.len() <= 8, "{start} {shift}: {}", ticks.len());
            }
        }
    }
}
