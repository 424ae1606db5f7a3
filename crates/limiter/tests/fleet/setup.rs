//! A simulated fleet, its requests and its faults.

use loudou_limiter::Limits;
use loudou_limiter::algorithm::{Align, FixedWindow, Funnel, Refill, TokenBucket};
use loudou_limiter::lease::{LeaseSettings, Terms};
use loudou_limiter::{Limit, Nanos, Rate};

/// How requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// At equal intervals.
    Even,
    /// At random intervals.
    Random,
    /// Groups of this many requests at once, at random intervals.
    Bursts(u64),
    /// At equal intervals for the first number of milliseconds, then no requests for the second
    /// number. Every second pulse has five times as many requests.
    Pulses(u64, u64),
}

/// Faults of calls, in per mille.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Network {
    /// Calls that do not reach the engine.
    pub(crate) lost_calls: u64,
    /// Answers that are lost after the engine has charged.
    pub(crate) lost_answers: u64,
    /// Answers that take up to four times the timeout.
    pub(crate) slow: u64,
    /// Calls that fail at once, before they reach the engine.
    pub(crate) resets: u64,
    /// Answers in which the key has an error, although the engine has charged.
    pub(crate) key_errors: u64,
}

/// An event that concerns the whole fleet.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The engine stops answering. Calls fail at once, or hang until their timeout.
    Down { hangs: bool },
    /// The node of the key is lost. The relay responds with an error of the key.
    KeyLost,
    /// The engine is full, and refuses to write.
    Full,
    /// The engine answers again, with its earlier state.
    Up,
    /// The engine answers again, without any state.
    UpEmpty,
    /// A replica takes over that lacks the last writes.
    Failover { lost: Nanos },
    /// The engine's clock jumps by this many nanoseconds.
    Jump(i64),
    /// The numbers change. Each Envoy adopts them within a second.
    Edit(Limits),
    /// The next Envoy restarts and loses its state.
    Restart,
}

/// A simulated fleet with one key.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) envoys: u32,
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) settings: LeaseSettings,
    /// Units per second that are requested from all Envoys together.
    pub(crate) offered: u64,
    pub(crate) pattern: Pattern,
    /// Minimum and maximum cost.
    pub(crate) costs: (u64, u64),
    pub(crate) seconds: u64,
    pub(crate) network: Network,
    /// Number of workers per Envoy whose calls never reach a relay.
    pub(crate) refused: usize,
    /// Faults, with their times in milliseconds.
    pub(crate) faults: Vec<(u64, Fault)>,
    pub(crate) seed: u64,
}

impl Setup {
    /// Creates a fleet without faults.
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
