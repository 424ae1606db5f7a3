//! Describes rules that apply only while an upstream is failing.

use loudou_api::{RuleTotals, UpstreamView};
use loudou_store::UpstreamCondition;

use crate::text::{counted, humanise};

/// Describes the condition under which such a rule applies.
pub(super) fn condition(when: &UpstreamCondition) -> String {
    format!(
        "only while an upstream fails: from more than {} errors within {} (of at least {} responses) until less \
         than {}",
        tenths(when.over.thousandths()),
        when.within,
        when.least,
        tenths(when.until_under.thousandths()),
    )
}

/// Formats thousandths as a percentage.
fn tenths(thousandths: u32) -> String {
    match (thousandths / 10, thousandths % 10) {
        (whole, 0) => format!("{whole} %"),
        (whole, rest) => format!("{whole}.{rest} %"),
    }
}

/// Describes the state of each of a rule's upstreams, one per line. Returns no lines if the rule does not depend on
/// upstreams.
pub fn upstreams(totals: &RuleTotals, now_ns: u64) -> Vec<String> {
    match totals.upstreams.as_deref() {
        None => Vec::new(),
        Some([]) => vec!["does not apply: no upstream has answered yet".to_owned()],
        Some(upstreams) => upstreams.iter().map(|view| line(view, now_ns)).collect(),
    }
}

fn line(view: &UpstreamView, now_ns: u64) -> String {
    let applies = if view.applies {
        "applies"
    } else {
        "does not apply"
    };
    format!(
        "{applies} to upstream {} for {} now; {}",
        view.cluster,
        humanise(now_ns.saturating_sub(view.since_ns)),
        errors(view),
    )
}

/// Describes an upstream's error rate: `errors: 12 of 40 responses (30 %)`.
fn errors(view: &UpstreamView) -> String {
    let responses = counted(view.responses, "response");
    let share = view
        .errors
        .saturating_mul(100)
        .checked_div(view.responses)
        .map_or_else(String::new, |share| format!(" ({share} %)"));
    format!("errors: {} of {responses}{share}", view.errors)
}

#[cfg(test)]
mod tests {
    use loudou_limiter::{Decimal, Nanos};

    use super::*;

    #[test]
    fn conditions() {
        let when = UpstreamCondition {
            over: Decimal::from_thousandths(200),
            until_under: Decimal::from_thousandths(125),
            within: Nanos::from_secs(10),
            least: 20,
        };
        assert_eq!(
            condition(&when),
            "only while an upstream fails: from more than 20 % errors within 10s (of at least 20 responses) \
             until less than 12.5 %"
        );
    }

    #[test]
    fn states() {
        let say = |upstreams| {
            let totals = RuleTotals {
                upstreams,
                ..RuleTotals::default()
            };
            super::upstreams(&totals, 90_000_000_000)
        };
        assert_eq!(say(None), [""; 0]);
        assert_eq!(
            say(Some(Vec::new())),
            ["does not apply: no upstream has answered yet"]
        );
        let view = |responses, errors, applies| UpstreamView {
            cluster: "up".to_owned(),
            responses,
            errors,
            applies,
            since_ns: 60_000_000_000,
        };
        assert_eq!(
            say(Some(vec![
                view(40, 12, true),
                view(1, 0, false),
                view(0, 0, false)
            ])),
            [
                "applies to upstream up for 30s now; errors: 12 of 40 responses (30 %)",
                "does not apply to upstream up for 30s now; errors: 0 of 1 response (0 %)",
                "does not apply to upstream up for 30s now; errors: 0 of 0 responses",
            ]
        );
    }
}
