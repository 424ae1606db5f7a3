//! `GET /v1/buckets`, `GET /v1/buckets/{rule}/{key}` and `POST …/reset`.

use std::rc::Rc;
use std::sync::Arc;

use loudou_api::{
    BanView, BucketState, BucketView, BucketsHead, DEFAULT_PAGE, EventKind, MAX_PAGE, MAX_READ,
    ResetAnswer,
};
use loudou_limiter::Nanos;
use loudou_rules::rule::Mode;
use loudou_rules::rule_set::ActiveRule;
use loudou_store::{BanChange, LiveRule, Reset};
use serde_json::Value;

use super::AdminPlane;
use super::answer::{Failure, ok, ok_bytes_at, ok_with};
use super::bucket::{Current, imposed, no_bucket, view};
use super::call::Call;
use super::rules::find;
use super::search::{Cursor, Place, RulesByTag, Search};
use crate::ban_ends::Change;
use crate::escaped::shown;
use crate::events;
use crate::host::{Host, HostStore, Reply};
use crate::metrics::StoreMetrics;
use crate::record::Record;

/// Time limit for a single search call. Including Envoy's own work, a search call ties up a worker
/// for at most about a millisecond.
pub(super) const MAX_TIME: Nanos = Nanos::new(300_000);
/// The maximum is hard-coded in the string, because code that formats the number would enlarge the
/// Wasm module.
const NAMES_FORM: &str =
    r#"the body must be {"buckets": [["RULE", "KEY"], …]} with at most 64 of them"#;
/// Minimum number of requested buckets that a call reads, even if its time limit has passed.
pub(super) const MIN_BUCKETS_READ: usize = 8;

impl AdminPlane {
    pub(super) fn buckets(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let clock = call.clock;
        if let Some(wait) = self.work_budget.refuses(clock.now) {
            return Err(Failure::later(wait));
        }
        let record = self.record(host, call)?;
        let search = read(call, &record)?;
        let table = self.table(host)?;
        let rules = record.rule_set();
        let mut place = Place {
            store: &mut HostStore(host),
            table: &table,
            rules: &RulesByTag::new(rules.iter().map(|rule| &**rule)),
            call_time: call.call_time(),
        };
        let until = host.now().saturating_add(MAX_TIME);
        // Each bucket is serialized as soon as it is found, so that the time limit covers
        // serialization too.
        let mut buckets = Vec::new();
        let mut found = |bucket: &Current<'_>| add(&mut buckets, &bucket.view());
        let next = search.step(&mut place, &mut || host.now() < until, &mut found);
        let now = host.now();
        self.work_budget.charge(clock.now, now);
        let head = BucketsHead {
            instance: record.instance.id.clone(),
            now_ns: clock.now.get(),
            generation: record.generation,
            pages: table.pages(),
            pages_done: next.map_or_else(|| table.pages(), |next| next.page),
            wait_ns: next.map_or(0, |_| self.work_budget.wait(now).get()),
            next_cursor: next.map(|next| next.to_string()),
        };
        Ok(ok_bytes_at(&record, head.with_buckets(&buckets)))
    }

    /// Returns those buckets listed in the request body that exist.
    pub(super) fn read_buckets(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let document = call.json()?;
        let names = names(&document).ok_or_else(|| Failure::bad(NAMES_FORM))?;
        let record = self.record(host, call)?;
        let table = self.table(host)?;
        let until = host.now().saturating_add(MAX_TIME);
        let (mut buckets, mut done) = (Vec::new(), 0_usize);
        for (rule, key) in &names {
            if done >= MIN_BUCKETS_READ && host.now() >= until {
                break;
            }
            done = done.saturating_add(1);
            // A removed rule has no buckets.
            let Ok(rule) = find(&record, rule) else {
                continue;
            };
            let active = rule.activate();
            let id = table.id(active.tag(), key);
            if let Some(slot) = table.get(&mut HostStore(host), id)? {
                add(&mut buckets, &view(&active, &slot, key, call.call_time()));
            }
        }
        let head = BucketsHead {
            instance: record.instance.id.clone(),
            now_ns: call.clock.now.get(),
            generation: record.generation,
            next_cursor: (done < names.len()).then(|| done.to_string()),
            ..BucketsHead::default()
        };
        Ok(ok_bytes_at(&record, head.with_buckets(&buckets)))
    }

    pub(super) fn bucket(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let key = call.key();
        let (_, active) = self.rule_of(host, call)?;
        let table = self.table(host)?;
        let id = table.id(active.tag(), key);
        let slot = table.get(&mut HostStore(host), id)?;
        let slot = slot.ok_or_else(|| no_bucket(&active, key))?;
        let etag = BanView::etag(imposed(&slot, call.clock.now));
        Ok(ok_with(etag, &view(&active, &slot, key, call.call_time())))
    }

    pub(super) fn reset(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let key = call.key();
        let reason = call.reason()?;
        let (record, active) = self.rule_of(host, call)?;
        let table = self.table(host)?;
        let store = &mut HostStore(host);
        // In shadow mode no requests are held, so the reset does not need to preserve their places
        // in the queue.
        let reset = if active.rule().mode == Mode::Enforce {
            table.reset_behind(store, (&*active, key), call.clock)?
        } else {
            let before = table.reset(store, table.id(active.tag(), key))?;
            before.map(|before| Reset {
                before,
                stays: false,
            })
        };
        let stays = reset.as_ref().is_some_and(|reset| reset.stays);
        let slot = reset.map(|reset| reset.before);
        let before = slot
            .as_ref()
            .map(|slot| view(&active, slot, key, call.call_time()));
        if let Some(before) = &before {
            let share = &self.settings.store.namespace;
            let metrics = StoreMetrics::define(host, &mut self.registry, share);
            if !stays {
                metrics.freed(host);
            }
            metrics.banned(host, slot.as_ref(), BanChange::Free, call.clock.now);
            let mut event = call.event(EventKind::Reset, record.generation);
            event.rule = Some(call.rule().to_owned());
            event.key = Some(shown(key));
            event.reason = reason;
            let unbanned = if before.ban.is_some() {
                ", and its ban was lifted"
            } else {
                ""
            };
            let behind = if stays {
                "; requests that wait keep their places"
            } else {
                ""
            };
            event.detail = format!("the bucket was reset{unbanned}{behind}");
            let gone = Change::Gone(call.rule(), key);
            self.note_ban(host, Some(gone), call.clock.now);
            events::add(host, self.share(), &event);
        }
        Ok(ok(&ResetAnswer {
            existed: before.is_some(),
            before,
        }))
    }

    /// Returns the rule record and the rule named in the path.
    pub(super) fn rule_of(
        &mut self,
        host: &dyn Host,
        call: &Call,
    ) -> Result<(Rc<Record>, Arc<ActiveRule>), Failure> {
        let record = self.record(host, call)?;
        let active = find(&record, call.rule())?.activate();
        Ok((record, active))
    }
}

/// Appends a bucket to a JSON array.
fn add(buckets: &mut Vec<u8>, bucket: &BucketView) {
    if !buckets.is_empty() {
        buckets.push(b',');
    }
    buckets.append(&mut serde_json::to_vec(bucket).unwrap_or_default());
}

/// Returns the rule name and key of each bucket in a request body. `None` if the body is not of the
/// form [`NAMES_FORM`].
fn names(document: &Value) -> Option<Vec<(&str, &str)>> {
    let object = document.as_object().filter(|object| object.len() == 1)?;
    let names = object.get("buckets")?.as_array()?;
    if names.len() > MAX_READ {
        return None;
    }
    let names = names.iter().map(|name| match name.as_array()?.as_slice() {
        [rule, key] => Some((rule.as_str()?, key.as_str()?)),
        _ => None,
    });
    names.collect()
}

/// Parses the search parameters in a call's query.
fn read(call: &Call, record: &Record) -> Result<Search, Failure> {
    let rule = call.get("rule").map(|name| find(record, name));
    let state = |name: &str| {
        let mut states = BucketState::ALL.into_iter();
        states.find(|state| state.name() == name)
    };
    let cursor = call.choice(
        "cursor",
        &["the next_cursor of an earlier page"],
        Cursor::parse,
    )?;
    let limit = call.number("limit")?.map(usize::try_from).transpose();
    let limit = limit.map_or(usize::MAX, |limit| limit.unwrap_or(DEFAULT_PAGE));
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(Failure::bad(format!("`limit` must be 1 to {MAX_PAGE}")));
    }
    Ok(Search {
        rule_tag: rule.transpose()?.map(|rule| rule.base.tag()),
        key: call.get("key").map(ToOwned::to_owned),
        state: call.choice("state", &BucketState::NAMES, state)?,
        from: cursor.unwrap_or_default(),
        most: limit,
    })
}
