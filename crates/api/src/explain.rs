//! `POST /v1/explain`: the decision on a request, rule by rule. Nothing is taken.
//!
//! The body is a request in the form that `loudou_rules::config::parse_sample` reads.

use loudou_limiter::{Nanos, Verdict};
use loudou_rules::evaluate::{Answer, RuleOutcome};
use loudou_rules::explain::{Allowance, Explanation, LimitExplained, RuleExplained, Standing};
use loudou_rules::rule::{Failing, Found, Missing, Repeated};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_store::GaveUp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bucket::{LimitView, OutageView};

/// The decision on a request, explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainAnswer {
    /// The server's clock.
    pub now_ns: u64,
    /// The generation of the rules.
    pub generation: u64,
    /// `admit`, `hold` or `refuse`.
    pub verdict: Says,
    /// The time that it would be held.
    pub wait_ns: u64,
    /// The rule that would refuse it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_by: Option<String>,
    /// Every rule, in order of evaluation.
    pub rules: Vec<ExplainedRule>,
}

/// The verdict of a rule or a limit on a request, or the reason why there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// It admits the request.
    Admit,
    /// It admits the request after a wait.
    Hold,
    /// It refuses the request; in shadow mode it would.
    Refuse,
    /// The request has no key, and the rule does not apply.
    Skip,
    /// The rule does not match.
    NoMatch,
    /// The rule is off.
    Off,
    /// The rule matches, but its `when` does not apply now.
    NotNow,
    /// An earlier rule has `stop`, so this one is not evaluated.
    Stopped,
    /// An earlier rule has refused the request.
    NotAsked,
    /// A verdict that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Says {
    /// The name in answers.
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

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedRule {
    /// Its name.
    pub rule: String,
    /// `enforce`, `shadow` or `off`.
    pub mode: String,
    /// Its verdict.
    pub says: Says,
    /// It admits the request, but a later enforced rule refuses it, so its units are given back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overruled: bool,
    /// The earlier rule because of which it is not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Why a request that would have to wait is refused instead: `deadline` or `waiting_full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_held: Option<String>,
    /// Why the store gave up; the rule's `on_error` applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first part of its match that the request does not meet; absent if the rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<UnmetPart>,
    /// The part of its match whose value is too long to tell, if the rule applies nevertheless, by its
    /// `on_long_value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_long: Option<UnmetPart>,
    /// The first part of its key that the request lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<UnmetPart>,
    /// The first part of its key that the request has several times; `found` has the values, joined with
    /// commas. The first one is the key, unless the rule refuses such requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<UnmetPart>,
    /// The key of the request, if the rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The cost that the rule charges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The cost of the request is invalid, and the default is charged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub invalid_cost: bool,
    /// The key has no limits here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unlimited: bool,
    /// The ban of the key, which takes precedence over its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<ExplainedBan>,
    /// The index in `limits` of the one that refuses or is nearest to it.
    #[serde(default)]
    pub reported: usize,
    /// As [`crate::BucketView::outage`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageView>,
    /// The limits of the bucket, in the rule's order, if the request has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ExplainedLimit>,
}

/// A ban that is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedBan {
    /// The time until it ends; absent if it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_ns: Option<u64>,
}

/// A part of a rule that a request does not have, or has several times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnmetPart {
    /// Its path in the rule: `match.headers[1]`, `key[0]`.
    pub place: String,
    /// The required value, as in a rule file.
    pub asked: Value,
    /// The value in the request, bytes that are no UTF-8 as `\xNN`, cut after 200 characters. Absent if
    /// there is none, and for `match.not`, where the request has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// If the value is longer than the regular expression tests: the longest value that it tests, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<u64>,
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExplainedLimit {
    /// Its current state. `retry_after_ns` is for this request.
    pub now: LimitView,
    /// Its verdict; if the rule is not evaluated, the verdict that it would give.
    pub says: Says,
    /// The cost units that would be left.
    pub remaining: u64,
    /// The time that it would hold the request.
    pub wait_ns: u64,
    /// The time until it would then be full again.
    pub reset_after_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl ExplainAnswer {
    /// The explanation of a request by `rules`, as of `now`.
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
    /// The view of a rule without its outcome.
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
        Self {
            rule: rule.name.clone(),
            mode: rule.mode.name().to_owned(),
            failing: explained.failing.as_ref().map(UnmetPart::from),
            too_long: explained.too_long.as_ref().map(UnmetPart::from),
            missing: explained.missing.as_ref().map(UnmetPart::from),
            repeated: explained.repeated.as_ref().map(UnmetPart::from),
            key: explained.key.clone(),
            cost: explained.price.map(|price| price.cost),
            invalid_cost: explained.price.is_some_and(|price| price.is_invalid),
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

    /// Adds its outcome.
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
