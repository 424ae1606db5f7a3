//! The index of a rule set, compared with testing each rule.

use loudou_limiter::{Clock, Nanos};
use loudou_rules::evaluate::evaluate;
use loudou_rules::rule_set::ActiveRule;
use loudou_rules::rule_set::RuleSet;
use loudou_rules::versions::History;
use loudou_store::memory::MemoryStore;
use loudou_store::{StoreStats, Table};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fake, rule};

const PATHS: [&str; 12] = [
    "/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/a//b", "//a", "/b/a/b", "/A", "/a/b/c/d", "/x",
];
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "M-SEARCH"];
const HOSTS: [&str; 4] = ["a", "a.b", "b", "c"];

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn path() -> impl Strategy<Value = Value> {
    let kinds = ["prefix", "exact", "suffix", "regex"];
    let templates = [
        "/{x}",
        "/a/{x}",
        "/a/{x}/",
        "/{x}/b",
        "/a/b",
        "/a/{x}/c/{y}",
    ];
    prop_oneof![
        (one_of(&PATHS), prop::sample::select(kinds.to_vec()))
            .prop_map(|(path, kind)| json!({ kind: path })),
        prop::sample::select(templates.to_vec()).prop_map(|path| json!({ "template": path })),
    ]
}

fn matches() -> impl Strategy<Value = Value> {
    let host = (
        one_of(&["exact", "exact", "prefix", "suffix"]),
        one_of(&HOSTS),
    );
    let host = host.prop_map(|(kind, host)| json!({ kind: host }));
    let methods = prop::collection::vec(one_of(&METHODS), 0..3);
    let plain = (
        prop::option::of(path()),
        prop::option::of(host),
        prop::option::of(methods),
    )
        .prop_map(|(path, host, methods)| json!({ "path": path, "host": host, "methods": methods }))
        .boxed();
    (plain.clone(), prop::option::of(plain)).prop_map(|(mut matches, not)| {
        matches["not"] = json!(not);
        matches
    })
}

fn request() -> impl Strategy<Value = Fake> {
    let tail = one_of(&["", "?a=/b", "#/a", "/", "?"]);
    let path = (one_of(&PATHS), tail).prop_map(|(path, tail)| format!("{path}{tail}"));
    let host =
        (one_of(&HOSTS), one_of(&["", ":80", "."])).prop_map(|(host, end)| format!("{host}{end}"));
    (
        prop::option::of(path),
        prop::option::of(one_of(&METHODS)),
        prop::option::of(host),
    )
        .prop_map(|(path, method, host)| {
            let mut fake = Fake {
                path: path.map(String::into_bytes),
                method: method.map(|method| method.as_bytes().to_vec()),
                ..Fake::default()
            };
            if let Some(host) = host {
                fake = fake.with(":authority", host.to_ascii_uppercase());
            }
            fake
        })
}

/// The rules that answered.
fn asked(rules: &RuleSet, request: &Fake) -> Vec<usize> {
    let mut store = MemoryStore::new();
    let table = Table::open(&mut store, "test", 256, [3; 16], Nanos::ZERO).expect("opens");
    let (mut request, mut stats) = (request.clone(), StoreStats::default());
    let clock = Clock::at(Nanos::ZERO);
    let outcome = evaluate(rules, &table, &mut store, &mut request, clock, &mut stats);
    outcome.rules.iter().map(|said| said.rule).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn as_asking_each_rule(
        matches in prop::collection::vec(matches(), 0..80),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let rules: RuleSet = matches
            .iter()
            .enumerate()
            .map(|(n, matches)| rule(&json!({ "name": format!("r{n}"), "mode": "shadow", "match": matches })))
            .map(|rule| ActiveRule::new(rule, History::default()))
            .collect();
        for request in requests {
            let holds = |rule: &ActiveRule| rule.rule().matches.holds(&mut request.clone());
            let each = rules.iter().enumerate().filter(|(_, rule)| holds(rule));
            let each: Vec<usize> = each.map(|(index, _)| index).collect();
            prop_assert_eq!(asked(&rules, &request), each, "{:?}", request);
        }
    }
}

/// There is one lookup for each kind of test, for any number of rules.
#[test]
fn many_rules_read_a_request_once() {
    let rules: RuleSet = (0..256)
        .map(|n| {
            let matches = json!({ "path": { "prefix": format!("/p/{n}") }, "host": { "exact": "a" },
                "headers": [{ "name": "x", "present": true }] });
            rule(&json!({ "name": format!("r{n}"), "mode": "shadow", "match": matches }))
        })
        .map(|rule| ActiveRule::new(rule, History::default()))
        .collect();
    let mut request = Fake::to("/p/255/x").with(":authority", "a").with("x", "");
    assert_eq!(asked(&rules, &request), [255]);
    let mut store = MemoryStore::new();
    let table = Table::open(&mut store, "test", 256, [3; 16], Nanos::ZERO).expect("opens");
    let mut stats = StoreStats::default();
    evaluate(
        &rules,
        &table,
        &mut store,
        &mut request,
        Clock::at(Nanos::ZERO),
        &mut stats,
    );
    assert_eq!(request.asked, [":authority", ":authority", "x"]);
}
