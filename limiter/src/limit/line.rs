//! The queue of waiting requests, which edits leave as it is.

use super::{Bucket, BucketDecision, Limits};
use crate::ask::Ask;

impl Limits {
    /// Decides for each limit; but no request passes before those that wait already, whose limits may
    /// have had other numbers: it waits as long as they do, or is refused if no limit holds a request for
    /// that long.
    pub(super) fn decide_in_line(&self, bucket: &mut Bucket, ask: &Ask) -> BucketDecision {
        let line = bucket.line.since(ask.now);
        let mut answer = self.decide_each(bucket, ask);
        if line <= answer.wait() || ask.cost == 0 || answer.is_refused() {
            return answer;
        }
        let waits = self.list.iter();
        let waits = waits.map(|limit| limit.algorithm.meter().longest_wait());
        let longest = ask.longest_wait(waits.max().unwrap_or_default());
        if let Some(first) = answer.decisions.first_mut() {
            *first = if line > longest {
                first.refused(Some(line.since(longest)))
            } else {
                first.after(line)
            };
        }
        answer.sum_up();
        answer
    }
}
