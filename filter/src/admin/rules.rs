//! `GET /v1/rules`, `GET /v1/rules/{rule}` and `GET /v1/export`.

use std::slice;

use loudou_api::{EditView, OverrideView, RuleView, Rules};
use loudou_rules::config::RuleEdit;
use loudou_rules::joined::joined;
use loudou_rules::rule::{Rule, RuleFile};
use loudou_store::upstreams::Upstream;

use super::AdminPlane;
use super::answer::{Failure, ok_at};
use super::call::Call;
use crate::escaped::escaped;
use crate::host::{Host, Reply};
use crate::record::{Origin, Record, RuleRecord};

impl AdminPlane {
    pub(super) fn rules(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let record = self.record(host, call)?;
        let seen = self.seen(host, &record.rules);
        let rules = record
            .rules
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
        let rule = if call.flag("with_temporary")? {
            RuleRecord::effective
        } else {
            RuleRecord::lasting
        };
        let rules = record.rules.iter().map(rule).collect();
        let file = RuleFile {
            store,
            rules,
            ..RuleFile::default()
        };
        Ok(ok_at(&record, &file))
    }

    pub(super) fn view(
        &mut self,
        host: &dyn Host,
        call: &Call,
        record: &Record,
        rule: &RuleRecord,
    ) -> RuleView<Rule, RuleEdit> {
        let seen = self.seen(host, slice::from_ref(rule));
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
            rule: rule.effective(),
            base: rule.base.clone(),
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

/// The rule of that name, or 404 with the names of all rules.
pub(super) fn find<'a>(record: &'a Record, name: &str) -> Result<&'a RuleRecord, Failure> {
    record.rule(name).ok_or_else(|| {
        let names: Vec<&str> = record
            .rules
            .iter()
            .map(|rule| rule.base.name.as_str())
            .collect();
        let name = escaped(name);
        let detail = format!(
            "no rule is called `{name}`; the rules are: {}",
            joined(&names, ", ")
        );
        Failure::new(404, "Not found", detail)
    })
}
