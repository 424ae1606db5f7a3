//! `GET /v1/buckets` and `GET /v1/buckets/{rule}/{key}`.

use loudou_limiter::{Decision, Limit, Nanos};
use loudou_store::Outage;
use serde::{Deserialize, Serialize};

/// A page of live buckets. Pages are cut by work done, so one may be short or empty while there is
/// a next cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BucketsPage {
    /// The process; see [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// The server's clock when the page was read.
    pub now_ns: u64,
    /// The generation of the rules.
    pub generation: u64,
    /// The buckets, in no particular order.
    pub buckets: Vec<BucketView>,
    /// The `cursor` for the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The number of pages of the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages: u32,
    /// How many of them were searched, those before the cursor included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages_done: u32,
    /// How long to wait before the call for the next page, so that searches do not slow the data path.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait_ns: u64,
}

/// A [`BucketsPage`] apart from its buckets. The filter writes each of those as it finds it, so that the time of
/// writing counts as work, too.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BucketsHead {
    /// [`BucketsPage::instance`].
    pub instance: String,
    /// [`BucketsPage::now_ns`].
    pub now_ns: u64,
    /// [`BucketsPage::generation`].
    pub generation: u64,
    /// [`BucketsPage::pages`].
    pub pages: u32,
    /// [`BucketsPage::pages_done`].
    pub pages_done: u32,
    /// [`BucketsPage::wait_ns`].
    pub wait_ns: u64,
    /// [`BucketsPage::next_cursor`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl BucketsHead {
    /// The JSON of the page with these buckets, which are JSON with commas between them.
    pub fn with_buckets(&self, buckets: &[u8]) -> Vec<u8> {
        let mut page = serde_json::to_vec(self).unwrap_or_default();
        // In place of the brace at the end.
        page.pop();
        page.extend_from_slice(b",\"buckets\":[");
        page.extend_from_slice(buckets);
        page.extend_from_slice(b"]}");
        page
    }
}

/// The body of `POST /v1/buckets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BucketNames {
    /// The rule and the key of each bucket, at most [`crate::MAX_READ`].
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub buckets: Vec<(String, String)>,
}

/// One bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BucketView {
    /// The name of its rule.
    pub rule: String,
    /// Its key: printable ASCII, other bytes as `%XX`. `#` and hexadecimal digits when the name was
    /// lost.
    pub key: String,
    /// Every limit, in the rule's order.
    pub limits: Vec<LimitView>,
    /// The index in `limits` of the one that refuses or is nearest to it.
    pub reported: usize,
    /// Requests admitted since the bucket was created.
    pub admitted: u64,
    /// Requests refused since then; in shadow mode, those that would have been.
    pub refused: u64,
    /// When the last of these was refused, at a quarter of a second before it at most; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at_ns: Option<u64>,
    /// When the current run of refusals began, in which each came within 60 s after the one before, whatever was
    /// admitted in between. Absent if the last refusal is longer ago, or if the beginning is not known: while
    /// requests in flight hold permits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since_ns: Option<u64>,
    /// True if its rule is in shadow mode or off, so that the requests that it counts as refused passed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
    /// When it was last touched.
    pub last_seen_ns: u64,
    /// Its state.
    pub state: BucketState,
    /// The ban in force, if its key is banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanView>,
    /// The other ban in force, if `ban` comes from its override.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_ban: Option<BanView>,
    /// The refusals that count towards the rule's penalty.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strikes: u32,
    /// The penalties that still count: each of them makes the next ban longer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub penalties: u32,
    /// The part of this Envoy in the limits, if many Envoys share them. `limits` then describe the
    /// limits of all Envoys, as last reported at `heard_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// Who decides in place of the lease, which is out of force while the relay or its engine does not answer.
    /// `limits` are then this Envoy's part of them, if that decides; else as they were known last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageView>,
    /// The override that its key has in the rule.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub own: Option<KeyOverrideView>,
}

/// The part of one Envoy in limits that many Envoys share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseView {
    /// The units that it may pass without asking.
    pub tokens: u64,
    /// The units that were left for all Envoys when the engine last answered, in the order of the limits.
    pub left: Vec<u64>,
    /// When it sent the call that was answered, on the server's monotonic clock.
    pub heard_ns: u64,
    /// The units that passed on credit and are not charged yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub debt: u64,
    /// Until when it refuses without asking, because the engine had nothing left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_until_ns: Option<u64>,
}

/// Who decides while the relay or its engine does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "decides")]
pub enum OutageView {
    /// The bucket of this Envoy, by its part of the limits.
    Local {
        /// The number of Envoys by which the limits are divided.
        envoys: u32,
    },
    /// Every request passes.
    Admit,
    /// None passes.
    Refuse,
}

impl OutageView {
    /// Its name in answers, and of `on_outage` in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local { .. } => "local",
            Self::Admit => "admit",
            Self::Refuse => "refuse",
        }
    }
}

impl From<Outage> for OutageView {
    fn from(outage: Outage) -> Self {
        match outage {
            Outage::Local(envoys) => Self::Local { envoys },
            Outage::Admit => Self::Admit,
            Outage::Refuse => Self::Refuse,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl BucketView {
    /// The ban of an operator or a penalty, which another ban may replace and an unban lifts. A ban
    /// by an override is not one of these.
    pub fn imposed(&self) -> Option<BanView> {
        let ban = self.ban.filter(|ban| ban.by != BanBy::Override);
        ban.or(self.hidden_ban)
    }
}

/// A ban in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BanView {
    /// When it ends, on the server's monotonic clock; `null` if it has no end.
    pub until_ns: Option<u64>,
    /// Its cause.
    pub by: BanBy,
}

impl BanView {
    /// The `ETag` of what is imposed on a key, to send as `If-Match` of a ban or an unban.
    pub fn etag(imposed: Option<Self>) -> String {
        match imposed {
            None => "\"ban-none\"".to_owned(),
            Some(Self { until_ns, by }) => {
                let end = until_ns.map_or_else(String::new, |until| format!("-{until}"));
                format!("\"ban-{}{end}\"", by.name())
            }
        }
    }
}

/// The cause of a ban.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BanBy {
    /// An operator, by a call.
    #[default]
    Operator,
    /// The rule's penalty.
    Penalty,
    /// The key's override.
    Override,
}

impl BanBy {
    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Penalty => "penalty",
            Self::Override => "override",
        }
    }
}

/// An override that applies to a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyOverrideView {
    /// The key as in the rule: exact, or a prefix followed by `*`.
    pub pattern: String,
    /// Its kind.
    pub gives: OverrideKind,
}

/// The kind of an override.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OverrideKind {
    /// The rule's limits, scaled up or down.
    #[default]
    Scale,
    /// Other limits.
    Limits,
    /// No limits.
    Unlimited,
    /// A ban.
    Banned,
}

impl OverrideKind {
    /// Its name in answers and in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Limits => "limits",
            Self::Unlimited => "unlimited",
            Self::Banned => "banned",
        }
    }
}

/// How long a bucket counts as refusing after a refusal.
pub const REFUSING_FOR: Nanos = Nanos::from_secs(10);

/// The state of a bucket; also the `state` filter. The first of these that applies, from the last one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BucketState {
    /// Nothing is taken.
    #[default]
    Idle,
    /// Something is taken.
    Busy,
    /// Requests wait for their turn.
    Held,
    /// A request was refused within [`REFUSING_FOR`], or the rule's `on_outage` refuses all.
    Refusing,
    /// Refused until a time, whatever its level.
    Banned,
}

impl BucketState {
    /// All names, as in requests.
    pub const NAMES: [&'static str; 5] = ["idle", "busy", "held", "refusing", "banned"];
    /// All states, by rising weight.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Busy,
        Self::Held,
        Self::Refusing,
        Self::Banned,
    ];

    /// The name in requests and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Held => "held",
            Self::Refusing => "refusing",
            Self::Banned => "banned",
        }
    }
}

/// The state of one limit in a bucket, as of `now_ns` of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    /// Its name.
    pub name: String,
    /// Its algorithm.
    pub algorithm: String,
    /// Maximum amount that it holds, in cost units.
    pub capacity: u64,
    /// The long-term rate, as in rule files: `30/m`; empty if time alone gives nothing back.
    pub rate: String,
    /// The cost units taken, rounded up; above the capacity while requests are held.
    #[serde(default)]
    pub used: u64,
    /// The cost units left.
    pub remaining: u64,
    /// The time until a request of the rule's cost is admitted; `null` if it is admitted now or never, or
    /// if the time is unknown.
    pub retry_after_ns: Option<u64>,
    /// The time until nothing is taken.
    pub reset_after_ns: u64,
    /// The time that a used-up limit takes until nothing is taken.
    pub drain_ns: u64,
    /// True if the level falls steadily, so that `reset_after_ns / drain_ns` is the level as a fraction, at
    /// any time; otherwise it is `used / capacity` until the reset.
    #[serde(default = "drains")]
    pub drains: bool,
}

/// The default, since all limits drained before the field existed.
const fn drains() -> bool {
    true
}

impl LimitView {
    /// The view of a limit with its used units and its current decision.
    pub fn new(limit: &Limit, used: u64, now: &Decision, retry_after: Option<Nanos>) -> Self {
        let algorithm = limit.algorithm();
        Self {
            name: limit.name().to_owned(),
            algorithm: algorithm.name().to_owned(),
            capacity: now.capacity,
            rate: algorithm
                .rate()
                .map_or_else(String::new, |rate| rate.to_string()),
            used,
            remaining: now.remaining,
            retry_after_ns: retry_after.map(Nanos::get),
            reset_after_ns: now.reset_after.get(),
            drain_ns: algorithm.drain_time().get(),
            drains: algorithm.drains(),
        }
    }

    /// The level `age_ns` after `now_ns` of the answer, as a fraction: numerator and denominator.
    pub const fn level(&self, age_ns: u64) -> (u64, u64) {
        let left = self.reset_after_ns.saturating_sub(age_ns);
        if self.drains {
            (left, self.drain_ns)
        } else if left == 0 {
            (0, self.capacity)
        } else {
            (self.used, self.capacity)
        }
    }
}
