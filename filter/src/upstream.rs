//! Counts upstream responses and errors, for rules with `when`.
//!
//! Responses are not counted until the request ends, because the upstream may still reset the
//! stream. Envoy's response flags indicate upstream and connection failures, and the response code
//! details indicate whether the response came from the upstream. Responses from filters, direct
//! responses from routes, and requests whose clients disconnect before the response arrives are not
//! counted, because they say nothing about the upstream's health.

use loudou_api::{Event, EventKind};
use loudou_limiter::{Clock, Nanos};
use loudou_rules::joined::joined;
use loudou_rules::rule::{Mode, Rule};
use loudou_store::health::Health;
use loudou_store::{StoreStats, Table, UpstreamCondition};

use crate::escaped::escaped;
use crate::events;
use crate::host::{Host, HostStore};

/// Envoy response flags that count as upstream errors: no healthy upstream, upstream timeout, local
/// and remote resets, failed or closed upstream connections, an open circuit breaker, exceeding the
/// maximum stream duration, protocol errors, and failed DNS resolution.
const FAILED: u64 = 0x2 | 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x8_0000 | 0x80_0000 | 0x400_0000;

/// Returns the cluster name of the current request.
pub(crate) fn cluster(host: &dyn Host) -> Option<Vec<u8>> {
    host.property("xds\0cluster_name")
}

/// Returns true if the response counts as an upstream error, and false if it counts as a success.
/// `None` if the response did not come from an upstream.
fn is_error(host: &dyn Host) -> Option<bool> {
    let number = |path| {
        let bytes = host.property(path)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    };
    if number("response\0flags").is_some_and(|flags| flags & FAILED != 0) {
        return Some(true);
    }
    if host.property("response\0code_details")? != b"via_upstream" {
        return None;
    }
    let code = number("response\0code")?;
    Some(matches!(code, 429 | 500..=599))
}

/// The `when` conditions for which responses are counted. Each distinct condition is stored once,
/// with the names of its rules.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    whens: Vec<(UpstreamCondition, Vec<String>)>,
    generation: u64,
}

impl Watch {
    pub(crate) fn new<'a>(rules: impl Iterator<Item = &'a Rule>, generation: u64) -> Self {
        let mut whens: Vec<(UpstreamCondition, Vec<String>)> = Vec::new();
        for rule in rules.filter(|rule| rule.mode != Mode::Off) {
            let Some(when) = rule.when else { continue };
            match whens.iter_mut().find(|(other, _)| *other == when) {
                Some((_, names)) => names.push(rule.name.clone()),
                None => whens.push((when, vec![rule.name.clone()])),
            }
        }
        Self { whens, generation }
    }

    /// Returns true if any rule requires counting upstream responses.
    pub(crate) const fn is_on(&self) -> bool {
        !self.whens.is_empty()
    }

    /// Counts the response to the current request, which has ended. Returns an event for each
    /// `when` that has become true or false.
    pub(crate) fn see(
        &self,
        host: &dyn Host,
        table: &Table,
        now: Nanos,
        stats: &mut StoreStats,
    ) -> Vec<Event> {
        let Some((is_error, cluster)) = is_error(host).zip(cluster(host)) else {
            return Vec::new();
        };
        let turn = |(when, rules): &(UpstreamCondition, Vec<String>)| {
            let mut store = HostStore(host);
            let turned = table.respond(&mut store, when, &cluster, is_error, now, stats)?;
            Some(self.event(host.clock_at(now), &cluster, &turned, rules))
        };
        self.whens.iter().filter_map(turn).collect()
    }

    fn event(&self, at: Clock, cluster: &[u8], health: &Health, rules: &[String]) -> Event {
        let kind = if health.fails() {
            EventKind::UpstreamFails
        } else {
            EventKind::UpstreamHeals
        };
        let mut event = events::event(at, kind, events::BY_ITSELF, self.generation);
        event.rule = rules.first().cloned();
        let count = health.count();
        event.detail = format!(
            "upstream {}: {} of {} responses are errors",
            escaped(&String::from_utf8_lossy(cluster)),
            count.errors,
            count.responses
        );
        if let Some(others) = rules.get(1..).filter(|others| !others.is_empty()) {
            event.detail.push_str("; also for ");
            event.detail.push_str(&joined(others, ", "));
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    fn ended(flags: u64, details: &str, code: u64) -> Option<bool> {
        let host = FakeHost::default();
        let mut properties = host.properties.borrow_mut();
        let mut set = |path: &str, value: &[u8]| properties.insert(path.to_owned(), value.to_vec());
        set("response\0flags", &flags.to_le_bytes());
        set("response\0code_details", details.as_bytes());
        set("response\0code", &code.to_le_bytes());
        drop(properties);
        is_error(&host)
    }

    #[test]
    fn answers_of_upstreams() {
        for code in [200, 304, 404, 428, 430, 499, 600] {
            assert_eq!(ended(0, "via_upstream", code), Some(false), "{code}");
        }
        for code in [429, 500, 503, 599] {
            assert_eq!(ended(0, "via_upstream", code), Some(true), "{code}");
        }
    }

    #[test]
    fn answers_of_envoy_instead() {
        // No healthy upstream, a timeout, a failed connection, and a reset in the middle of a
        // response body.
        for (flags, details, code) in [
            (0x2, "no_healthy_upstream", 503),
            (0x4, "response_timeout", 504),
            (0x20, "upstream_reset_before_response_started{…}", 503),
            (0x40, "via_upstream", 200),
        ] {
            assert_eq!(ended(flags, details, code), Some(true), "{details}");
        }
    }

    #[test]
    fn answers_that_are_no_sign_of_the_upstream() {
        for (flags, details, code) in [
            (0, "loudou_over_limit{r.l}", 429),
            (0, "direct_response", 500),
            (0x100, "route_not_found", 404),
            (0x4000, "downstream_remote_disconnect", 0),
            (0x800, "request_rate_limited", 429),
        ] {
            assert_eq!(ended(flags, details, code), None, "{details}");
        }
        assert_eq!(is_error(&FakeHost::default()), None);
    }
}
