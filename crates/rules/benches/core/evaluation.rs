//! Measures how a request is evaluated against a rule file, which includes matching, the key, and
//! the store's decision.
//!
//! Most rules are for other paths, as in a file with a rule for each path. If a rule applies, it is
//! the last one.

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use loudou_limiter::{Clock, Nanos};
use loudou_rules::config::{parse, parse_sample};
use loudou_rules::evaluate::evaluate;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::paged::PagedStore;
use loudou_store::{StoreStats, Table};
use serde_json::{Value, json};

use super::Checked;
use super::governed::{APART, BURST, START};

const NAMESPACE: &str = "bench";
const BUCKETS: u32 = 65_536;
const COUNTS: [usize; 3] = [1, 16, 256];
/// Names, with the number of rules that apply.
const CASES: [(&str, usize); 2] = [("none applies", 0), ("one applies", 1)];

pub(super) fn bench(criterion: &mut Criterion) -> Checked {
    let mut group = criterion.benchmark_group("evaluation");
    for (name, applying) in CASES {
        for count in COUNTS {
            let plural = if count == 1 { "" } else { "s" };
            let id = BenchmarkId::new(name, format!("{count} rule{plural}"));
            measure(
                &mut group,
                id,
                &rules(count - applying, applying)?,
                applying,
            )?;
        }
    }
    group.finish();
    Ok(())
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    rules: &RuleSet,
    applying: usize,
) -> Checked {
    let mut store = PagedStore::new(NAMESPACE, BUCKETS);
    let table = Table::open(&mut store, NAMESPACE, BUCKETS, [42; 16], Nanos::ZERO);
    let table = table.map_err(|_gave_up| "the table does not open".to_owned())?;
    let request = request();
    let sample = parse_sample(&request);
    let mut sample = sample.map_err(|_problems| "the request is not valid".to_owned())?;
    let (mut now, mut stats) = (START, StoreStats::default());
    let mut next = || {
        now += APART;
        let clock = Clock::at(Nanos::new(now));
        let outcome = evaluate(rules, &table, &mut store, &mut sample, clock, &mut stats);
        let outcome = black_box(&outcome);
        outcome.rules.len() == applying && !outcome.is_refused()
    };
    let warm = next();
    group.bench_function(id, |bencher| bencher.iter(&mut next));
    if warm && next() {
        Ok(())
    } else {
        Err("other rules apply than should".to_owned())
    }
}

/// A request with some headers that no rule reads.
fn request() -> Value {
    json!({
        "method": "GET",
        "path": "/path7?page=2",
        "host": "api.example.com",
        "source": "192.0.2.7",
        "headers": {
            "user-agent": "curl/8.5.0",
            "accept": "*/*",
            "x-request-id": "6d3e5b8c-2f0f-4f2c-9d6f-0c5a7e1b9a42",
            "x-user-id": "user-0000001",
        },
    })
}

/// Returns rules for other paths, followed by rules for all paths.
fn rules(elsewhere: usize, everywhere: usize) -> Checked<RuleSet> {
    let other = |number| {
        let path = json!({ "prefix": format!("/elsewhere-{number}") });
        rule(&format!("elsewhere-{number}"), &json!({ "path": path }))
    };
    let plain = |number| rule(&format!("everywhere-{number}"), &json!({}));
    let all = (0..elsewhere).map(other).chain((0..everywhere).map(plain));
    let all: Value = all.collect();
    let file = parse(&json!({ "version": 1, "rules": all })).file;
    let file = file.ok_or("the rules are not valid")?;
    let active = |rule| ActiveRule::new(rule, History::default());
    Ok(file.rules.into_iter().map(active).collect())
}

fn rule(name: &str, matches: &Value) -> Value {
    json!({
        "name": name,
        "key": [{ "header": "x-user-id" }],
        "match": matches,
        "limits": [
            { "name": "l", "algorithm": "funnel", "capacity": BURST, "rate": format!("{BURST}/s") },
        ],
    })
}
