//! The rules under test, and the numbers that they may have.
//!
//! Configurations, overrides, and edits without a `carry` keep the units that a key has used. Edits with
//! `proportional` keep its share of the capacity. A capacity that is lowered in shares and raised in units forgives
//! something each time, by design. So there are rules of which only the units are carried, rules of which only the
//! shares are, and rules of both, to which a weaker bound applies.

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
    /// `leaky_queue` in which requests wait for their turn
    Line,
    /// `smooth_bursty` without waiting
    SmoothBursty,
    /// `smooth_warmup` without waiting
    SmoothWarmup,
    /// `concurrency`, which refills by its lease
    Concurrency,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Funnel,
        Self::TokenBucket,
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindow,
        Self::SlidingCounter,
        Self::LeakyQueue,
        Self::Line,
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
            Self::LeakyQueue | Self::Line => "leaky_queue",
            Self::SmoothBursty => "smooth_bursty",
            Self::SmoothWarmup => "smooth_warmup",
            Self::Concurrency => "concurrency",
        }
    }

    /// True if requests wait for their turn.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Line)
    }

    /// True if a request passes as soon as everything before it is paid for, so that the last one may
    /// exceed the capacity.
    pub const fn pays_later(self) -> bool {
        matches!(
            self,
            Self::LeakyQueue | Self::Line | Self::SmoothBursty | Self::SmoothWarmup
        )
    }

    /// True if the level is a whole number of units, so that a fraction of it is rounded.
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
    /// As a fraction: by edits with `proportional` only. Every configuration has the same numbers, and no key has
    /// others.
    Share,
    /// In units: by configurations, overrides, and edits with `keep` or without a `carry`.
    Units,
    /// In units and in fractions: by all of these in turn.
    Mixed,
}

impl Family {
    /// The query for the `carry` of the edit of this number.
    pub const fn carry(self, number: u64) -> &'static str {
        match (self, number % 3) {
            (Self::Share, _) | (Self::Mixed, 2) => "carry=proportional",
            (_, 0) => "carry=keep",
            _ => "",
        }
    }

    /// True if configurations and overrides change its numbers.
    pub const fn has_variants(self) -> bool {
        !matches!(self, Self::Share)
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
    /// True if it refills so little in the life of a key that its count is almost exact. The other rules
    /// refill within seconds: their keys show that no client is locked out.
    pub slow: bool,
}

impl Rule {
    /// The rules of a soak: every algorithm, slow and fast, in each family; mixed are those with a level.
    pub fn all() -> Vec<Self> {
        let mut rules = Vec::new();
        let has_level =
            |kind: Kind| kind.waits() || !kind.pays_later() && kind != Kind::Concurrency;
        for (family, prefix) in [
            (Family::Share, "share"),
            (Family::Units, "units"),
            (Family::Mixed, "mixed"),
        ] {
            for kind in Kind::ALL {
                if family == Family::Mixed && !has_level(kind) {
                    continue;
                }
                for slow in [true, false] {
                    let speed = if slow { "slow" } else { "fast" };
                    let what = if kind.waits() { "line" } else { kind.name() };
                    let name = format!("{prefix}-{}-{speed}", what.replace('_', "-"));
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

    /// The way in which its levels are carried over, whatever an edit requests: neither taken slots nor places in a
    /// line are a fraction of the capacity.
    pub fn levels(&self) -> Family {
        match self.kind {
            Kind::Concurrency | Kind::Line => Family::Units,
            _ => self.family,
        }
    }

    /// True if a change of its numbers may forgive, or add, up to a whole capacity.
    pub fn is_mixed(&self) -> bool {
        self.levels() == Family::Mixed
    }

    /// Numbers for this rule.
    pub fn numbers(&self, random: &mut Random) -> Numbers {
        if self.kind.waits() {
            return self.line(random);
        }
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

    /// A line whose last place is some seconds away at the most. One in four has the other speed, so that a change
    /// may free it, or stop it.
    fn line(&self, random: &mut Random) -> Numbers {
        let capacity = random.between(3, 25);
        let is_slow = self.slow != random.percent(25);
        let spacing = if is_slow {
            random.between(100, 300)
        } else {
            random.between(10, 60)
        };
        Numbers {
            capacity,
            refill: capacity * spacing * MS,
        }
    }

    /// The limits with these numbers, as in a rule file.
    pub fn limits(&self, numbers: Numbers) -> Value {
        let Numbers { capacity, refill } = numbers;
        let ms = refill / MS;
        let rate = json!(format!("{capacity}/{ms}ms"));
        let time = json!(format!("{ms}ms"));
        let own = match self.kind {
            Kind::Funnel | Kind::TokenBucket | Kind::Line => {
                json!({ "capacity": capacity, "rate": rate })
            }
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
