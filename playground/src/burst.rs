//! Simulates the same traffic under a limit and under similar limits of the other algorithms.
//!
//! Every user has a bucket, sends requests at a steady rate, and also sends two bursts. The simulation uses no clock,
//! so the answer depends only on the question.

use std::collections::VecDeque;

use loudou_api::LimitView;
use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::{Bucket, BucketRequest, Limits, Nanos, Verdict};
use loudou_rules::config::parse_limits;
use loudou_words::num::count;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Number of time slots in a chart.
const SLOTS: u64 = 60;
/// Maximum values of the traffic settings. They bound the time to compute an answer.
const MOST_PER_SECOND: u32 = 50;
const MOST_BURST: u32 = 200;
const MOST_USERS: u32 = 20;
const MOST_SECONDS: u32 = 60;
/// Simulated duration of a request, for limits on concurrent requests.
const TAKES: Nanos = Nanos::from_millis(1_000);
/// Value in an answer for a full level.
const FULL: u64 = 1_000;

/// A limit in the format of rule files, and the traffic to simulate.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    limit: Value,
    traffic: Traffic,
}

/// Traffic of each user.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Traffic {
    /// Requests per second.
    rate: u32,
    /// Number of requests that are sent at once, in each of the two bursts.
    burst: u32,
    users: u32,
    seconds: u32,
}

/// Charts: the chosen limit first, then the other algorithms.
#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    seconds: u32,
    charts: Vec<Chart>,
}

/// Simulated outcome of the traffic under one limit.
#[derive(Debug, Default, Serialize)]
struct Chart {
    algorithm: &'static str,
    /// The limit in the format of rule files.
    limit: Value,
    /// Reason why these numbers do not make a valid limit.
    problem: Option<String>,
    /// Number of requests in each time slot.
    admitted: Vec<u32>,
    held: Vec<u32>,
    refused: Vec<u32>,
    /// Level of the first user's bucket at the end of each time slot, in thousandths of the
    /// capacity.
    level: Vec<u64>,
}

pub(crate) fn answer(question: &Question) -> Result<Answer, String> {
    let traffic = question.traffic.bounded();
    let chosen = limits(&question.limit)?;
    let first = chosen.iter().next().ok_or("no limit")?;
    let algorithm = first.algorithm();
    let mut charts = vec![chart(algorithm.name(), &question.limit, &traffic)];
    let others = Algorithm::NAMES.iter().copied();
    for name in others.filter(|name| *name != algorithm.name()) {
        charts.push(chart(name, &similar(algorithm, name), &traffic));
    }
    Ok(Answer {
        seconds: traffic.seconds,
        charts,
    })
}

fn limits(limit: &Value) -> Result<Limits, String> {
    parse_limits(&json!([limit])).map_err(|problems| {
        let first = problems.iter().map(ToString::to_string).next();
        first.unwrap_or_default()
    })
}

/// Returns a limit of another algorithm with the same capacity and the same long-term rate.
fn similar(algorithm: &Algorithm, name: &str) -> Value {
    let capacity = algorithm.capacity();
    // A limit on concurrent requests has no rate. If each request takes `TAKES`, such a limit admits `capacity`
    // requests per `TAKES`.
    let rate = algorithm.rate().map(|rate| rate.to_string());
    let rate = rate.unwrap_or_else(|| format!("{capacity}/{TAKES}"));
    let window = algorithm.quota_time(Nanos::ZERO).unwrap_or(TAKES);
    let window_text = format!("{}ms", window.millis_ceil().max(1));
    match name {
        "fixed_window" | "sliding_window" | "sliding_log" | "sliding_counter" => {
            json!({ "algorithm": name, "capacity": capacity, "window": window_text })
        }
        "smooth_bursty" => {
            json!({ "algorithm": name, "rate": rate, "burst_seconds": window.secs_ceil().max(1) })
        }
        "smooth_warmup" => {
            json!({ "algorithm": name, "rate": rate, "warmup": window_text, "max_wait": "4s" })
        }
        "concurrency" => json!({ "algorithm": name, "capacity": capacity }),
        _ => json!({ "algorithm": name, "capacity": capacity, "rate": rate }),
    }
}

impl Traffic {
    fn bounded(self) -> Self {
        Self {
            rate: self.rate.min(MOST_PER_SECOND),
            burst: self.burst.min(MOST_BURST),
            users: self.users.clamp(1, MOST_USERS),
            seconds: self.seconds.clamp(1, MOST_SECONDS),
        }
    }

    /// Returns the times of one user's requests in ascending order.
    fn times(&self, user: u32) -> Vec<Nanos> {
        let length = Nanos::from_secs(self.seconds.into()).get();
        let steady = u64::from(self.rate).saturating_mul(self.seconds.into());
        let gap = length.checked_div(steady).unwrap_or(length);
        // Users are spread evenly within a gap, so they do not all send at the same time.
        let start = gap.saturating_mul(user.into()) / u64::from(self.users.max(1));
        let steady = (0..steady).map(|n| start.saturating_add(n.saturating_mul(gap)));
        let bursts = [length / 8, length.saturating_mul(5) / 8];
        let burst = u64::from(self.burst);
        let at_once = bursts
            .into_iter()
            .flat_map(|at| (0..burst).map(move |n| at.saturating_add(n.saturating_mul(1_000_000))));
        let mut times: Vec<u64> = steady.chain(at_once).collect();
        times.sort_unstable();
        times.into_iter().map(Nanos::new).collect()
    }
}

fn chart(algorithm: &'static str, limit: &Value, traffic: &Traffic) -> Chart {
    let mut chart = Chart {
        algorithm,
        limit: limit.clone(),
        ..Chart::default()
    };
    let limits = match limits(limit) {
        Ok(limits) => limits,
        Err(problem) => {
            chart.problem = Some(problem);
            return chart;
        }
    };
    let slots = usize::try_from(SLOTS).unwrap_or(0);
    for counts in [&mut chart.admitted, &mut chart.held, &mut chart.refused] {
        counts.resize(slots, 0);
    }
    for user in 0..traffic.users {
        chart.send(&limits, traffic, user);
    }
    chart
}

impl Chart {
    /// Simulates the requests of one user. Records the level only for the first user.
    fn send(&mut self, limits: &Limits, traffic: &Traffic, user: u32) {
        let slot = (Nanos::from_secs(traffic.seconds.into()).get() / SLOTS).max(1);
        let mut bucket = limits.start(Nanos::ZERO);
        let mut open: VecDeque<(Nanos, Nanos)> = VecDeque::new();
        let mut shown = 0;
        for now in traffic.times(user) {
            while user == 0 && shown < now.get() / slot {
                shown += 1;
                let at = Nanos::new(shown.saturating_mul(slot));
                give_back(limits, &mut bucket, &mut open, at);
                self.level.push(level(limits, &bucket, at));
            }
            give_back(limits, &mut bucket, &mut open, now);
            let answer = limits.answer(&mut bucket, &BucketRequest::new(1, now));
            let counts = match answer.verdict() {
                Verdict::Admit => &mut self.admitted,
                Verdict::Hold => &mut self.held,
                Verdict::Refuse => &mut self.refused,
            };
            let place = usize::try_from(now.get() / slot).ok();
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count = count.saturating_add(1);
            }
            if limits.holds_until_end() && !answer.is_refused() {
                let begins = now.saturating_add(answer.wait());
                open.push_back((answer.at(), begins.saturating_add(TAKES)));
            }
        }
        while user == 0 && count(self.level.len()) < SLOTS {
            shown += 1;
            let at = Nanos::new(shown.saturating_mul(slot));
            give_back(limits, &mut bucket, &mut open, at);
            self.level.push(level(limits, &bucket, at));
        }
    }
}

/// Releases the slots of requests that have ended by `now`.
fn give_back(
    limits: &Limits,
    bucket: &mut Bucket,
    open: &mut VecDeque<(Nanos, Nanos)>,
    now: Nanos,
) {
    while let Some((taken, end)) = open.front().copied()
        && end <= now
    {
        open.pop_front();
        limits.release(bucket, 1, taken, end);
    }
}

/// Returns the level of a bucket in thousandths, computed as on the screen of `loudou`.
fn level(limits: &Limits, bucket: &Bucket, now: Nanos) -> u64 {
    let decision = limits.peek(bucket, 0, now);
    let used = limits.used(bucket, now);
    let first = limits.iter().zip(decision.decisions()).zip(used).next();
    let Some(((limit, decision), used)) = first else {
        return 0;
    };
    let (part, whole) = LimitView::new(limit, used, decision, None).level(0);
    let part = part.saturating_mul(FULL).checked_div(whole);
    part.unwrap_or(0).min(FULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(limit: Value, burst: u32) -> Answer {
        let traffic = Traffic {
            rate: 0,
            burst,
            users: 2,
            seconds: 20,
        };
        answer(&Question { limit, traffic }).expect("an answer")
    }

    #[test]
    fn a_burst_passes_up_to_the_capacity() {
        let limit = json!({ "name": "l", "algorithm": "funnel", "capacity": 6, "rate": "1/s" });
        let answer = asked(limit, 10);
        let sum = |counts: &[u32]| counts.iter().sum::<u32>();
        let outcome = |chart: &Chart| (sum(&chart.admitted), sum(&chart.refused));
        // Two users send two bursts of ten each.
        let chosen = answer.charts.first().expect("the chosen limit");
        assert_eq!((chosen.algorithm, outcome(chosen)), ("funnel", (24, 16)));
        assert!(chosen.level.iter().max() > Some(&900), "{chosen:?}");
        assert_eq!(count(chosen.level.len()), SLOTS);
        assert_eq!(chosen.level.last(), Some(&0));
    }

    #[test]
    fn similar_limits_are_valid() {
        let limit = json!({ "algorithm": "funnel", "capacity": 6, "rate": "1/s" });
        for Chart { limit, .. } in asked(limit, 10).charts {
            let answer = asked(limit.clone(), 10);
            assert_eq!(answer.charts.len(), Algorithm::NAMES.len());
            for chart in &answer.charts {
                assert_eq!(chart.problem, None, "{:?} beside {limit}", chart.limit);
            }
        }
    }
}
