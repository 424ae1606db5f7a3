//! `GET /v1/buckets` and `GET /v1/buckets/{rule}/{key}`.

use loudou_limiter::{Decision, Limit, Limits, Nanos, Numbers, RequestNumbers};
use loudou_store::Outage;
use serde::{Deserialize, Serialize};

/// A page of live buckets. The filter limits the work per page, so even a page with a `next_cursor` may contain few or
/// no buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BucketsPage {
    /// Unique name of the Envoy process, as in [`crate::Status::instance`].
    #[serde(default)]
    pub instance: String,
    /// Time at which the page was read, on the server's monotonic clock.
    pub now_ns: u64,
    /// Generation number of the rules.
    pub generation: u64,
    /// Buckets, in no particular order.
    pub buckets: Vec<BucketView>,
    /// Value to pass as the `cursor` parameter to get the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of pages in the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages: u32,
    /// Number of store pages searched so far, including pages read by earlier calls of the same search.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pages_done: u32,
    /// How long the client should wait before requesting the next page, so that searches do not slow down the data
    /// path.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait_ns: u64,
}

/// A [`BucketsPage`] without its buckets. The filter serializes each bucket as soon as it is found, so that
/// serialization time counts towards the page's work limit.
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
    /// Returns the page as JSON. `buckets` contains the buckets as JSON, separated by commas.
    pub fn with_buckets(&self, buckets: &[u8]) -> Vec<u8> {
        let mut page = serde_json::to_vec(self).unwrap_or_default();
        // Removes the closing brace, appends the buckets, and closes the object again.
        page.pop();
        page.extend_from_slice(b",\"buckets\":[");
        page.extend_from_slice(buckets);
        page.extend_from_slice(b"]}");
        page
    }
}

/// Body of `POST /v1/buckets`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BucketNames {
    /// Rule and key of each bucket, at most [`crate::MAX_READ`] pairs.
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub buckets: Vec<(String, String)>,
}

/// A bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BucketView {
    /// Name of the rule.
    pub rule: String,
    /// Key in printable ASCII; all other bytes are written as `%XX`. If the store has lost the key's text, this is `#`
    /// followed by hexadecimal digits.
    pub key: String,
    /// The bucket's limits, in the same order as in the rule.
    pub limits: Vec<LimitView>,
    /// Index in `limits` of the limit that would refuse the next request or, if none would, of the limit closest to a
    /// refusal.
    pub reported: usize,
    /// Requests admitted since the bucket was created.
    pub admitted: u64,
    /// Requests refused since the bucket was created. In shadow mode, this counts the requests that would have been
    /// refused.
    pub refused: u64,
    /// Time of the last refusal, on the server's monotonic clock. It may be up to a quarter of a second too early.
    /// Absent if no request was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_at_ns: Option<u64>,
    /// Start of the current run of refusals. Within a run, successive refusals are at most 60 s apart, even if requests
    /// in between are admitted. Absent if the last refusal is more than 60 s ago. Also absent while in-flight requests
    /// hold permits, because the store then records only the time of the last refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since_ns: Option<u64>,
    /// True if the rule is in shadow mode or off. In that case, requests counted as refused were actually let through.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shadow: bool,
    /// When the bucket was last touched, on the server's monotonic clock.
    pub last_seen_ns: u64,
    /// State of the bucket.
    pub state: BucketState,
    /// Ban in effect, if the key is banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanView>,
    /// If `ban` comes from an override, the operator or penalty ban that is also in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_ban: Option<BanView>,
    /// Number of refusals that count towards the rule's penalty.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strikes: u32,
    /// Number of penalty bans that still count. Each of these bans makes the next penalty ban longer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub penalties: u32,
    /// This Envoy's lease, if the limits are shared by a fleet of Envoys. In that case, `limits` describes the
    /// fleet-wide limits as reported by the engine at `heard_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// Decision that replaces the lease while the relay or its engine is not responding. With `local`, `limits`
    /// describes this Envoy's share of the limits. Otherwise, `limits` describes the fleet-wide limits as last
    /// reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageView>,
    /// Override that applies to the key.
    #[serde(default, rename = "override", skip_serializing_if = "Option::is_none")]
    pub own: Option<KeyOverrideView>,
    /// Capacities and rate amounts carried in the metadata of the key's last request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<BroughtView>,
}

/// An Envoy's lease of tokens from fleet-wide limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseView {
    /// Units that this Envoy may admit without calling the relay.
    pub tokens: u64,
    /// Units that remained for all Envoys when the engine last responded: one number per limit, in the same order as
    /// the limits.
    pub left: Vec<u64>,
    /// When this Envoy sent the most recent call that the engine answered, on the server's monotonic clock.
    pub heard_ns: u64,
    /// Units that this Envoy admitted on credit and that the engine has not charged yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub debt: u64,
    /// Time until which this Envoy refuses requests without calling the relay, because the engine had no units left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_until_ns: Option<u64>,
}

/// Decision made while the relay or its engine is not responding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "decides")]
pub enum OutageView {
    /// A local bucket makes the decision, using this Envoy's share of the limits.
    Local {
        /// Number of Envoys that the limits are divided by.
        envoys: u32,
    },
    /// Every request is admitted.
    Admit,
    /// Every request is refused.
    Refuse,
}

impl OutageView {
    /// Returns the name used in responses, which is also the value of `on_outage` in rule files.
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
    /// Returns the ban that an operator or a penalty has imposed on the key. This ban can be replaced by another ban or
    /// lifted by an unban. Bans imposed by overrides are ignored.
    pub fn imposed(&self) -> Option<BanView> {
        let ban = self.ban.filter(|ban| ban.by != BanBy::Override);
        ban.or(self.hidden_ban)
    }
}

/// A ban in effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BanView {
    /// End of the ban, on the server's monotonic clock. `null` if the ban has no end.
    pub until_ns: Option<u64>,
    /// Cause of the ban.
    pub by: BanBy,
}

impl BanView {
    /// Returns the `ETag` of the ban imposed on a key. Calls that ban or unban the key send this tag as `If-Match`.
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

/// Cause of a ban.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BanBy {
    /// An operator's call.
    #[default]
    Operator,
    /// The rule's penalty.
    Penalty,
    /// The key's override.
    Override,
}

impl BanBy {
    /// Returns the name used in responses.
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
    /// Pattern in the rule: an exact key, or a prefix followed by `*`.
    pub pattern: String,
    /// Kind of override.
    pub gives: OverrideKind,
}

/// Kind of an override.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OverrideKind {
    /// The rule's limits, scaled up or down.
    #[default]
    Scale,
    /// Limits that replace the rule's limits.
    Limits,
    /// No limits.
    Unlimited,
    /// A ban.
    Banned,
}

impl OverrideKind {
    /// Returns the name used in responses and rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Limits => "limits",
            Self::Unlimited => "unlimited",
            Self::Banned => "banned",
        }
    }
}

/// How long a bucket stays [`BucketState::Refusing`] after a refusal.
pub const REFUSING_FOR: Nanos = Nanos::from_secs(10);

/// State of a bucket, also used as the `state` filter of searches. If several states apply, the last applicable variant
/// is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BucketState {
    /// All units are available.
    #[default]
    Idle,
    /// Some units are in use.
    Busy,
    /// At least one request is being held.
    Held,
    /// A request was refused within [`REFUSING_FOR`], or the rule's `on_outage` refuses all requests.
    Refusing,
    /// The key is banned, so requests are refused regardless of the limits.
    Banned,
}

impl BucketState {
    /// Names of all states, as used in requests.
    pub const NAMES: [&'static str; 5] = ["idle", "busy", "held", "refusing", "banned"];
    /// All states. The states are listed in increasing order of precedence.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Busy,
        Self::Held,
        Self::Refusing,
        Self::Banned,
    ];

    /// Returns the name used in requests and responses.
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

/// Numbers for one limit, as carried in the metadata of a key's last request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BroughtView {
    /// Name of the limit.
    pub limit: String,
    /// Capacity of the limit. Absent if the request did not carry it, in which case the default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Amount of the limit's rate. Absent if the request did not carry it, in which case the default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<u32>,
}

impl BroughtView {
    /// Decodes the `numbers` stored in a bucket. `template` contains the rule's limits before a request's numbers are
    /// filled in.
    pub fn of(template: &Limits, numbers: &[u64]) -> Vec<Self> {
        let some = |number: u32| Some(number).filter(|number| *number > 0);
        let view = |(limit, word): (&Limit, &u64)| {
            let RequestNumbers { capacity, amount } = RequestNumbers::of_word(*word);
            Self {
                limit: limit.name().to_owned(),
                capacity: some(capacity),
                amount: some(amount),
            }
        };
        sourced(template).zip(numbers).map(view).collect()
    }

    /// Encodes `views` for storage in a bucket.
    pub fn stored(template: &Limits, views: &[Self]) -> Numbers {
        let word = |limit: &Limit| {
            let view = views.iter().find(|view| view.limit == limit.name());
            let number = |of: fn(&Self) -> Option<u32>| view.and_then(of).unwrap_or(0);
            let capacity = number(|view| view.capacity);
            let amount = number(|view| view.amount);
            RequestNumbers { capacity, amount }.to_word()
        };
        sourced(template).map(word).collect()
    }
}

/// Returns the limits whose numbers each request carries in its metadata.
fn sourced(template: &Limits) -> impl Iterator<Item = &Limit> {
    template.iter().filter(|limit| limit.sources().is_some())
}

/// State of a limit in a bucket at the response's `now_ns`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LimitView {
    /// Name of the limit.
    pub name: String,
    /// Algorithm of the limit.
    pub algorithm: String,
    /// Capacity, in cost units.
    pub capacity: u64,
    /// Long-term rate in rule-file notation, such as `30/m`. Empty if units are not returned over time.
    pub rate: String,
    /// Cost units in use, rounded up. This number exceeds the capacity while requests are being held.
    #[serde(default)]
    pub used: u64,
    /// Cost units left.
    pub remaining: u64,
    /// Time until a request with the rule's cost would be admitted. `null` if the request would be admitted now or
    /// never, or if the time is unknown.
    pub retry_after_ns: Option<u64>,
    /// Time until all units are available again.
    pub reset_after_ns: u64,
    /// Time until all units are available again if the limit is completely used up.
    pub drain_ns: u64,
    /// True if the level falls steadily, so that `reset_after_ns / drain_ns` is always the fraction of the limit in
    /// use. Otherwise, the level stays at `used / capacity` until the reset.
    #[serde(default = "drains")]
    pub drains: bool,
}

/// Default value of `drains`. Filters that do not send this field only have limits whose level falls steadily.
const fn drains() -> bool {
    true
}

impl LimitView {
    /// Creates the view of a limit from its units in use and its current decision.
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

    /// Returns the level `age_ns` after the response's `now_ns`, as the numerator and denominator of a fraction.
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
