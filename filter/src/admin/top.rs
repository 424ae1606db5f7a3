//! `GET /v1/top`, which lists the keys that have recently been refused or admitted most often.

use loudou_api::{DEFAULT_TOP, MAX_TOP, Top, TopBy, TopEntry};
use loudou_limiter::Nanos;
use loudou_rules::rule::Mode;
use loudou_store::top::{Entry, recent};

use super::AdminPlane;
use super::answer::{Failure, ok_at};
use super::buckets::{MAX_TIME, MIN_BUCKETS_READ};
use super::call::Call;
use super::rules::find;
use crate::host::{Host, HostStore, Reply};
use crate::record::RecordError;

impl AdminPlane {
    pub(super) fn top(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let record = self.record(host, call)?;
        let rule = call.get("rule").map(|name| find(&record, name));
        let rule = rule.transpose()?.map(|rule| rule.base.tag());
        let by = call.choice("by", &TopBy::NAMES, TopBy::parse)?;
        let by = by.unwrap_or_default();
        let limit = call.number("limit")?;
        let limit = limit.map_or(DEFAULT_TOP, |n| usize::try_from(n).unwrap_or(usize::MAX));
        if !(1..=MAX_TOP).contains(&limit) {
            return Err(Failure::bad(format!("`limit` must be 1 to {MAX_TOP}")));
        }
        let table = self.table(host)?;
        let now = call.clock.now;
        let recent = recent(&mut HostStore(host), self.share(), by, now);
        let recent = recent.map_err(RecordError::from)?;
        let rules: Vec<(u32, &str, bool)> = record
            .rules
            .iter()
            .map(|rule| {
                let is_shadow = rule.effective().mode != Mode::Enforce;
                (rule.base.tag(), rule.base.name.as_str(), is_shadow)
            })
            .collect();
        let of = |tag| rules.iter().find(|(other, ..)| *other == tag);
        let wanted = |tag: u32| rule.is_none_or(|rule| rule == tag) && of(tag).is_some();
        let most = recent.counts.most(|entry| wanted(entry.rule_tag));
        // Reading a bucket for each entry of a long list takes time, so the search time limit
        // applies.
        let until = host.now().saturating_add(MAX_TIME);
        let since = |index: usize, entry: &Entry| {
            if index >= MIN_BUCKETS_READ && host.now() >= until {
                return None;
            }
            let id = table.id(entry.rule_tag, &entry.key);
            let slot = table.get(&mut HostStore(host), id);
            slot.ok().flatten()?.refused_since(now).map(Nanos::get)
        };
        let entries = most.iter().take(limit).enumerate();
        let entries = entries.filter_map(|(index, entry)| {
            let (_, name, is_shadow) = of(entry.rule_tag)?;
            Some(TopEntry {
                refused_since_ns: since(index, entry),
                rule: (*name).to_owned(),
                key: entry.key.clone(),
                count: entry.count,
                error: entry.error,
                shadow: *is_shadow,
            })
        });
        let answer = Top {
            now_ns: now.get(),
            generation: record.generation,
            by,
            // Nothing was counted before the bucket table was opened, so the window starts no
            // earlier.
            window_ns: now.since(recent.since.max(table.started())).get(),
            top: entries.collect(),
            total: most
                .iter()
                .fold(0, |sum, entry| entry.count.saturating_add(sum)),
            keys: u64::try_from(most.len()).unwrap_or(u64::MAX),
            missing_at_most: recent.counts.floor(),
        };
        Ok(ok_at(&record, &answer))
    }
}
