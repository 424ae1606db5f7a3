//! Reads the current rule record from shared data. The first worker to read the record after an
//! edit has expired drops the edit.

use std::rc::Rc;

use loudou_api::EventKind;
use loudou_limiter::Nanos;

use crate::events::{self, Over};
use crate::host::Host;
use crate::metrics::StoreMetrics;
use crate::record::{Record, RecordError, Records};

/// Returns the cached record, or reads it from shared data if a change has been announced since it
/// was cached. The record therefore includes every change announced before the call, and every
/// acknowledged edit.
pub(crate) fn recent(
    host: &dyn Host,
    records: &Records,
    metrics: &StoreMetrics,
    now: Nanos,
) -> Result<Rc<Record>, RecordError> {
    let changes = metrics.changes(host);
    if let Some(record) = records.kept(changes, now) {
        return Ok(record);
    }
    load(host, records, metrics, now)
}

/// Announces a change written by this worker. `before` is the number of changes announced before
/// the write. If no other change has been announced since then, the worker caches the record it
/// wrote.
pub(crate) fn announce(
    host: &dyn Host,
    records: &Records,
    metrics: &StoreMetrics,
    (record, before): (&Rc<Record>, u64),
    now: Nanos,
) {
    metrics.announce_change(host);
    records.mark_announced();
    metrics.edited(host, record.edited());
    let changes = before.saturating_add(1);
    if metrics.changes(host) == changes {
        records.keep(record, changes, now);
    }
}

/// Reads the record from shared data. Drops any expired edits, announces the change, and adds an
/// event for each dropped edit.
pub(crate) fn load(
    host: &dyn Host,
    records: &Records,
    metrics: &StoreMetrics,
    now: Nanos,
) -> Result<Rc<Record>, RecordError> {
    // The count is read before the record, so the record is at least as new as the count.
    let changes = metrics.changes(host);
    let known = records.generation_after(changes);
    let record = records.read(host)?;
    records.keep(&record, changes, now);
    if known.is_some_and(|known| known != record.generation) {
        // The worker that made this change has not announced it yet, or died before it could do so.
        metrics.announce_change(host);
    }
    if now < record.next_expiry() {
        return Ok(record);
    }
    let changes = metrics.changes(host);
    let (record, expired) = records.change(host, |record| {
        let expired = record.expire(now);
        (!expired.is_empty()).then_some(expired)
    })?;
    let Some(expired) = expired else {
        return Ok(record);
    };
    announce(host, records, metrics, (&record, changes), now);
    let over = Over {
        at: host.clock_at(now),
        kind: EventKind::EditExpired,
        generation: record.generation,
        edit: "the edit expired; the rule is back to its base",
        keys: "expired",
    };
    for ended in expired {
        events::add_ended(host, records.share(), &over, &ended);
    }
    Ok(record)
}
