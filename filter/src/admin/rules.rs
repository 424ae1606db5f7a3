//! `GET /v1/rules`, `GET /v1/rules/{rule}` and `GET /v1/export`.

use std::borrow::Cow;
use std::iter;
use std::rc::Rc;

use loudou_api::{EditView, OverrideView, RuleView, Rules};
use loudou_rules::config::{RuleEdit, nearest};
use loudou_rules::joined::joined;
use loudou_rules::rule::{Rule, StoreSettings};
use loudou_store::upstreams::Upstream;
use serde::Serialize;

use super::AdminPlane;
use super::answer::{Failure, ok_at};
use super::call::Call;
use crate::escaped::escaped;
use crate::host::{Host, Reply};
use crate::record::{Origin, Record, RuleRecord};

/// Approximate maximum total size of the rules in a response, in bytes. Creating a response of this
/// size takes well below a millisecond. A single rule may exceed the maximum, because each page
/// contains at least one rule.
const PAGE: usize = 24 << 10;
/// Approximate JSON size of a [`RuleView`] without its rule and base rule, in bytes.
const VIEW: usize = 512;

/// The rules in force, in the format of a rule file. If the rules do not fit on one page, the page
/// is not a valid rule file, because rule files must not contain `next_cursor`. This prevents users
/// from mistaking a partial page for the complete file.
#[derive(Serialize)]
struct Export<'a> {
    version: u8,
    store: StoreSettings,
    rules: Vec<Cow<'a, Rule>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl AdminPlane {
    pub(super) fn rules(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let record = self.record(host, call)?;
        let (page, next_cursor) = page(&record, call, &|rule| {
            rule.bytes().saturating_mul(2).saturating_add(VIEW)
        })?;
        let seen = self.seen(host, page.iter().map(|rule| &**rule));
        let rules = page
            .iter()
            .map(|rule| self.view_with(host, call, (&record, rule), &seen))
            .collect();
        Ok(ok_at(
            &record,
            &Rules {
                instance: record.instance.id.clone(),
                now_ns: call.clock.now.get(),
                generation: record.generation,
                rules,
                next_cursor,
            },
        ))
    }

    pub(super) fn rule(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let record = self.record(host, call)?;
        let rule = find(&record, call.rule())?;
        Ok(ok_at(&record, &self.view(host, call, &record, rule)))
    }

    pub(super) fn export(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let record = self.record(host, call)?;
        let mut store = self.settings.store.clone();
        if let Ok(buckets) = u32::try_from(self.table(host)?.buckets()) {
            store.buckets = buckets;
        }
        let with_temporary = call.flag("with_temporary")?;
        let (page, next_cursor) = page(&record, call, &|rule| rule.bytes())?;
        // Trials are never part of a rule file, so they are not exported.
        let rules = page.iter().filter(|rule| !rule.is_trial()).map(|rule| {
            if with_temporary {
                Cow::Borrowed(rule.effective())
            } else {
                rule.lasting()
            }
        });
        let export = Export {
            version: 1,
            store,
            rules: rules.collect(),
            next_cursor,
        };
        Ok(ok_at(&record, &export))
    }

    pub(super) fn view(
        &mut self,
        host: &dyn Host,
        call: &Call,
        record: &Record,
        rule: &RuleRecord,
    ) -> RuleView<Rule, RuleEdit> {
        let seen = self.seen(host, iter::once(rule));
        self.view_with(host, call, (record, rule), &seen)
    }

    fn view_with(
        &mut self,
        host: &dyn Host,
        call: &Call,
        (record, rule): (&Record, &RuleRecord),
        seen: &[Upstream],
    ) -> RuleView<Rule, RuleEdit> {
        let own = rule.own.iter().map(|(key, own)| OverrideView {
            key,
            edit: edit_view(&own.who),
        });
        RuleView {
            name: rule.base.name.clone(),
            instance: record.instance.id.clone(),
            generation: record.generation,
            rule: rule.effective().clone(),
            base: Rule::clone(&rule.base),
            edit: rule.edit.as_ref().map(|edit| edit_view(&edit.who)),
            edit_body: rule.edit.as_ref().map(|edit| edit.change.clone()),
            overrides: own.collect(),
            totals: self.totals(host, call, rule, seen),
        }
    }
}

fn edit_view(origin: &Origin) -> EditView {
    EditView {
        by: origin.by.clone(),
        reason: origin.reason.clone(),
        at_ns: origin.at_ns,
        at_unix_ms: origin.at_unix_ms,
        expires_at_ns: origin.expires_at_ns,
    }
}

/// Returns the page of rules that a call requests, and the cursor for the next page. A cursor is
/// valid only for a single rule generation, so that all pages of a list show the same generation.
fn page<'a>(
    record: &'a Record,
    call: &Call,
    bytes: &dyn Fn(&RuleRecord) -> usize,
) -> Result<(&'a [Rc<RuleRecord>], Option<String>), Failure> {
    let read = |text: &str| {
        let (place, generation) = text.split_once('-')?;
        Some((place.parse().ok()?, generation.parse().ok()?))
    };
    let cursor = call.choice("cursor", &["the next_cursor of an earlier page"], read)?;
    let (from, of): (usize, u64) = cursor.unwrap_or((0, record.generation));
    if of != record.generation {
        let detail = "the rules have changed since the first page: begin again without `cursor`";
        return Err(Failure::new(409, "Changed meanwhile", detail));
    }
    let rest = record.rules.get(from..).unwrap_or_default();
    let mut sum: usize = 0;
    let more = rest.iter().skip(1).position(|rule| {
        sum = sum.saturating_add(bytes(rule));
        sum.saturating_add(rest.first().map_or(0, |first| bytes(first))) > PAGE
    });
    let count = more.map_or(rest.len(), |more| more.saturating_add(1));
    let next = from.saturating_add(count);
    let cursor = more.map(|_| format!("{next}-{}", record.generation));
    Ok((rest.get(..count).unwrap_or_default(), cursor))
}

/// Returns the rule with this name. If there is none, returns a 404 failure that lists the names of
/// all rules.
pub(super) fn find<'a>(record: &'a Record, name: &str) -> Result<&'a RuleRecord, Failure> {
    record.rule(name).ok_or_else(|| {
        let names: Vec<&str> = record
            .rules
            .iter()
            .map(|rule| rule.base.name.as_str())
            .collect();
        let meant = nearest(name, &names);
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?"));
        let detail = format!(
            "no rule is called `{}`; the rules are: {}{}",
            escaped(name),
            joined(&names, ", "),
            meant.unwrap_or_default()
        );
        Failure::new(404, "Not found", detail)
    })
}
