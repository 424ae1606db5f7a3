//! Counts the workers that cannot read the shared rules, so that the admin status can warn about
//! them.
//!
//! Workers may temporarily have different rule generations, because a worker does not read new
//! rules until its next decision. A worker that *cannot* read the rules indicates a problem: either
//! another version of Loudou wrote the rules, or shared data failed. Such a worker reports this
//! regularly while it is serving requests. Reports expire, so dead workers soon stop being counted.

use loudou_limiter::Nanos;
use loudou_store::swap::swap;

use crate::bytes::{put_number, take_number};
use crate::host::{Host, HostStore};

/// Interval between a worker's reports.
pub(crate) const INTERVAL: Nanos = Nanos::from_secs(5);
/// Time after which a report expires.
const REPORT_LIFETIME: Nanos = Nanos::from_secs(15);
/// Maximum number of workers for which a report is stored.
const MAX_WORKERS: usize = 64;

/// A worker's report: the time at which the worker was configured, which serves as its ID, and the
/// time of the report.
type Report = (u64, Nanos);

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":behind"].concat()
}

fn read(mut bytes: &[u8], now: Nanos) -> Vec<Report> {
    let bytes = &mut bytes;
    let report = || Some((take_number(bytes)?, Nanos::new(take_number(bytes)?)));
    let all = core::iter::from_fn(report);
    let fresh = all.filter(|(_, at)| now.since(*at) < REPORT_LIFETIME);
    fresh.take(MAX_WORKERS).collect()
}

/// Reports that `worker` is not applying the shared rules.
pub(crate) fn report(host: &dyn Host, share: &str, worker: Nanos, now: Nanos) {
    // A failed write is ignored, because the worker will soon send another report.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let mut reports = read(found.unwrap_or_default(), now);
        reports.retain(|(other, _)| *other != worker.get());
        reports.truncate(MAX_WORKERS.saturating_sub(1));
        reports.push((worker.get(), now));
        let mut bytes = Vec::new();
        for (worker, at) in reports {
            put_number(&mut bytes, worker);
            put_number(&mut bytes, at.get());
        }
        Some(bytes)
    });
}

/// Returns the number of workers that are not applying the shared rules.
pub(crate) fn count(host: &dyn Host, share: &str, now: Nanos) -> usize {
    let mut bytes = Vec::new();
    let found = host.shared_get(&key(share), &mut bytes);
    found.map_or(0, |_| read(&bytes, now).len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn reports_are_counted_by_worker_until_they_expire() {
        let host = FakeHost::default();
        let at = Nanos::from_secs;
        assert_eq!(count(&host, "s", at(0)), 0);
        for (worker, now) in [(1, 0), (2, 3), (1, 5)] {
            report(&host, "s", Nanos::new(worker), at(now));
        }
        assert_eq!(count(&host, "s", at(5)), 2);
        assert_eq!(count(&host, "s", at(18)), 1);
        assert_eq!(count(&host, "s", at(20)), 0);
        for worker in 0..100 {
            report(&host, "s", Nanos::new(worker), at(30));
        }
        assert_eq!(count(&host, "s", at(30)), MAX_WORKERS);
    }
}
