//! Decisions while shared data cannot be used at all: like those for a bucket that cannot be read.

use loudou_limiter::{Ban, Nanos};
use loudou_rules::request::Request as _;
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Mode, OnError, Override, Reach, Rule};

use crate::host::{Host, Reply};
use crate::request::HostRequest;
use crate::respond::{Refusal, explain};

/// The answer to the current request, if one of the rules refuses it.
pub(super) fn refusal(host: &dyn Host, rules: &[Rule], now: Nanos) -> Option<Reply> {
    let mut request = HostRequest::new(host);
    for rule in rules {
        if rule.mode != Mode::Enforce {
            continue;
        }
        let reach = rule.reach(&mut request);
        if reach == Reach::No || rule.when.is_some() && request.cluster().is_none() {
            continue;
        }
        let key = match reach {
            Reach::Refuse => return Some(Refusal::value_too_long(rule).reply(host)),
            Reach::Yes | Reach::No => rule.key_of(&mut request),
        };
        let refusal = match key {
            Key::Skip => continue,
            Key::Refuse => Some(Refusal::key_missing(rule)),
            Key::Ambiguous => Some(Refusal::key_ambiguous(rule)),
            Key::Bucket(key) if rule.overrides.get(&key) == Some(&Override::Banned) => {
                Some(Refusal::banned(rule, Ban::ENDLESS, now))
            }
            Key::Bucket(_) if rule.on_error == OnError::Refuse => {
                Some(Refusal::store_gave_up(rule))
            }
            Key::Bucket(_) => None,
        };
        if let Some(refusal) = refusal {
            return Some(refusal.reply(host));
        }
        if rule.stop {
            break;
        }
    }
    if rules.iter().any(|rule| rule.respond.explain_header) {
        explain::no_decision(host);
    }
    None
}
