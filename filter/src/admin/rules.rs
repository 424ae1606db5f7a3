//! `GET /v1/rules`, `GET /v1/rules/{rule}` and `GET /v1/export`.

use loudou_api::{EditView, RuleView, Rules};
use loudou_limiter::rule::{Rule, RuleFile};

use super::{AdminPlane, Call, Failure, ok_at};
use crate::host::{Host, Reply};
use crate::record::{Record, RuleRecord};

impl AdminPlane {
    pub(super) fn rules(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        call.query(&[])?;
        let record = self.record(host)?;
        let generation = record.generation;
        let rules = record
            .rules
            .iter()
            .map(|rule| self.view(host, generation, rule))
            .collect();
        Ok(ok_at(
            generation,
            &Rules {
                now_ns: host.now().get(),
                generation,
                rules,
            },
        ))
    }

    pub(super) fn rule(
        &mut self,
        host: &dyn Host,
        call: &Call,
        name: &str,
    ) -> Result<Reply, Failure> {
        call.query(&[])?;
        let record = self.record(host)?;
        let rule = find(&record, name)?;
        Ok(ok_at(
            record.generation,
            &self.view(host, record.generation, rule),
        ))
    }

    pub(super) fn export(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        call.query(&[])?;
        let record = self.record(host)?;
        let mut store = self.settings.store.clone();
        if let Ok(buckets) = u32::try_from(self.table(host)?.buckets()) {
            store.buckets = buckets;
        }
        let rules = record.rules.iter().map(RuleRecord::effective).collect();
        let file = RuleFile {
            store,
            rules,
            ..RuleFile::default()
        };
        Ok(ok_at(record.generation, &file))
    }

    pub(super) fn view(
        &mut self,
        host: &dyn Host,
        generation: u64,
        rule: &RuleRecord,
    ) -> RuleView<Rule> {
        let edit = rule.edit.as_ref().map(|edit| EditView {
            by: edit.by.clone(),
            reason: edit.reason.clone(),
            at_ns: edit.at_ns,
            at_unix_ms: edit.at_unix_ms,
            expires_at_ns: edit.expires_at_ns,
        });
        RuleView {
            name: rule.base.name.clone(),
            generation,
            rule: rule.effective(),
            base: rule.base.clone(),
            edit,
            totals: self.totals(host, rule),
        }
    }
}

/// The rule of that name, or 404 with the names there are.
pub(super) fn find<'a>(record: &'a Record, name: &str) -> Result<&'a RuleRecord, Failure> {
    record.rule(name).ok_or_else(|| {
        let names: Vec<&str> = record
            .rules
            .iter()
            .map(|rule| rule.base.name.as_str())
            .collect();
        let name = name.escape_default();
        let detail = format!(
            "no rule is called `{name}`; there are: {}",
            names.join(", ")
        );
        Failure::new(404, "Not found", detail)
    })
}
