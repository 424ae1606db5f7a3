//! Rates, gaps, scales and bounds, with invented answers.

use loudou_api::RuleTotals;
use proptest::prelude::*;

use super::*;

const S: u64 = 1_000_000_000;
const RETENTION: Retention = Retention {
    span_ns: Scale::Hour.span_ns(),
    most: MAX_SAMPLES,
    patience_ns: 3 * S,
};

const fn counts(admitted: u64, refused: u64) -> Counts {
    Counts {
        admitted,
        refused,
        shadow: 0,
    }
}

/// Returns a track with these answers about admitted requests.
fn track(answers: impl IntoIterator<Item = (u64, u64)>) -> Track {
    let mut track = Track::default();
    for (at_ns, admitted) in answers {
        track.note(counts(admitted, 0), at_ns, &RETENTION);
    }
    track
}

/// Returns the admitted requests per second of each column.
fn chart(track: &Track, scale: Scale, end_ns: u64, columns: u16) -> Vec<Option<f64>> {
    let chart = track.chart(scale.span_ns(), end_ns, columns).into_iter();
    chart
        .map(|rates| rates.map(|rates| rates.admitted))
        .collect()
}

#[test]
fn rates_are_differences_over_the_servers_clock() {
    let mut track = track([(S, 10)]);
    assert_eq!(track.rates(), None);
    track.note(counts(30, 5), 3 * S, &RETENTION);
    let rates = track.rates().expect("two polls");
    assert_eq!((rates.admitted, rates.refused), (10.0, 2.5));
}

/// A trial is known for less time than its rule: both are compared over the time of the trial, a minute at most.
#[test]
fn an_older_track_is_counted_over_the_time_of_a_younger_one() {
    let older = track((1..=90).map(|at| (at * S, at * 10)));
    let younger = track((80..=90).map(|at| (at * S, at * 3)));
    assert_eq!(younger.known_since(), 80 * S);
    assert_eq!(younger.counted_since(80 * S).admitted, 30);
    assert_eq!(older.counted_since(80 * S).admitted, 100);
    assert_eq!(older.known_since(), 30 * S, "a minute");
    assert_eq!(older.counted_since(30 * S).admitted, 600);
    assert_eq!(track([(S, 10)]).counted_since(0), Counts::default());
}

/// After a bucket was reset, its rates restart. Its past stays, with a gap in between.
#[test]
fn decreasing_counters_begin_anew() {
    let mut track = track([(S, 10), (2 * S, 20), (3 * S, 3)]);
    assert_eq!(track.rates(), None);
    track.note(counts(5, 0), 4 * S, &RETENTION);
    track.note(counts(7, 0), 5 * S, &RETENTION);
    assert_eq!(track.rates().map(|rates| rates.admitted), Some(2.0));
    let chart = chart(&track, Scale::Minute, 5 * S, 60);
    assert_eq!(chart[55..], [None, Some(10.0), None, Some(2.0), Some(2.0)]);
}

#[test]
fn a_poll_at_the_same_time_gives_no_rate() {
    assert_eq!(track([(S, 0), (S, 9)]).rates(), None);
}

#[test]
fn a_series_has_one_minute_and_no_more() {
    let track = track((0..=200).map(|second| (second * S, second * second)));
    let series = track.series(60);
    assert_eq!(series.len(), 60);
    assert!(series.iter().all(Option::is_some));
    assert_eq!(series[59].map(|rates| rates.admitted), Some(399.0));
    assert_eq!(series[58].map(|rates| rates.admitted), Some(397.0));
    assert_eq!(track.series(0), []);
}

/// An edit triggers a poll at once. Two requests between answers that are 20 ms apart must not be
/// shown as 100/s.
#[test]
fn rates_do_not_follow_the_gap_between_two_polls() {
    let mut steady = track((0..=100).map(|tenth| (tenth * S / 10, tenth)));
    steady.note(counts(102, 0), 10 * S + S / 50, &RETENTION);
    let rate = steady.rates().expect("ten seconds").admitted;
    assert!((9.9..10.3).contains(&rate), "{rate}");
    // A new bucket has no rate until enough time has passed.
    let mut track = track([(0, 0), (S / 50, 2)]);
    assert_eq!(track.rates(), None);
    track.note(counts(10, 0), S, &RETENTION);
    assert_eq!(track.rates(), None, "a burst of one second is no rate");
    track.note(counts(10, 0), 2 * S, &RETENTION);
    assert_eq!(track.rates().map(|rates| rates.admitted), Some(5.0));
}

/// After a bucket was off screen for a while, its rate is the average over that time. Its chart
/// shows a gap for it.
#[test]
fn a_long_gap_is_averaged() {
    let mut track = track([(0, 0), (S, 10)]);
    track.note(counts(10, 30), 31 * S, &RETENTION);
    let rates = track.rates().expect("a rate");
    assert_eq!((rates.admitted, rates.refused), (0.0, 1.0));
    let refused = |rates: &Option<Rates>| rates.map(|rates| rates.refused);
    let sparkline: Vec<_> = track.series(60).iter().map(refused).collect();
    assert_eq!(
        sparkline[29..],
        [[Some(0.0)].as_slice(), &[None; 30]].concat()
    );
    let mut chart = track.chart(Scale::Minute.span_ns(), 31 * S, 60);
    assert!(chart.drain(30..).all(|rates| rates.is_none()));
    assert_eq!(chart[29].map(|rates| rates.admitted), Some(10.0));
}

/// After a gap of 20 s without answers, a steady rate is unchanged.
#[test]
fn a_rate_stays_over_a_gap() {
    let mut track = track((0..=5).map(|second| (second * S, second * 7)));
    for second in [25, 26, 27] {
        track.note(counts(second * 7, second), second * S, &RETENTION);
        let rates = track.rates().expect("a rate");
        assert!((rates.admitted - 7.0).abs() < 1e-9, "{second}: {rates:?}");
    }
    // A burst during the gap counts with its average: 25 refusals in 20 s, then one per second.
    let refused = track.rates().expect("a rate").refused;
    assert!(
        (refused - (8.0 * 1.25 + 2.0) / 10.0).abs() < 1e-9,
        "{refused}"
    );
}

/// Two hours with four answers per second leave one hour of samples, each one second long.
#[test]
fn an_hour_is_kept() {
    let track = track((0..4 * 7_200).map(|quarter| (quarter * S / 4, quarter)));
    let end = 7_200 * S - S / 4;
    let hour = chart(&track, Scale::Hour, end, 60);
    assert_eq!(hour, [Some(4.0); 60]);
    let before = chart(&track, Scale::Hour, end - 3_600 * S, 60);
    assert!(before[..59].iter().all(Option::is_none), "{before:?}");
    assert!(format!("{track:?}").matches("Sample").count() <= 3_601);
}

/// An idle rule needs one sample. Its rates are 0 over ten seconds, not over its whole idle time.
#[test]
fn idle_time_is_one_sample() {
    let mut track = track((0..1_000).map(|second| (second * S, 7)));
    assert_eq!(format!("{track:?}").matches("Sample").count(), 1);
    assert_eq!(track.rates().map(|rates| rates.admitted), Some(0.0));
    track.note(counts(27, 0), 1_000 * S, &RETENTION);
    assert_eq!(track.rates().map(|rates| rates.admitted), Some(2.0));
    let minute = chart(&track, Scale::Minute, 1_000 * S, 60);
    assert_eq!(minute[58..], [Some(0.0), Some(20.0)]);
}

/// Ten seconds without an answer are shown as a gap, not as zeros, at every scale that can show it.
#[test]
fn unwatched_time_is_a_gap() {
    let watched = (0..=100).filter(|second| !(91..100).contains(second));
    let track = track(watched.map(|second| (second * S, second * 5)));
    let minute = chart(&track, Scale::Minute, 100 * S, 60);
    assert_eq!(minute[..50], [Some(5.0); 50]);
    assert_eq!(minute[50..], [None; 10]);
    let five = chart(&track, Scale::FiveMinutes, 100 * S, 60);
    assert_eq!(
        five[40..],
        [[Some(5.0); 18].as_slice(), &[None; 2]].concat()
    );
    assert!(five[..40].iter().all(Option::is_none), "nothing was read");
    // A column that is partly known has the rate of the known part.
    let hour = chart(&track, Scale::Hour, 100 * S, 60);
    assert_eq!(hour[58..], [Some(5.0); 2]);
}

/// Answers are never exactly a second apart. Still, the column of a second shows the requests of
/// that second.
#[test]
fn columns_are_real_time() {
    let track = track([(0, 0), (1_500_000_000, 30), (2_500_000_000, 30)]);
    let minute = chart(&track, Scale::Minute, 2_500_000_000, 60);
    assert_eq!(minute[57..], [Some(20.0), Some(10.0), Some(0.0)]);
    // Half a second later, the columns have not moved.
    assert_eq!(minute, chart(&track, Scale::Minute, 3 * S, 60));
}

fn status(now_ns: u64, rules: &[(&str, u64)]) -> Status {
    let rules = rules.iter().map(|(name, admitted)| RuleTotals {
        name: (*name).to_owned(),
        admitted: *admitted,
        ..RuleTotals::default()
    });
    Status {
        now_ns,
        rules: rules.collect(),
        ..Status::default()
    }
}

/// After a restart, the counters and the clock begin again. The past stays at its position,
/// followed by a gap.
#[test]
fn a_restart_is_a_gap() {
    let mut history = History::default();
    let secs = Nanos::from_secs;
    for second in 0..10 {
        let status = status((500 + second) * S, &[("r", second * 3)]);
        history.note_rules(&status, secs(second), 3 * S);
    }
    history.restart();
    for second in 12..15 {
        let status = status((second - 11) * S, &[("r", second)]);
        history.note_rules(&status, secs(second), 3 * S);
    }
    let end = history.place(3 * S);
    assert_eq!(end / S, 514);
    let minute = chart(&history.rules["r"], Scale::Minute, end, 60);
    let rates = [[Some(3.0); 9].as_slice(), &[None; 3], &[Some(1.0); 2]];
    assert_eq!(minute[46..], rates.concat());
    assert_eq!(
        history.rules["r"].rates().map(|rates| rates.admitted),
        Some(1.0)
    );
}

/// Removing a rule does not reduce the total.
#[test]
fn the_total_is_of_the_rules_that_were_there() {
    let mut history = History::default();
    for (second, rules) in [
        &[("a", 5), ("b", 100)][..],
        &[("a", 6), ("b", 120)],
        &[("a", 8)],
        &[("a", 9), ("c", 1_000)],
    ]
    .into_iter()
    .enumerate()
    {
        let second = loudou_words::num::count(second);
        history.note_rules(&status(second * S, rules), Nanos::from_secs(second), 3 * S);
    }
    let minute = chart(&history.total, Scale::Minute, 3 * S, 60);
    assert_eq!(minute[57..], [Some(21.0), Some(2.0), Some(1.0)]);
}

#[test]
fn many_rules_share_the_memory() {
    let mut history = History::of_one(40);
    let names: Vec<String> = (0..500).map(|number| format!("r{number}")).collect();
    for second in 0..100 {
        let rules: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), second)).collect();
        history.note_rules(&status(second * S, &rules), Nanos::from_secs(second), 3 * S);
    }
    let samples = format!("{:?}", history.rules).matches("Sample").count();
    assert!((5_000..=10_000).contains(&samples), "{samples}");
}

#[test]
fn scales_have_an_order() {
    let mut scale = Scale::default();
    let mut spans = vec![scale.span_ns() / S];
    while let Some(longer) = scale.longer() {
        assert_eq!(longer.shorter(), Some(scale));
        scale = longer;
        spans.push(scale.span_ns() / S);
    }
    assert_eq!(spans, [60, 300, 900, 3_600]);
    assert_eq!(Scale::default().shorter(), None);
}

proptest! {
    /// Arbitrary answers cause no panic, and no rate is negative or infinite.
    #[test]
    fn any_answers(
        answers in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..40),
        end in any::<u64>(),
        columns in 0_u16..100,
    ) {
        let mut track = Track::default();
        for (at_ns, admitted, refused) in answers {
            track.note(counts(admitted, refused), at_ns, &RETENTION);
        }
        let all = track.series(columns).into_iter().chain(track.chart(Scale::Hour.span_ns(), end, columns));
        for rates in all.chain([track.rates()]).flatten() {
            prop_assert!(rates.admitted.is_finite() && rates.admitted >= 0.0);
        }
    }

    /// The columns of a chart add up to the counted requests, for any times at which answers
    /// arrive.
    #[test]
    fn nothing_is_lost_or_added(steps in prop::collection::vec((300_u64..2_500, 0_u64..50), 1..40), columns in 1_u16..90) {
        let (mut at_ms, mut all) = (0, 0);
        let mut track = track([(0, 0)]);
        for (step_ms, requests) in steps {
            at_ms += step_ms;
            all += requests;
            track.note(counts(all, 0), at_ms * 1_000_000, &RETENTION);
        }
        let end = at_ms * 1_000_000;
        let span = Scale::FiveMinutes.span_ns();
        let step = span / u64::from(columns);
        // Less than an eighth of a second is not drawn yet.
        let grid = (end - (S / 8).min(step / 8)).div_ceil(step) * step;
        let mut sum = 0.0;
        for (column, rates) in (0..).zip(track.chart(span, end, columns)) {
            let from = (grid + column * step).saturating_sub(step * u64::from(columns));
            let known = (from + step).min(end).saturating_sub(from);
            sum += rates.map_or(0.0, |rates| rates.admitted) * float(known) / 1e9;
        }
        // A column of which too little is known stays empty.
        prop_assert!((sum - float(all)).abs() <= 50.0, "{sum} of {all}");
    }
}
