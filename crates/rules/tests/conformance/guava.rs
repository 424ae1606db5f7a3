//! Compares Guava's `RateLimiter` with Loudou's `smooth_bursty` and `smooth_warmup`, including
//! edits of their rate.
//!
//! Guava truncates the cost of a request to whole microseconds. The bursty limiter truncates once.
//! The limiter with warm-up truncates the cold, the warm and the fresh permits separately. Each
//! request that passes therefore moves Guava's time ahead of Loudou's by up to this error, which is
//! tolerated. Its inner state is compared as two times: the time until the next request is free,
//! and the time until all permits are stored.

use std::time::Duration;

use loudou_limiter::{Carry, Nanos, Verdict};
use loudou_rules::config::parse_limits;
use serde_json::{Value, json};

use crate::level::EVER;
use crate::number::{nanos, real, text, truth, whole};
use crate::ratio::rate;
use crate::replay::{Differences, MICRO, Ours, Replay, Suite, time};

pub(crate) const SUITE: Suite = Suite {
    file: "guava_ratelimiter",
    json: include_str!("vectors/guava_ratelimiter.json"),
    start,
};

/// Returns true if Loudou has limits with these numbers.
pub(crate) const SETTINGS: &str = "settings";
/// The time until the next request is free, and until all is stored.
pub(crate) const FREE: &str = "next free";
pub(crate) const STORED: &str = "all stored";
pub(crate) const SET_RATE: &str = "set_rate";

const BURSTY: &str = "bursty";

/// Origin of the calls' instants. It leaves room for a state that began earlier.
const ORIGIN: u64 = 1_000_000_000_000_000;

struct Guava {
    settings: Value,
    /// Nothing while the settings are not such as we have.
    ours: Option<Ours>,
    /// As it was before the last edit.
    before: Option<Ours>,
    /// By how much Guava's clock may be ahead.
    ahead: i128,
}

fn start(trace: &Value) -> Box<dyn Replay> {
    let settings = trace["limiter"].clone();
    let limits = limits(&settings, &settings["permits_per_second"]);
    let created = instant(whole(&settings, "created_at_us"));
    let ours = limits.map(|limits| Ours::new(&limits, created));
    Box::new(Guava {
        settings,
        ours,
        before: None,
        ahead: 0,
    })
}

const fn instant(micros: u64) -> u64 {
    ORIGIN + micros * 1_000
}

/// Our limits with its settings, if there are any.
fn limits(settings: &Value, per_second: &Value) -> Option<Value> {
    let mut limit = json!({"rate": rate(per_second.as_f64()?)});
    if text(settings, "kind") == BURSTY {
        limit["algorithm"] = json!("smooth_bursty");
        limit["burst_seconds"] = settings["max_burst_seconds"].clone();
    } else {
        limit["algorithm"] = json!("smooth_warmup");
        limit["warmup"] = json!(format!("{}us", whole(settings, "warmup_us")));
        limit["cold_factor"] = settings["cold_factor"].clone();
    }
    let limits = json!([limit]);
    parse_limits(&limits).is_ok().then_some(limits)
}

/// How long one would have waited at most.
fn timeout(call: &Value) -> Option<u64> {
    let micros = call["timeout_us"].as_i64()?;
    Some(u64::try_from(micros).unwrap_or(0).saturating_mul(1_000))
}

/// The time from a call until the next request is free.
fn free_after(call: &Value) -> i128 {
    let free = i128::from(whole(&call["after"], "next_free_ticket_us"));
    ((free - i128::from(whole(call, "t_us"))) * MICRO).max(0)
}

impl Guava {
    /// The time from a call until the most is stored.
    fn stored_after(&self, call: &Value) -> i128 {
        let after = &call["after"];
        let missing = real(after, "max_permits") - real(after, "stored_permits");
        let interval = match self.settings["warmup_us"].as_f64() {
            Some(warmup) => warmup / real(after, "max_permits"),
            None => real(after, "stable_interval_us"),
        };
        free_after(call) + nanos(missing.max(0.0) * interval / 1e6)
    }

    /// By how much its time runs ahead with each request.
    fn cut(&self) -> i128 {
        if self.is_bursty() { MICRO } else { 3 * MICRO }
    }

    fn is_bursty(&self) -> bool {
        text(&self.settings, "kind") == BURSTY
    }

    /// Returns the state after an infinite rate, in which all permits are stored or the limiter is
    /// warm.
    fn begin(&self, limits: &Value, call: &Value) -> Ours {
        let now = self.instant(call);
        if self.is_bursty() {
            let burst = nanos(real(&self.settings, "max_burst_seconds"));
            return Ours::new(limits, now - u64::try_from(burst).expect("a span"));
        }
        // A limiter is warm if it has just paid for all stored permits.
        let warm = |start| {
            let mut ours = Ours::new(limits, start);
            let stored = real(&call["after"], "max_permits").ceil();
            ours.ask(u64::try_from(nanos(stored / 1e9)).expect("permits"), start);
            ours
        };
        let paid_in = u64::try_from(warm(now).wait_of_next(now)).expect("a span");
        warm(now - paid_in)
    }

    fn ask(&mut self, call: &Value, differences: &mut Differences) {
        let (cost, now) = (whole(call, "permits"), self.instant(call));
        let Some(ours) = &mut self.ours else {
            differences.same(SETTINGS, 1, None);
            return;
        };
        let answer = ours.ask_waiting(cost, now, timeout(call).or(EVER));
        let passes = call.get("ok").is_none_or(|_| truth(call, "ok"));
        let passes = if passes {
            Verdict::Admit
        } else {
            Verdict::Refuse
        };
        let ours = match answer.verdict() {
            Verdict::Hold => Verdict::Admit,
            other => other,
        };
        if differences.verdict(passes, ours) && passes == Verdict::Admit {
            let wait = i128::from(whole(call, "wait_us")) * MICRO;
            differences.within(self.ahead, "wait", wait, time(answer.wait()));
            self.ahead += self.cut();
        }
    }

    fn edit(&mut self, call: &Value, differences: &mut Differences) {
        let now = self.instant(call);
        let Some(limits) = limits(&self.settings, &call["permits_per_second"]) else {
            self.ours = None;
            differences.same(SETTINGS, 1, None);
            return;
        };
        self.before.clone_from(&self.ours);
        match &mut self.ours {
            Some(ours) => {
                let owed = ours.wait_of_next(now);
                let before = ours.rate();
                ours.edit(&limits, Carry::Proportional, now);
                // Equal permits at another rate.
                let owed = Duration::from_nanos(u64::try_from(owed).expect("a span"));
                let owed = nanos(owed.as_secs_f64() * before / ours.rate());
                differences.within(MICRO, "what is owed", owed, ours.wait_of_next(now));
            }
            None => self.ours = Some(self.begin(&limits, call)),
        }
    }

    fn compare(&self, call: &Value, differences: &mut Differences) {
        let Some(ours) = &self.ours else { return };
        let now = self.instant(call);
        let free = ours.wait_of_next(now);
        differences.within(self.ahead, FREE, free_after(call), free);
        let stored = time(ours.look(now).reset_after());
        differences.within(self.ahead, STORED, self.stored_after(call), stored);
    }
}

impl Replay for Guava {
    fn instant(&self, call: &Value) -> u64 {
        instant(whole(call, "t_us"))
    }

    fn call(&mut self, call: &Value, differences: &mut Differences) {
        if text(call, "op") == SET_RATE {
            self.edit(call, differences);
        } else {
            self.ask(call, differences);
        }
        self.compare(call, differences);
    }

    /// An edit keeps the time that is owed, so it has the same effect as an edit at the end of this
    /// time.
    fn follow(&mut self, call: &Value) {
        assert_eq!(
            text(call, "op"),
            SET_RATE,
            "how to be in the state of Guava after {call}?"
        );
        let (mut ours, now) = (
            self.before.take().expect("it was edited"),
            self.instant(call),
        );
        let limits = limits(&self.settings, &call["permits_per_second"]).expect("it was edited");
        let owed = u64::try_from(ours.wait_of_next(now)).expect("a span");
        ours.edit(&limits, Carry::Proportional, now + owed);
        ours.bucket.last = Nanos::new(now);
        self.ours = Some(ours);
    }
}
