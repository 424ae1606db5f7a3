//! `POST /v1/explain` explains the decision on a request, rule by rule. Explaining a request does
//! not consume any units.
//!
//! The body is a request in the format parsed by `loudou_rules::config::parse_sample`.

use loudou_limiter::{Limits, Nanos, Verdict};
use loudou_rules::evaluate::{Answer, RuleOutcome};
use loudou_rules::explain::{Allowance, Explanation, LimitExplained, RuleExplained, Standing};
use loudou_rules::numbers::{FoundNumber, FoundNumbers};
use loudou_rules::rule::{Failing, Found, Missing, Repeated};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_store::GaveUp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bucket::{LimitView, OutageView};

/// Explanation of the decision on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainAnswer {
    /// Current time on the server's monotonic clock.
    pub now_ns: u64,
    /// Generation number of the rules.
    pub generation: u64,
    /// `admit`, `hold` or `refuse`.
    pub verdict: Says,
    /// How long the request would be held.
    pub wait_ns: u64,
    /// Rule that would refuse the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<String>,
    /// All rules, in evaluation order.
    pub rules: Vec<ExplainedRule>,
}

/// A rule's or limit's verdict on a request, or the reason why there is no verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// The rule or limit admits the request.
    Admit,
    /// The rule or limit admits the request after holding it.
    Hold,
    /// The rule or limit refuses the request. A rule in shadow mode would refuse the request if the
    /// rule were enforced.
    Refuse,
    /// The request has no key, so the rule does not apply.
    Skip,
    /// The rule does not match.
    NoMatch,
    /// The rule is off.
    Off,
    /// The rule matches, but its `when` condition is not currently met.
    NotNow,
    /// An earlier rule with `stop` ended the evaluation, so this rule is not evaluated.
    Stopped,
    /// An earlier rule has refused the request, so this rule is not evaluated.
    NotAsked,
    /// A verdict that this version does not support.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Says {
    /// Returns the name used in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Hold => "hold",
            Self::Refuse => "refuse",
            Self::Skip => "skip",
            Self::NoMatch => "no_match",
            Self::Off => "off",
            Self::NotNow => "not_now",
            Self::Stopped => "stopped",
            Self::NotAsked => "not_asked",
            Self::Unknown => "unknown",
        }
    }
}

/// Explanation of one rule's verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedRule {
    /// Name of the rule.
    pub rule: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Verdict of the rule.
    pub says: Says,
    /// True if the rule admits the request, but a later enforced rule refuses it, so the units are given back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overruled: bool,
    /// Earlier rule that prevents the evaluation of this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Reason why the request is refused instead of held: `deadline` or `waiting_full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_held: Option<String>,
    /// Error that prevented the bucket from deciding. After a store error, the rule's `on_error`
    /// applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// First condition in the rule's `match` that the request does not meet. Absent if the rule
    /// matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<UnmetPart>,
    /// Condition in the rule's `match` whose value is too long for the regular expression, if the rule applies anyway
    /// because of its `on_long_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_long: Option<UnmetPart>,
    /// First part of the rule's key that is missing from the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<UnmetPart>,
    /// First part of the rule's key for which the request has more than one value. `found` contains the comma-separated
    /// values. The first value is used as the key, unless the rule refuses requests with several values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<UnmetPart>,
    /// Key of the request, if the rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Cost that the rule charges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// Units that the rule reserves instead of charging `cost`, if the cost is known only once the
    /// request has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<u64>,
    /// True if the request carries an invalid cost, so that either the default cost or a cost from
    /// another source is charged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub invalid_cost: bool,
    /// Numbers for the key's limits, as carried in the request's metadata.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<ExplainedNumber>,
    /// True if the key has no limits in this rule.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unlimited: bool,
    /// The key's ban, which takes precedence over its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<ExplainedBan>,
    /// Index in `limits` of the limit that refuses the request or, if none does, of the limit
    /// closest to a refusal.
    #[serde(default)]
    pub reported: usize,
    /// Decision during an outage, as in [`crate::BucketView::outage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageView>,
    /// The bucket's limits, in the same order as in the rule. Empty if the request has no bucket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ExplainedLimit>,
}

/// A number that each request carries in its metadata and that sets a field of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedNumber {
    /// Name of the limit.
    pub limit: String,
    /// Field that the number sets: `capacity`, or the `amount` of the rate.
    pub field: String,
    /// Path to the number in the metadata.
    pub metadata: Vec<String>,
    /// Number that applies, before any scaling by an override.
    pub number: u32,
    /// Reason this number applies.
    pub origin: NumberOrigin,
}

/// Reason why a number applies to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NumberOrigin {
    /// The request carries this number.
    Request,
    /// The request does not carry the metadata, so the default applies.
    Missing,
    /// The metadata is not a single whole number, so the default applies.
    Invalid,
    /// The request carries 0, so 1 applies.
    TooSmall,
    /// The request carries a number above the maximum, so the maximum applies.
    TooLarge,
    /// A reason that this version does not support.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Explains the numbers that a request carries for a rule's limits.
fn numbers(limits: &Limits, found: &[FoundNumbers]) -> Vec<ExplainedNumber> {
    let mut numbers = Vec::new();
    for found in found {
        let limit = limits.iter().nth(found.limit);
        let Some((limit, sources)) = limit.and_then(|limit| Some((limit, limit.sources()?))) else {
            continue;
        };
        let each = [
            ("capacity", &sources.capacity, found.capacity),
            ("amount", &sources.amount, found.amount),
        ];
        for (field, source, found) in each {
            if let (Some(source), Some(found)) = (source, found) {
                let (number, origin) = match found {
                    FoundNumber::Valid(number) => (number, NumberOrigin::Request),
                    FoundNumber::Missing => (source.default, NumberOrigin::Missing),
                    FoundNumber::Invalid => (source.default, NumberOrigin::Invalid),
                    FoundNumber::TooSmall => (1, NumberOrigin::TooSmall),
                    FoundNumber::TooLarge(_) => (source.max, NumberOrigin::TooLarge),
                };
                numbers.push(ExplainedNumber {
                    limit: limit.name().to_owned(),
                    field: field.to_owned(),
                    metadata: source.metadata.clone(),
                    number,
                    origin,
                });
            }
        }
    }
    numbers
}

/// A ban in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedBan {
    /// Time until the ban ends. Absent if the ban has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_ns: Option<u64>,
}

/// A condition that the request does not meet, or a part of a rule's key for which the request has no value or more
/// than one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnmetPart {
    /// Path in the rule, such as `match.headers[1]` or `key[0]`.
    pub place: String,
    /// Required value, in rule-file notation.
    pub asked: Value,
    /// Value in the request, truncated to 200 characters. Bytes that are not UTF-8 are written as `\xNN`. Absent if the
    /// request has no value. Also absent for `match.not`, which fails because the request meets all conditions of
    /// `not`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// If the value is too long, the maximum length, in bytes, that the regular expression tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<u64>,
}

/// Explanation of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedLimit {
    /// Current state of the limit. `retry_after_ns` is how long to wait before this request can be
    /// retried.
    pub now: LimitView,
    /// Verdict of the limit. If the rule is not evaluated, this is the verdict that the limit would
    /// have given.
    pub says: Says,
    /// Cost units that would remain after the request.
    pub remaining: u64,
    /// How long the limit would hold the request.
    pub wait_ns: u64,
    /// Time after the request until all units would be available again.
    pub reset_after_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl ExplainAnswer {
    /// Creates the response that explains how `rules` decide on a request at the time `now`.
    pub fn new(explained: &Explanation, rules: &RuleSet, now: Nanos, generation: u64) -> Self {
        let name = |index: usize| rules.get(index).map(|active| active.rule().name.clone());
        let outcome = &explained.outcome;
        let each = explained.rules.iter().zip(rules.iter());
        Self {
            now_ns: now.get(),
            generation,
            verdict: outcome.verdict().into(),
            wait_ns: outcome.wait().get(),
            refused_by: outcome.refusal().and_then(|one| name(one.rule)),
            rules: each
                .map(|(rule, active)| {
                    let (says, behind) = match rule.standing {
                        Standing::Asked(_) => (Says::Unknown, None),
                        Standing::Off => (Says::Off, None),
                        Standing::NotFor => (Says::NoMatch, None),
                        Standing::NotNow => (Says::NotNow, None),
                        Standing::BehindStop(by) => (Says::Stopped, name(by)),
                        Standing::BehindRefusal(by) => (Says::NotAsked, name(by)),
                    };
                    let mut view = ExplainedRule {
                        says,
                        behind,
                        ..ExplainedRule::new(rule, active, now)
                    };
                    if let Standing::Asked(place) = rule.standing
                        && let Some(one) = outcome.rules.get(place)
                    {
                        view.set_outcome(one);
                    }
                    view
                })
                .collect(),
        }
    }
}

impl ExplainedRule {
    /// Creates a rule's explanation, without its outcome.
    fn new(explained: &RuleExplained, active: &ActiveRule, now: Nanos) -> Self {
        let rule = active.rule();
        let bucket = explained.bucket.as_ref();
        let limits = bucket.into_iter();
        let limits = limits.flat_map(|bucket| bucket.of.iter().zip(&bucket.limits));
        let limits = limits.map(|(limit, explained)| {
            let LimitExplained { used, now, answer } = explained;
            ExplainedLimit {
                now: LimitView::new(limit, *used, now, answer.retry_after),
                says: answer.verdict.into(),
                remaining: answer.remaining,
                wait_ns: answer.wait.get(),
                reset_after_ns: answer.reset_after.get(),
            }
        });
        let price = explained.price.map(|price| price.cost);
        let settles = rule.cost.settlement().is_some();
        Self {
            rule: rule.name.clone(),
            mode: rule.mode.name().to_owned(),
            failing: explained.failing.as_ref().map(UnmetPart::from),
            too_long: explained.too_long.as_ref().map(UnmetPart::from),
            missing: explained.missing.as_ref().map(UnmetPart::from),
            repeated: explained.repeated.as_ref().map(UnmetPart::from),
            key: explained.key.clone(),
            cost: price.filter(|_| !settles),
            reserved: price.filter(|_| settles),
            invalid_cost: explained.price.is_some_and(|price| price.is_invalid),
            numbers: numbers(&rule.limits, &explained.numbers),
            unlimited: explained.allowance == Allowance::Unlimited,
            ban: match explained.allowance {
                Allowance::Banned(ban) => Some(ExplainedBan {
                    lasts_ns: ban.lasts(now).map(Nanos::get),
                }),
                Allowance::Limits | Allowance::Unlimited => None,
            },
            reported: bucket.map_or(0, |bucket| bucket.reported),
            outage: bucket.and_then(|bucket| bucket.outage).map(Into::into),
            limits: limits.collect(),
            ..Self::default()
        }
    }

    /// Sets the rule's outcome.
    fn set_outcome(&mut self, outcome: &RuleOutcome) {
        self.overruled = outcome.overruled;
        self.not_held = outcome.not_held.map(|reason| reason.name().to_owned());
        self.says = match &outcome.answer {
            Answer::Decided(decision) => decision.verdict().into(),
            Answer::Unlimited => Says::Admit,
            Answer::Skipped => Says::Skip,
            Answer::KeyMissing
            | Answer::KeyAmbiguous
            | Answer::ValueTooLong
            | Answer::Banned(_) => Says::Refuse,
            Answer::Outage => {
                self.error = Some("the fleet's relay or engine does not answer".to_owned());
                Says::Refuse
            }
            Answer::GaveUp(why) => {
                self.error = Some(in_words(*why).to_owned());
                if outcome.refuses() {
                    Says::Refuse
                } else {
                    Says::Admit
                }
            }
        };
    }
}

const fn in_words(why: GaveUp) -> &'static str {
    match why {
        GaveUp::Conflicts => "the bucket is too busy",
        GaveUp::Failed => "the store failed",
        GaveUp::UnknownPage => "another version of Loudou wrote the bucket",
        GaveUp::PageFull => "the store is full",
        GaveUp::Outdated => "the rule has just changed",
    }
}

impl From<Verdict> for Says {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Admit => Self::Admit,
            Verdict::Hold => Self::Hold,
            Verdict::Refuse => Self::Refuse,
        }
    }
}

impl From<&Failing> for UnmetPart {
    fn from(failing: &Failing) -> Self {
        Self {
            place: failing.place.clone(),
            asked: failing.asked.clone(),
            found: text(&failing.found),
            longest: failing.longest.and_then(|longest| longest.try_into().ok()),
        }
    }
}

impl From<&Repeated> for UnmetPart {
    fn from(repeated: &Repeated) -> Self {
        Self {
            place: repeated.place.clone(),
            asked: repeated.asked.clone(),
            found: text(&repeated.values),
            longest: None,
        }
    }
}

fn text(found: &Found) -> Option<String> {
    match found {
        Found::Text(text) => Some(text.clone()),
        Found::Nothing | Found::AllOfIt => None,
    }
}

impl From<&Missing> for UnmetPart {
    fn from(missing: &Missing) -> Self {
        Self {
            place: missing.place.clone(),
            asked: missing.asked.clone(),
            ..Self::default()
        }
    }
}
