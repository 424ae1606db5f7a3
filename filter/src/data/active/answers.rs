//! What a decision tells the client, the upstream, and access logs.

use loudou_limiter::Nanos;
use loudou_rules::active_rule::ActiveRule;
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome};
use loudou_rules::rule::Mode;

use super::super::{Header, Headers};
use super::Active;
use crate::host::{Host, Reply};
use crate::respond::{RateLimitHeaders, Refusal, explain};

impl Active {
    pub(super) fn refusal(&self, host: &dyn Host, said: &RuleOutcome, now: Nanos) -> Option<Reply> {
        let rule = self.rules.get(said.rule)?;
        Some(Refusal::new(rule, said, now).reply(host))
    }

    /// Tells access logs what `outcomes` decided.
    pub(super) fn log<'a>(
        &self,
        host: &dyn Host,
        outcomes: impl IntoIterator<Item = &'a RuleOutcome>,
        now: Nanos,
    ) {
        let line = |outcome: &RuleOutcome| {
            let rule = self.rules.get(outcome.rule)?;
            Some(explain::for_log(rule, outcome, now))
        };
        let lines: Vec<String> = outcomes.into_iter().filter_map(line).collect();
        host.set_property(explain::PROPERTY, &lines.join(", "));
    }

    /// Tells the upstream and access logs what the rules decided that explain themselves, and the
    /// client how long it waits for that. The request header is ours, whatever the client sends.
    pub(super) fn explain(
        &self,
        host: &dyn Host,
        outcome: &Outcome,
        now: Nanos,
        due: Nanos,
    ) -> Option<Header> {
        let explained = |one: &&RuleOutcome| {
            let rule = self.rules.get(one.rule).map(ActiveRule::rule);
            rule.is_some_and(|rule| rule.respond.explain_header)
        };
        let explained: Vec<&RuleOutcome> = outcome.rules.iter().filter(explained).collect();
        let decision = |one: &&RuleOutcome| {
            let rule = self.rules.get(one.rule)?;
            Some(explain::decision(rule, one))
        };
        let decisions: Vec<String> = explained.iter().filter_map(decision).collect();
        if decisions.is_empty() {
            host.set_request_header(explain::DECISION, "none");
            return None;
        }
        host.set_request_header(explain::DECISION, &decisions.join(", "));
        self.log(host, explained, now);
        let wait = Some(due.since(now)).filter(|wait| *wait > Nanos::ZERO)?;
        Some((explain::WAIT_MS, wait.millis_ceil().to_string()))
    }

    pub(super) fn admitted_headers(&self, outcome: &Outcome) -> Headers {
        let mut headers = RateLimitHeaders::default();
        for said in &outcome.rules {
            let Some(active) = self.rules.get(said.rule) else {
                continue;
            };
            let rule = active.rule();
            if let (Mode::Enforce, Answer::Decided(decision)) = (rule.mode, &said.answer) {
                headers.add(rule, active.limits_for(said.key.as_deref()), decision);
            }
        }
        headers.finish()
    }
}
