//! The current shared record: the first reader drops expired edits.

use loudou_api::EventKind;
use loudou_limiter::Nanos;

use crate::events::{self, Over};
use crate::host::Host;
use crate::metrics::StoreMetrics;
use crate::record::{self, Record, RecordError};

/// Reads the record; drops expired edits, announces the change and adds their events.
pub(crate) fn load(
    host: &dyn Host,
    share: &str,
    metrics: &StoreMetrics,
    now: Nanos,
) -> Result<Record, RecordError> {
    let (record, expired) = record::change(host, share, |record| {
        let expired = record.expire(now);
        (!expired.is_empty()).then_some(expired)
    })?;
    let Some(expired) = expired else {
        return Ok(record);
    };
    metrics.announce_change(host);
    let over = Over {
        at: host.clock_at(now),
        kind: EventKind::EditExpired,
        generation: record.generation,
        edit: "the edit expired; the rule is back to its base",
        keys: "expired",
    };
    for ended in expired {
        events::add_ended(host, share, &over, &ended);
    }
    Ok(record)
}
