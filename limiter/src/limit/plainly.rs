//! Decisions on the words of a bucket alone, for callers that keep them in place.

use super::{BucketDecision, Decisions, Limits};
use crate::ask::Ask;
use crate::decision::{Decision, Verdict};

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
        let mut rest = words;
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
        Some(BucketDecision::new(ask.now, decisions))
    }
}
