//! What a simulated fleet is, and what happens to it.

use loudou_limiter::Limits;
use loudou_limiter::algorithm::{Align, FixedWindow, Funnel, Refill, TokenBucket};
use loudou_limiter::lease::{LeaseSettings, Terms};
use loudou_limiter::{Limit, Nanos, Rate};

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// One after the other at the same distance.
    Even,
    /// At random distances.
    Random,
    /// Groups of that many at once, at random distances.
    Bursts(u64),
    /// At the same distance for as many milliseconds, and none for as many more; in each second pulse five
    /// times as many.
    Pulses(u64, u64),
}

/// The faults of calls, per mille.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Network {
    /// Calls that do not reach the engine.
    pub(crate) lost_calls: u64,
    /// Answers that do not come back: the engine has charged.
    pub(crate) lost_answers: u64,
    /// Answers that take up to four times the time-out.
    pub(crate) slow: u64,
    /// Calls that fail at once, before they reach the engine.
    pub(crate) resets: u64,
    /// Answers in which the key has an error, although the engine has charged.
    pub(crate) key_errors: u64,
}

/// Something that happens to the whole fleet.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine answers nothing; calls fail at once, or hang until their time-out.
    Down { hangs: bool },
    /// The node of the key is gone: the relay answers with an error of the key.
    KeyLost,
    /// The engine is full, and refuses to write.
    Full,
    /// It answers again with the state that it had.
    Up,
    /// It answers again without any state.
    UpEmpty,
    /// A replica takes over that lacks the writes of the last time.
    Failover { lost: Nanos },
    /// The engine's clock moves by that many nanoseconds.
    Jump(i64),
    /// The numbers change; each Envoy adopts them within a second.
    Edit(Limits),
    /// The next Envoy restarts and forgets everything.
    Restart,
}

/// A simulated fleet with one key.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) envoys: u32,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) settings: LeaseSettings,
    /// The units offered in a second, to all Envoys together.
    pub(crate) offered: u64,
    pub(crate) pattern: Pattern,
    /// The least and the largest cost.
    pub(crate) costs: (u64, u64),
    pub(crate) seconds: u64,
    pub(crate) network: Network,
    /// The workers of each Envoy whose calls never reach a relay.
    pub(crate) refused: usize,
    /// What happens when, in milliseconds.
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) seed: u64,
}

impl Setup {
    /// A fleet on which nothing goes wrong.
    pub(crate) fn new(envoys: u32, limits: Limits, offered: u64) -> Self {
        Self {
            envoys,
            workers: 2,
            limits,
            settings: LeaseSettings {
                lease: Nanos::from_millis(200),
                timeout: Nanos::from_millis(30),
                credit: 0,
            },
            offered,
            pattern: Pattern::Random,
            costs: (1, 1),
            seconds: 20,
            network: Network::default(),
            refused: 0,
            faults: Vec::new(),
            seed: u64::from(envoys) * 1_000 + offered,
        }
    }

    pub(crate) fn credit(mut self, credit: u64) -> Self {
        self.settings.credit = credit;
        self
    }

    pub(crate) fn pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    pub(crate) fn costs(self, costs: (u64, u64)) -> Self {
        Self { costs, ..self }
    }

    pub(crate) fn seconds(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    pub(crate) fn network(self, network: Network) -> Self {
        Self { network, ..self }
    }

    pub(crate) fn fault(mut self, millis: u64, fault: Fault) -> Self {
        self.faults.push((millis, fault));
        self
    }

    pub(crate) fn terms_of(&self, limits: &Limits) -> Terms {
        Terms::of(limits, &self.settings).expect("limits of a fleet")
    }
}

pub(crate) fn limits(algorithms: impl IntoIterator<Item = Limit>) -> Limits {
    Limits::new(algorithms.into_iter().collect()).expect("named apart")
}

pub(crate) fn rate(text: &str) -> Rate {
    Rate::parse(text).expect("a rate")
}

pub(crate) fn funnel(capacity: u64, pace: &str) -> Limit {
    let funnel = Funnel::new(capacity, rate(pace)).expect("valid");
    Limit::new(format!("funnel {capacity}"), funnel)
}

pub(crate) fn interval(capacity: u64, pace: &str) -> Limit {
    let tokens = TokenBucket::new(capacity, rate(pace), Refill::Interval, capacity);
    Limit::new(format!("interval {capacity}"), tokens.expect("valid"))
}

pub(crate) fn window(capacity: u64, length: Nanos) -> Limit {
    let window = FixedWindow::new(capacity, length, Align::Clock).expect("valid");
    Limit::new(format!("window {capacity}"), window)
}

pub(crate) fn one(limit: Limit) -> Limits {
    limits([limit])
}
