//! The rules under test, and the numbers that they may have.
//!
//! A rule's numbers change either by carrying fractions (configurations, edits with `proportional`) or by
//! carrying units (edits with `keep`), never by both: a capacity that is raised in units and lowered in
//! fractions adds something each time, by design, and then no bound would apply.

use serde_json::{Value, json};

use super::random::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// The algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `funnel`
    Funnel,
    /// `token_bucket`, greedy
    TokenBucket,
    /// `fixed_window`, from the first request on
    FixedWindow,
    /// `sliding_log`
    SlidingLog,
    /// `sliding_window` with ten slots, each of which may take the whole capacity
    SlidingWindow,
    /// `sliding_counter`
    SlidingCounter,
    /// `leaky_queue` in which no request waits
    LeakyQueue,
    /// `smooth_bursty` without waiting
    SmoothBursty,
    /// `smooth_warmup` without waiting
    SmoothWarmup,
    /// `concurrency`, which refills by its lease
    Concurrency,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Funnel,
        Self::TokenBucket,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::SlidingCounter,
        Self::LeakyQueue,
        Self::SmoothBursty,
        Self::SmoothWarmup,
        Self::Concurrency,
    ];

    /// The name in the rule file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Funnel => "funnel",
            Self::TokenBucket => "token_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingCounter => "sliding_counter",
            Self::LeakyQueue => "leaky_queue",
            Self::SmoothBursty => "smooth_bursty",
            Self::SmoothWarmup => "smooth_warmup",
            Self::Concurrency => "concurrency",
        }
    }

    /// Whether a request passes as soon as everything before it is paid for, so that the last one may
    /// exceed the capacity.
    pub const fn pays_later(self) -> bool {
        matches!(
            self,
            Self::LeakyQueue | Self::SmoothBursty | Self::SmoothWarmup
        )
    }

    /// Whether the level is a whole number of units, so that a fraction of it is rounded.
    pub const fn rounds(self) -> bool {
        matches!(
            self,
            Self::FixedWindow | Self::SlidingLog | Self::SlidingWindow | Self::SlidingCounter
        )
    }
}

/// The way in which a key's use is carried over when the numbers of its rule change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// As a fraction: by configurations and edits.
    Share,
    /// In units: by edits only; every configuration has the same numbers.
    Units,
}

impl Family {
    /// The `carry` of this family's edits.
    pub const fn carry(self) -> &'static str {
        match self {
            Self::Share => "proportional",
            Self::Units => "keep",
        }
    }
}

/// The numbers of a limit: a capacity, and the nanoseconds in which all of it is refilled (the length
/// of windows).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// In cost units.
    pub capacity: u64,
    /// In nanoseconds.
    pub refill: u64,
}

/// A rule under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name, and its path.
    pub name: String,
    /// The algorithm of its only limit.
    pub kind: Kind,
    /// The way in which its numbers change.
    pub family: Family,
    /// Whether it refills so little in the life of a key that its count is almost exact. The other rules
    /// refill within seconds: their keys show that no client is locked out.
    pub slow: bool,
}

impl Rule {
    /// The rules of a soak: every algorithm, each in both families, slow; and fast ones of the even kinds.
    pub fn all() -> Vec<Self> {
        let mut rules = Vec::new();
        for (family, prefix) in [(Family::Share, "share"), (Family::Units, "units")] {
            for kind in Kind::ALL {
                for slow in [true, false] {
                    let speed = if slow { "slow" } else { "fast" };
                    let name = format!("{prefix}-{}-{speed}", kind.name().replace('_', "-"));
                    rules.push(Self {
                        name,
                        kind,
                        family,
                        slow,
                    });
                }
            }
        }
        rules
    }

    /// The way in which its levels are carried over, whatever an edit requests: taken slots are no fraction.
    pub fn levels(&self) -> Family {
        match self.kind {
            Kind::Concurrency => Family::Units,
            _ => self.family,
        }
    }

    /// Numbers for this rule.
    pub fn numbers(&self, random: &mut Random) -> Numbers {
        let refill = if self.slow {
            random.between(120, 600) * SECOND
        } else {
            random.between(800, 2_500) * MS
        };
        Numbers {
            capacity: random.between(3, 25),
            refill,
        }
    }

    /// The limits with these numbers, as in a rule file.
    pub fn limits(&self, numbers: Numbers) -> Value {
        let Numbers { capacity, refill } = numbers;
        let ms = refill / MS;
        let rate = json!(format!("{capacity}/{ms}ms"));
        let time = json!(format!("{ms}ms"));
        let own = match self.kind {
            Kind::Funnel | Kind::TokenBucket => json!({ "capacity": capacity, "rate": rate }),
            Kind::FixedWindow | Kind::SlidingLog | Kind::SlidingCounter => {
                json!({ "capacity": capacity, "window": time })
            }
            Kind::SlidingWindow => {
                json!({ "capacity": capacity, "window": time, "slot_capacity": capacity })
            }
            // More than any capacity here, including scaled ones.
            Kind::LeakyQueue => json!({ "capacity": capacity, "rate": rate, "immediate": 1_000 }),
            Kind::SmoothBursty => {
                let seconds = format!("{}.{:03}", ms / 1_000, ms % 1_000);
                let seconds: Value = serde_json::from_str(&seconds).unwrap_or_default();
                json!({ "rate": rate, "burst_seconds": seconds })
            }
            Kind::SmoothWarmup => json!({ "rate": rate, "warmup": time }),
            Kind::Concurrency => json!({ "capacity": capacity, "lease": time }),
        };
        let mut limit = json!({ "name": "l", "algorithm": self.kind.name() });
        if let (Some(limit), Value::Object(own)) = (limit.as_object_mut(), own) {
            limit.extend(own);
        }
        json!([limit])
    }

    /// The rule with these numbers, as in a rule file.
    pub fn document(&self, numbers: Numbers) -> Value {
        json!({
            "name": self.name,
            "match": { "path": { "exact": format!("/{}", self.name) } },
            "key": [{ "header": KEY }],
            // A store that gives up would admit without counting, and the limiter would be blamed.
            "on_error": "refuse",
            "limits": self.limits(numbers),
        })
    }
}

/// The header with the key.
pub const KEY: &str = "x-user-id";
/// The rule of the made-up keys, and its path.
pub const FLOOD: &str = "flood";

/// The rule of the made-up keys, which are refused and remembered.
pub fn flood() -> Value {
    let limits = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/10s" }]);
    json!({
        "name": FLOOD,
        "match": { "path": { "exact": format!("/{FLOOD}") } },
        "key": [{ "header": KEY }],
        "limits": limits,
    })
}
