//! `POST /v1/explain`: what would be made of a request. Nothing is taken, so whoever may view may ask.

use loudou_api::ExplainAnswer;
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config;
use loudou_rules::explain::explain;
use loudou_rules::rule_set::RuleSet;

use super::call::{json, wrong_body};
use super::{AdminPlane, Call, Failure, ok_at};
use crate::host::{Host, HostStore, Reply};
use crate::record::RuleRecord;

impl AdminPlane {
    pub(super) fn explain(
        &mut self,
        host: &dyn Host,
        call: &Call,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        call.query(&[])?;
        let document = json(body)?;
        let mut sample = config::parse_sample(&document)
            .map_err(|problems| wrong_body("a valid request", &problems))?;
        let record = self.record(host)?;
        let table = self.table(host)?;
        let rules: RuleSet = record.rules.iter().map(RuleRecord::activate).collect();
        let clock = Clock {
            now: host.now(),
            wall: Nanos::from_millis(host.unix_ms()),
        };
        let mut store = HostStore(host);
        let explained = explain(&rules, &table, &mut store, &mut sample, clock);
        let answer = ExplainAnswer::new(&explained, &rules, clock.now, record.generation);
        Ok(ok_at(&record, &answer))
    }
}
