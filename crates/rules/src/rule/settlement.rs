//! Computes costs that are known only once a request has ended. A request reserves a cost when it arrives. When the
//! request ends, its actual cost replaces the reservation.
//!
//! The actual cost comes from the first source in a list that provides a valid number. A number reported by the
//! upstream is final only if the response is complete, because the report in an incomplete response may itself be
//! incomplete. A number measured by Envoy itself is valid for any response. If no source provides a number, the request
//! costs its entire reservation. A request costs nothing if no upstream received it, or if no source provides a number
//! and the upstream responded with an error.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use loudou_limiter::bounds::MAX_AMOUNT;
use loudou_limiter::{Decimal, Nanos};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::cost::{Price, whole};
use crate::numbers::is_huge;
use crate::request::Request;
use crate::usage::TokenUsage;

/// A cost that is reserved when a request arrives, and settled when the request ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settlement {
    /// Sources of the reservation, in order of precedence. The first valid number is used.
    pub reserve: Vec<Reserve>,
    /// Sources of the actual cost, in order of precedence. When a request ends, the first valid number is used.
    pub settle: Vec<Usage>,
    /// Cost of a token of each kind.
    #[serde(skip_serializing_if = "Weights::is_default")]
    pub weights: Weights,
    /// Maximum reservation. A request for which no source provides a number reserves the maximum.
    pub max: u32,
    /// True if a request with an incomplete response may cost more than it reserved.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub beyond_reservation: bool,
}

/// A source of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reserve {
    /// The value of the request header with this lower-case name.
    Header(String),
    /// The value at a path in the dynamic metadata.
    Metadata(Vec<String>),
    /// One unit per this many bytes of content length, rounded up.
    RequestBytes(u32),
    /// A fixed cost. If it is 0, a request takes nothing until it ends, but is admitted only if a unit is available.
    #[serde(untagged)]
    Fixed(u32),
}

/// A source of the actual cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// The record in which Envoy's `ai_protocol_manager` filter counts the tokens of a response.
    TokenUsage,
    /// The value at a path in the dynamic metadata.
    Metadata(Vec<String>),
    /// The value of the response header with this lower-case name.
    ResponseHeader(String),
    /// One unit per this many bytes of the response body, rounded up.
    ResponseBytes(u32),
    /// One unit per this much time that the request takes, rounded up.
    Duration(Nanos),
    /// A cost for each response status.
    Status(StatusCosts),
}

/// Cost of a token of each kind, in cost units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Weights {
    /// Cost of a request token.
    pub input: Decimal,
    /// Cost of a response token.
    pub output: Decimal,
    /// Cost of a request token that the upstream read from its cache.
    pub cached: Decimal,
    /// Weights of individual models, by model name or by a prefix followed by `*`. The `models` field of these weights
    /// is empty.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_map")]
    pub models: Vec<(String, Self)>,
}

fn as_map<S: Serializer>(models: &[(String, Weights)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(models.iter().map(|(name, weights)| (name, weights)))
}

impl Default for Weights {
    fn default() -> Self {
        let one = Decimal::from_thousandths(1_000);
        Self {
            input: one,
            output: one,
            cached: one,
            models: Vec::new(),
        }
    }
}

impl Weights {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the weights of a model. An exact name takes precedence over prefixes, and a longer prefix over a shorter
    /// one. Returns `None` if the model has no weights of its own.
    fn of(&self, model: &[u8]) -> Option<&Self> {
        let mut found: Option<(&str, &Self)> = None;
        for (name, weights) in &self.models {
            match name.strip_suffix('*') {
                None if name.as_bytes() == model => return Some(weights),
                Some(prefix)
                    if model.starts_with(prefix.as_bytes())
                        && found.is_none_or(|(other, _)| other.len() < prefix.len()) =>
                {
                    found = Some((prefix, weights));
                }
                _ => {}
            }
        }
        found.map(|(_, weights)| weights)
    }

    /// Returns the cost of a request's tokens, rounded up.
    fn cost(&self, usage: &TokenUsage<'_>) -> u64 {
        let cached = usage.cached.min(usage.input);
        let part = |tokens: u64, weight: Decimal| {
            u128::from(tokens).saturating_mul(weight.thousandths().into())
        };
        let thousandths = part(usage.input.saturating_sub(cached), self.input)
            .saturating_add(part(cached, self.cached))
            .saturating_add(part(usage.output, self.output));
        u64::try_from(thousandths.div_ceil(1_000)).unwrap_or(u64::MAX)
    }
}

/// Costs by response status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusCosts {
    /// Costs of individual status codes, which take precedence over the costs of their classes.
    pub codes: Vec<(u16, u32)>,
    /// Costs of status classes, by first digit: 2 for `2xx`.
    pub classes: Vec<(u16, u32)>,
}

impl StatusCosts {
    fn cost(&self, status: u16) -> Option<u32> {
        let find = |costs: &[(u16, u32)], key: u16| {
            let mut costs = costs.iter();
            costs.find(|(own, _)| *own == key).map(|(_, cost)| *cost)
        };
        find(&self.codes, status).or_else(|| find(&self.classes, status.div_euclid(100)))
    }

    /// Returns the largest cost in the table.
    fn largest(&self) -> u32 {
        let all = self.codes.iter().chain(&self.classes);
        all.map(|(_, cost)| *cost).max().unwrap_or(0)
    }
}

impl Serialize for StatusCosts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        for (code, cost) in &self.codes {
            fields.serialize_entry(&format!("{code}"), cost)?;
        }
        for (class, cost) in &self.classes {
            fields.serialize_entry(&format!("{class}xx"), cost)?;
        }
        fields.end()
    }
}

/// Data of a completed request, from which its actual cost is computed.
pub trait Ended {
    /// Returns how the request ended.
    fn end(&mut self) -> End;
    /// Returns the status of the upstream's response, if there was one.
    fn status(&mut self) -> Option<u16>;
    /// Returns the serialised `envoy.ai.token_usage` message.
    fn token_usage(&mut self) -> Option<Cow<'_, [u8]>>;
    /// Returns the value at a path in the dynamic metadata.
    fn metadata(&mut self, path: &[String]) -> Option<Cow<'_, [u8]>>;
    /// Returns the value of a header in the upstream's response.
    fn response_header(&mut self, name: &str) -> Option<Cow<'_, [u8]>>;
    /// Returns the number of body bytes sent to the client, if known.
    fn response_bytes(&mut self) -> Option<u64>;
    /// Returns the time that the request took, if known.
    fn duration(&mut self) -> Option<Nanos>;
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The upstream's response is complete.
    Whole,
    /// An upstream received the request, but its response is missing or incomplete.
    Cut,
    /// No upstream received the request.
    Unsent,
}

/// Actual cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Actual cost, in cost units.
    pub actual: u64,
    /// Origin of this cost.
    pub by: SettledBy,
    /// True if the rule has weights for individual models, but none for the model that processed the request.
    pub is_other_model: bool,
}

/// Origin of a request's actual cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// One of the rule's sources provided a number for a complete response.
    Report,
    /// The cost is an estimate, because no source provided a final number.
    Estimate,
    /// The request cost nothing, because no upstream received it or because the upstream responded with an error.
    Nothing,
}

impl Settlement {
    /// Returns the cost reserved for a request.
    pub(super) fn price(&self, request: &mut dyn Request) -> Price {
        let max = u64::from(self.max);
        let (mut is_invalid, mut reserved) = (false, None);
        for source in &self.reserve {
            let found = match source {
                Reserve::Fixed(cost) => {
                    let cost = u64::from(*cost).min(max);
                    return Price { cost, is_invalid };
                }
                Reserve::Header(name) => request.header(name).map(|value| amount(&value)),
                Reserve::Metadata(path) => request.metadata(path).map(|value| amount(&value)),
                Reserve::RequestBytes(bytes) => request.header("content-length").map(|length| {
                    whole(length.trim_ascii()).map(|length| parts(length, (*bytes).into()))
                }),
            };
            match found {
                Some(Some(found)) => {
                    reserved = Some(found);
                    break;
                }
                Some(None) => is_invalid = true,
                None => {}
            }
        }
        let cost = reserved.map_or(max, |reserved| reserved.clamp(1, max));
        Price { cost, is_invalid }
    }

    /// Returns the smallest reservation. Only fixed reservations can be 0.
    pub fn least(&self) -> u32 {
        match self.reserve.as_slice() {
            [Reserve::Fixed(cost), ..] => (*cost).min(self.max),
            _ => self.usual().min(1),
        }
    }

    /// Returns the reservation for a request whose headers, metadata and content length provide no number.
    pub(super) fn usual(&self) -> u32 {
        let fixed = self.reserve.iter().find_map(|source| match source {
            Reserve::Fixed(cost) => Some(*cost),
            _ => None,
        });
        fixed.map_or(self.max, |cost| cost.min(self.max))
    }

    /// Returns true if a request may cost more than it reserved.
    pub fn may_owe(&self) -> bool {
        self.settle.iter().any(|source| match source {
            Usage::Status(costs) => costs.largest() > self.least(),
            _ => true,
        })
    }

    /// Returns the names of the response headers on which the cost may depend.
    pub fn response_headers(&self) -> impl Iterator<Item = &str> {
        self.settle.iter().filter_map(|source| match source {
            Usage::ResponseHeader(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns the actual cost of a request that has reserved `reserved` units.
    pub fn settle(&self, reserved: u64, ended: &mut dyn Ended) -> Settled {
        let mut is_other_model = false;
        let (actual, by) = self.cost(reserved, ended, &mut is_other_model);
        Settled {
            actual,
            by,
            is_other_model,
        }
    }

    fn cost(
        &self,
        reserved: u64,
        ended: &mut dyn Ended,
        is_other_model: &mut bool,
    ) -> (u64, SettledBy) {
        let end = ended.end();
        let nothing = (0, SettledBy::Nothing);
        if end == End::Unsent {
            return nothing;
        }
        let mut at_least = 0;
        for source in &self.settle {
            match self.read(source, ended, is_other_model) {
                Some(Reading::Exact(actual)) if end == End::Whole => {
                    return (actual, SettledBy::Report);
                }
                Some(Reading::Measured(actual)) if end == End::Whole => {
                    return (actual.max(at_least), SettledBy::Report);
                }
                Some(Reading::Measured(actual)) => {
                    return self.estimate(reserved, actual.max(at_least));
                }
                Some(Reading::Exact(actual) | Reading::AtLeast(actual)) => {
                    at_least = at_least.max(actual);
                }
                None => {}
            }
        }
        if end == End::Whole && ended.status().is_some_and(|status| status >= 400) {
            return nothing;
        }
        self.estimate(reserved, reserved.max(at_least))
    }

    /// Returns an estimated cost, which is at most the reservation unless the rule allows more.
    fn estimate(&self, reserved: u64, cost: u64) -> (u64, SettledBy) {
        let actual = if self.beyond_reservation {
            cost
        } else {
            cost.min(reserved)
        };
        (actual, SettledBy::Estimate)
    }

    /// Reads a source. Returns `None` if the source provides no valid number for this request.
    fn read(
        &self,
        source: &Usage,
        ended: &mut dyn Ended,
        is_other_model: &mut bool,
    ) -> Option<Reading> {
        Some(match source {
            Usage::TokenUsage => {
                let record = ended.token_usage()?;
                let usage = TokenUsage::parse(&record)?;
                let own = self.weights.of(usage.model);
                *is_other_model = own.is_none() && !self.weights.models.is_empty();
                let cost = own.unwrap_or(&self.weights).cost(&usage);
                let cost = cost.min(MAX_AMOUNT.into());
                if usage.is_complete {
                    Reading::Exact(cost)
                } else {
                    Reading::AtLeast(cost)
                }
            }
            Usage::Metadata(path) => Reading::Exact(amount(&ended.metadata(path)?)?),
            Usage::ResponseHeader(name) => Reading::Exact(amount(&ended.response_header(name)?)?),
            Usage::ResponseBytes(bytes) => {
                Reading::Measured(parts(ended.response_bytes()?, (*bytes).into()))
            }
            Usage::Duration(span) => Reading::Measured(parts(ended.duration()?.get(), span.get())),
            Usage::Status(costs) => Reading::Measured(costs.cost(ended.status()?)?.into()),
        })
    }
}

/// Cost according to a source.
enum Reading {
    /// A cost that is final if the response is complete.
    Exact(u64),
    /// The cost of the part of a response that was counted. The total cost may be higher.
    AtLeast(u64),
    /// A cost measured by Envoy itself. It is valid even if the response is incomplete.
    Measured(u64),
}

/// Returns the number of chunks of `size` in `of`, rounded up, but at most [`MAX_AMOUNT`].
fn parts(of: u64, size: u64) -> u64 {
    of.div_ceil(size.max(1)).min(MAX_AMOUNT.into())
}

/// Parses an unsigned number and rounds it up to a whole number. Caps larger numbers at [`MAX_AMOUNT`].
fn amount(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let most = u64::from(MAX_AMOUNT);
    if is_huge(value) {
        return Some(most);
    }
    let point = value.iter().position(|byte| *byte == b'.');
    let (digits, fraction) = match point.and_then(|point| value.split_at_checked(point)) {
        Some((digits, fraction)) => (digits, fraction.get(1..).unwrap_or_default()),
        None => (value, &b"0"[..]),
    };
    let more = u64::from(whole(fraction)? > 0);
    Some(whole(digits)?.saturating_add(more).min(most))
}
