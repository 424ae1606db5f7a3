//! Counts the workers that cannot read the shared rules, for a warning in the status.
//!
//! Workers of different generations are normal, because a worker reads the rules before its next
//! decision, and a worker without requests stays behind until then. A worker that *cannot* read the
//! rules is a problem. Either another version of Loudou wrote them, or shared data failed. Such a
//! worker reports that while it serves requests. Reports expire, so a dead worker is soon
//! forgotten.

use loudou_limiter::Nanos;
use loudou_store::swap::swap;

use crate::bytes::{put_number, take_number};
use crate::host::{Host, HostStore};

/// Interval of a worker's reports.
pub(crate) const INTERVAL: Nanos = Nanos::from_secs(5);
/// Time for which a report counts.
const REPORT_LIFETIME: Nanos = Nanos::from_secs(15);
/// Maximum number of workers to remember.
const MAX_WORKERS: usize = 64;

/// Report of a worker, identified by the time of its configuration, with the report's time.
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

/// Reports that `worker` does not limit by the shared rules.
pub(crate) fn report(host: &dyn Host, share: &str, worker: Nanos, now: Nanos) {
    // If this fails, the worker's next report repeats it.
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

/// Returns the number of workers that do not limit by the shared rules.
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
