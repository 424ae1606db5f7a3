//! The rules under test, and the numbers that they may have.
//!
//! Configurations, overrides, and edits without a `carry` keep the units that a key has used. Edits
//! with `proportional` keep its share of the capacity. If edits lower a capacity in shares and
//! raise it in units, each such change forgives something by design. So some rules have changes in
//! units only, others have changes in shares only, and rules with both have a weaker bound.

use serde_json::{Value, json};

use super::random::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Algorithms.
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
    /// All algorithms.
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

    /// Returns the name in the rule file.
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

    /// Returns true if requests wait for their turn.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Line)
    }

    /// Returns true if a request passes as soon as earlier requests are paid for, so that the last
    /// one may exceed the capacity.
    pub const fn pays_later(self) -> bool {
        matches!(
            self,
            Self::LeakyQueue | Self::Line | Self::SmoothBursty | Self::SmoothWarmup
        )
    }

    /// Returns true if the level is a whole number of units, so that a fraction of it is rounded.
    pub const fn rounds(self) -> bool {
        matches!(
            self,
            Self::FixedWindow | Self::SlidingLog | Self::SlidingWindow | Self::SlidingCounter
        )
    }
}

/// How a key's use is carried over when the numbers of its rule change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// As a share of the capacity. The rule is changed only by edits with `proportional`, every
    /// configuration has the same numbers for it, and no key has others.
    Share,
    /// In units. The rule is changed by configurations, overrides, and edits with `keep` or without
    /// a `carry`.
    Units,
    /// In units and in shares, by all of these changes in turn.
    Mixed,
}

impl Family {
    /// Returns the query parameter `carry` of the n-th edit.
    pub const fn carry(self, number: u64) -> &'static str {
        match (self, number % 3) {
            (Self::Share, _) | (Self::Mixed, 2) => "carry=proportional",
            (_, 0) => "carry=keep",
            _ => "",
        }
    }

    /// Returns true if configurations and overrides change the numbers.
    pub const fn has_variants(self) -> bool {
        !matches!(self, Self::Share)
    }
}

/// Numbers of a limit: a capacity, and the time in which all of it is refilled (the length of a
/// window).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Capacity, in cost units.
    pub capacity: u64,
    /// Refill time, in nanoseconds.
    pub refill: u64,
}

/// A rule under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the rule, which is also its path.
    pub name: String,
    /// Algorithm of its only limit.
    pub kind: Kind,
    /// How its numbers change.
    pub family: Family,
    /// True if the rule refills so little while a key is in use that the model's count is almost
    /// exact. The other rules refill within seconds. Their keys show that no client is locked out.
    pub slow: bool,
}

impl Rule {
    /// Returns the rules of a soak: every algorithm in each family, with slow and with fast refill.
    /// Only algorithms with a level are in the mixed family.
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

    /// Returns how levels are carried over. Some algorithms ignore the edit's `carry`, because
    /// neither requests in flight nor waiting requests are a share of the capacity.
    pub fn levels(&self) -> Family {
        match self.kind {
            Kind::Concurrency | Kind::Line => Family::Units,
            _ => self.family,
        }
    }

    /// Returns true if a change of the numbers may forgive, or add, up to one capacity.
    pub fn is_mixed(&self) -> bool {
        self.levels() == Family::Mixed
    }

    /// Returns random numbers for this rule.
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

    /// Returns random numbers for a queue of some seconds at most. One in four has the other speed,
    /// so that a change may empty or stop the queue.
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

    /// Returns the limits with these numbers, as in a rule file.
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
            // More than any capacity here, including capacities of overrides.
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

    /// Returns the rule with these numbers, as in a rule file.
    pub fn document(&self, numbers: Numbers) -> Value {
        json!({
            "name": self.name,
            "match": { "path": { "exact": format!("/{}", self.name) } },
            "key": [{ "header": KEY }],
            // If the store gave up, the default would admit without counting, and the model would
            // blame the limiter.
            "on_error": "refuse",
            "limits": self.limits(numbers),
        })
    }
}

/// Header with the key.
pub const KEY: &str = "x-user-id";
/// Name of the rule for made-up keys, which is also its path.
pub const FLOOD: &str = "flood";

/// Returns the rule for made-up keys.
pub fn flood() -> Value {
    let limits = json!([{ "algorithm": "funnel", "capacity": 1, "rate": "1/10s" }]);
    json!({
        "name": FLOOD,
        "match": { "path": { "exact": format!("/{FLOOD}") } },
        "key": [{ "header": KEY }],
        "limits": limits,
    })
}
