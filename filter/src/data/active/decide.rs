//! The decision on one request.

use loudou_limiter::{Clock, Nanos};
use loudou_rules::evaluate::{Answer, Outcome, RuleOutcome, evaluate};
use loudou_rules::rule::RuleFile;
use loudou_store::{GaveUp, StoreStats, Why};

use super::super::verdict::{Arrival, Decided, Verdict, Wanted, is_local, refills};
use super::{Active, Tells};
use crate::host::{Host, HostStore};
use crate::loan::loans;
use crate::request::HostRequest;
use crate::respond::{Refusal, explain, of_admitted};

/// The most repeated decisions on a request whose rules change while it is decided.
const MAX_OUTDATED: usize = 4;

impl Active {
    /// Decides on the current request. Without room for it, it is refused instead of held.
    pub(in super::super) fn decide(
        &mut self,
        host: &dyn Host,
        file: &RuleFile,
        arrival: &Arrival,
    ) -> Decided {
        let now = arrival.now;
        let since = now.since(arrival.waited);
        let mut again = MAX_OUTDATED;
        // Nothing of what follows concerns most requests.
        let mut is_plain;
        let (outcome, bytes) = loop {
            let clock = self.clock(host, now);
            let (outcome, bytes) = self.evaluate(host, clock, arrival);
            is_plain =
                arrival.fleet.is_none() && self.tells == Tells::Nothing && outcome.is_plain();
            if is_plain || again == 0 || !outcome.rules.iter().any(is_outdated) {
                break (outcome, bytes);
            }
            self.take_back(host, &outcome, clock);
            let refreshed = self.refresh(host, file, now);
            again = refreshed.map_or(0, |()| again.saturating_sub(1));
        };
        if !is_plain && let Some(wanted) = Wanted::of(&outcome) {
            return Decided {
                verdict: Verdict::Wait(wanted),
                refills: Vec::new(),
                is_local: false,
                loans: Vec::new(),
                since,
                patience: Nanos::MAX,
                bytes,
            };
        }
        self.counts.add(host, &outcome, now);
        self.counts.flush(host, now);
        if is_plain {
            return Decided::passes(now);
        }
        let verdict = if let Some(refused) = outcome.refusal() {
            self.store_metrics.not_held(host, refused.not_held);
            explain::log(host, [refused], now);
            Verdict::Refuse(Refusal::new(refused, now).reply(host))
        } else {
            let due = outcome.due().unwrap_or(now);
            let mut headers = of_admitted(&outcome);
            if self.tells == Tells::Decision {
                headers.extend(explain::explain(host, &outcome, now, due));
            }
            Verdict::Pass(due, headers)
        };
        Decided {
            verdict,
            refills: arrival.fleet.map_or_else(Vec::new, |_| refills(&outcome)),
            is_local: arrival.fleet.is_some() && is_local(&outcome),
            since,
            patience: patience(&outcome),
            loans: loans(outcome),
            bytes,
        }
    }

    /// The outcome, and the memory that the request takes if it is held.
    fn evaluate(&self, host: &dyn Host, clock: Clock, arrival: &Arrival) -> (Outcome, u64) {
        let mut stats = StoreStats::default();
        let request = HostRequest::new(host).held_in(arrival.room, arrival.has_body);
        let mut request = request.leased(arrival.fleet).after(arrival.waited);
        let outcome = evaluate(
            &self.rules,
            &self.table,
            &mut HostStore(host),
            &mut request,
            clock,
            &mut stats,
        );
        self.store_metrics.add(host, &stats);
        (outcome, request.held_bytes())
    }

    /// Gives back the units taken by an outcome that is discarded.
    fn take_back(&self, host: &dyn Host, outcome: &Outcome, clock: Clock) {
        let mut stats = StoreStats::default();
        for one in &outcome.rules {
            if let (Some(key), Some(receipt)) = (&one.key, &one.receipt) {
                let give = one.active.give(key, receipt, Why::Refused, clock);
                // Lost returns are counted.
                let _lost = self.table.give(&mut HostStore(host), &give, &mut stats);
            }
        }
        self.store_metrics.add(host, &stats);
    }
}

/// The longest time for which a request may be held.
fn patience(outcome: &Outcome) -> Nanos {
    let all = outcome.rules.iter().map(|one| one.patience);
    all.min().unwrap_or(Nanos::MAX)
}

/// Whether a rule could not be evaluated because a newer version of it is in force.
const fn is_outdated(outcome: &RuleOutcome) -> bool {
    matches!(outcome.answer, Answer::GaveUp(GaveUp::Outdated))
}
