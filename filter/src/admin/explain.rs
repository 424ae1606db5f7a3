//! `POST /v1/explain` reports how the rules would decide a sample request. The call takes no
//! tokens, so view access is sufficient.

use loudou_api::ExplainAnswer;
use loudou_rules::config;
use loudou_rules::explain::explain;

use super::AdminPlane;
use super::answer::{Failure, ok_at};
use super::call::Call;
use crate::host::{Host, HostStore, Reply};

impl AdminPlane {
    pub(super) fn explain(&mut self, host: &dyn Host, call: &Call) -> Result<Reply, Failure> {
        let document = call.json()?;
        let mut sample = config::parse_sample(&document)
            .map_err(|problems| Failure::wrong_body("a valid request", &problems))?;
        sample.fleet = call.fleet;
        let record = self.record(host, call)?;
        let table = self.table(host)?;
        let rules = record.rule_set();
        let mut store = HostStore(host);
        let explained = explain(rules, &table, &mut store, &mut sample, call.clock);
        let answer = ExplainAnswer::new(&explained, rules, call.clock.now, record.generation);
        Ok(ok_at(&record, &answer))
    }
}
