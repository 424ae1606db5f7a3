//! Explanations of requests, compared with the later decisions.
#![cfg(test)]

use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::{parse, parse_sample};
use loudou_rules::evaluate::{Outcome, evaluate};
use loudou_rules::explain::{Explanation, explain};
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::{StoreStats, Table};
use serde_json::{Value, json};

mod agreement;
mod arbitrary;
mod parts;
mod standings;

/// Rules with their buckets.
struct World {
    store: MemoryStore,
    table: Table,
    rules: RuleSet,
}

impl World {
    fn new(rules: &Value, buckets: u32) -> Self {
        let parsed = parse(&json!({ "version": 1, "rules": rules }));
        let file = parsed
            .file
            .unwrap_or_else(|| panic!("{:?}", parsed.problems));
        let mut store = MemoryStore::new();
        let table = Table::open(&mut store, "test", buckets, [3; 16], Nanos::ZERO).expect("opens");
        let rules = file.rules.into_iter();
        Self {
            store,
            table,
            rules: rules
                .map(|rule| ActiveRule::new(rule, History::default()))
                .collect(),
        }
    }

    fn explain(&mut self, sample: &Value, clock: Clock) -> Explanation {
        let mut sample = parse_sample(sample).expect("a sample");
        explain(
            &self.rules,
            &self.table,
            &mut self.store,
            &mut sample,
            clock,
        )
    }

    fn send(&mut self, sample: &Value, clock: Clock) -> Outcome {
        let mut sample = parse_sample(sample).expect("a sample");
        let mut stats = StoreStats::default();
        let store = &mut self.store;
        evaluate(
            &self.rules,
            &self.table,
            store,
            &mut sample,
            clock,
            &mut stats,
        )
    }
}

fn limit(capacity: u32) -> Value {
    json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }])
}
