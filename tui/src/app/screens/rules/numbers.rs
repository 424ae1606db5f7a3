//! The numbers of a rule; in shadow mode, those of the requests that it would have refused.

use loudou_api::{RuleTotals, RuleView};
use loudou_rules::rule::Mode;

use super::super::copied;
use crate::app::history::Rates;
use crate::draw::words::{amount, percent, rate};
use loudou_words::meaning::short;
use loudou_words::num::fraction;

/// Whether the rule only reports what it would refuse.
pub(super) fn is_shadow(totals: &RuleTotals) -> bool {
    totals.mode == Mode::Shadow.name()
}

/// The requests that a rule refused or, in shadow mode, would have refused.
pub(super) fn refused_in_mode(totals: &RuleTotals) -> u64 {
    if is_shadow(totals) {
        totals.shadow_refused
    } else {
        totals.refused
    }
}

/// The same per second.
pub(super) fn refused_rate(totals: &RuleTotals, rates: Rates) -> f64 {
    if is_shadow(totals) {
        rates.shadow
    } else {
        rates.refused
    }
}

/// The share of its requests that this is.
pub(super) fn share_refused(totals: &RuleTotals) -> f64 {
    let refused = totals.refused.saturating_add(totals.shadow_refused);
    let all = totals.passed().saturating_add(refused);
    fraction(refused_in_mode(totals), all)
}

/// The row of a rule as a line of text.
pub(super) fn in_a_line(rule: &RuleView, totals: &RuleTotals, rates: Option<Rates>) -> String {
    let refused = if is_shadow(totals) {
        "would refuse"
    } else {
        "refused"
    };
    let mut parts = vec![totals.mode.clone()];
    parts.extend(rates.map(|rates| {
        let (bad, good) = (refused_rate(totals, rates), rates.admitted);
        format!(
            "{refused} {}/s, admitted {}/s",
            rate(Some(bad)),
            rate(Some(good))
        )
    }));
    let share = percent(share_refused(totals));
    parts.push(format!(
        "in total {refused} {} ({share}), admitted {}",
        amount(refused_in_mode(totals)),
        amount(totals.passed())
    ));
    parts.push(short::line(&rule.rule));
    copied::line(&rule.name, &parts)
}
