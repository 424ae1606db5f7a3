//! Reading `respond`.

use super::reader::{Cursor, Report};
use crate::decimal::Decimal;
use crate::rule::{RateLimitHeaders, Respond};

/// The fields of `respond`.
pub(super) const RESPOND: &[&str] = &["ratelimit_headers", "retry_after_jitter"];

pub(super) const HEADERS: [(&str, RateLimitHeaders); 5] = [
    ("refused", RateLimitHeaders::Refused),
    ("draft11", RateLimitHeaders::Draft11),
    ("legacy", RateLimitHeaders::Legacy),
    ("both", RateLimitHeaders::Both),
    ("none", RateLimitHeaders::None),
];
/// The most jitter: up to twice the wait.
pub(super) const MAX_JITTER: Decimal = Decimal::from_thousandths(1_000);

pub(super) fn respond(cursor: &Cursor<'_>, report: &mut Report) -> Respond {
    let Some(fields) = cursor.object(RESPOND, report) else {
        return Respond::default();
    };
    let headers = fields.get("ratelimit_headers");
    let headers = headers.and_then(|cursor| cursor.word(&HEADERS, report));
    let jitter = fields.get("retry_after_jitter");
    let jitter = jitter.and_then(|cursor| cursor.decimal(Decimal::default(), MAX_JITTER, report));
    Respond {
        ratelimit_headers: headers.unwrap_or_default(),
        retry_after_jitter: jitter.unwrap_or_default(),
    }
}
