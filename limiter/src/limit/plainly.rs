//! Decisions on the words of a bucket alone, for callers that keep them in place.

use super::{Bucket, BucketDecision, Decisions, Limits, Words};
use crate::ask::Ask;
use crate::decision::{Decision, Verdict};
use crate::time::Nanos;

impl Limits {
    /// The same as [`Limits::answer`] for the words of a bucket in which nobody waits, with room for those of all
    /// limits, and a request that costs something and is not before the bucket's last touch. `None` if some limit
    /// would hold the request, or notes its refusal, or if some would admit and others refuse it: what is in
    /// `words` is then of no use.
    ///
    /// ```
    /// use loudou_limiter::{Ask, Limit, Limits, Nanos, Rate, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(2, Rate::parse("1/s").unwrap()).unwrap();
    /// let limits = Limits::new(vec![Limit::new("burst", funnel)]).unwrap();
    /// let mut bucket = limits.start(Nanos::ZERO);
    /// let (mut words, ask) = (bucket.words.clone(), Ask::new(2, Nanos::ZERO));
    ///
    /// for _ in 0..2 {
    ///     let plainly = limits.answer_plainly(&mut words, &ask).unwrap();
    ///     assert_eq!(plainly, limits.answer(&mut bucket, &ask));
    ///     assert_eq!(words, bucket.words);
    /// }
    /// ```
    pub fn answer_plainly(&self, words: &mut [u64], ask: &Ask) -> Option<BucketDecision> {
        let mut decisions = Decisions::new();
        let mut rest = &mut *words;
        for limit in &self.list {
            let meter = limit.algorithm.meter();
            let (own, tail) = rest.split_at_mut_checked(meter.words())?;
            let decision = meter.decide(own, ask);
            let is_plain = match decision.verdict {
                Verdict::Admit => true,
                Verdict::Hold => false,
                Verdict::Refuse => ask.is_hurried() || !meter.note_refusal(own, ask),
            };
            let differs = |first: &Decision| first.verdict != decision.verdict;
            if !is_plain || decisions.first().is_some_and(differs) {
                return None;
            }
            decisions.push(decision);
            rest = tail;
        }
        let mut answer = BucketDecision::new(ask.now, decisions);
        if ask.tells(&answer) {
            self.tell_more(&mut answer, words, ask);
        }
        Some(answer)
    }

    /// Sets when the reported limit has more than is left: when one unit more would be admitted.
    #[inline(never)]
    pub(super) fn tell_more(&self, answer: &mut BucketDecision, words: &[u64], ask: &Ask) {
        let Some(decision) = answer.reported() else {
            return;
        };
        // Where requests may wait, it is the time until this one might.
        if let Some(after) = decision.retry_after
            && decision.remaining.saturating_add(1) == ask.cost
            && !self.may_hold()
        {
            answer.more_after = after;
            return;
        }
        let more = Ask {
            cost: decision.remaining.saturating_add(1),
            max_wait: Some(Nanos::ZERO),
            ..*ask
        };
        let mut bucket = Bucket {
            last: ask.now,
            given: 0,
            line: Nanos::ZERO,
            words: Words::from_slice(words),
        };
        let reported = answer.reported;
        self.each(&mut bucket, &mut |index, meter, words| {
            if index == reported {
                let after = meter.decide(words, &more).retry_after;
                answer.more_after = after.unwrap_or(Nanos::MAX);
            }
        });
    }
}
