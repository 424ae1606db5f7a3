//! Converts the configuration files of Envoy's rate limit service (`envoyproxy/ratelimit`),
//! together with the actions of Envoy's routes.
//!
//! The service counts in windows that start at multiples of their unit, with one counter per
//! descriptor. This corresponds to a `fixed_window` with `align: clock` and `scope: fleet`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::actions::{Actions, Entry, EntryValue, Input};
use crate::conditions::{Conditions, bucket_key};
use crate::envoy::{fraction, status};
use crate::model::Model;
use crate::model::service::Window;
use crate::number::{duration, unit};
use crate::out::{Out, Place, Rule, quoted};
use crate::prove::Counting;
use crate::routes::Routes;
use crate::yaml::At;

/// Maximum nesting depth of descriptors.
const MAX_DEPTH: usize = 16;

/// Maximum capacity of a limit.
const MAX_CAPACITY: u64 = 1_000_000_000;

const COUNTED: &str = "a request that one descriptor refuses takes nothing from the others, and the service counts it in all";

const SHARED: &str = "the service counts the requests of several routes in one counter, and this rule counts its own requests only";

/// A list of actions, with the name of the route that it belongs to.
struct Described {
    name: String,
    actions: Actions,
}

/// State of a descent through the tree of descriptors.
#[derive(Clone, Default)]
struct Walk {
    conditions: Conditions,
    parts: Vec<Value>,
    words: Vec<String>,
    differences: Vec<String>,
}

struct Service<'a> {
    domain: String,
    status: Option<u64>,
    /// The mode of all rules, or `None` if the filter enforces its limits.
    mode: Option<&'static str>,
    described: &'a Described,
    /// Places of the descriptors that requests can reach.
    reached: &'a mut BTreeSet<(usize, usize)>,
    /// Rules, each with the place of its descriptor.
    rules: &'a mut Vec<((usize, usize), Rule)>,
}

/// Converts the configuration files of rate limit services.
pub(crate) fn convert(services: &[At], routes: &Routes, out: &mut Out) {
    let mut described = described(routes, out);
    for filter in &routes.global {
        out.denies_on_outage |= filter.proto("failure_mode_deny").truth() == Some(true);
        let domain = filter.proto("domain").text().unwrap_or_default();
        let has_file = services
            .iter()
            .any(|service| service.get("domain").text() == Some(domain.clone()));
        if !has_file {
            let message = format!(
                "the limits of domain `{}`; name the file of the rate limit service as another FILE",
                quoted(&domain)
            );
            out.lost(&filter.place(), &message);
        }
    }
    for service in services {
        let domain = service.get("domain").text().unwrap_or_default();
        let filter = routes
            .global
            .iter()
            .find(|filter| filter.proto("domain").text().as_deref() == Some(&domain));
        let status = filter.and_then(|filter| status(&filter.proto("rate_limited_status")));
        let mode = filter.and_then(|filter| mode(filter, routes, out));
        if routes.global.is_empty() && described.is_empty() {
            described = guessed(service, out);
        }
        let (mut reached, mut rules) = (BTreeSet::new(), Vec::new());
        for one in &described {
            let mut inner = Service {
                domain: domain.clone(),
                status,
                mode,
                described: one,
                reached: &mut reached,
                rules: &mut rules,
            };
            let walk = Walk {
                conditions: one.actions.conditions.clone(),
                differences: one.actions.differences.clone(),
                ..Walk::default()
            };
            inner.walk(&service.get("descriptors"), 0, &walk, out);
        }
        let nodes: Vec<(usize, usize)> = rules.iter().map(|(node, _)| *node).collect();
        for (node, mut rule) in rules {
            if nodes.iter().filter(|other| **other == node).count() > 1 {
                rule.differs(SHARED);
            }
            if let Some(filter) = filter {
                rule.in_step(routes.step(filter));
            }
            out.add(rule);
        }
        unreached(&service.get("descriptors"), &reached, 0, out);
    }
}

/// Returns the mode for the rules of a filter, and warns about filter settings that rules cannot
/// express.
fn mode(filter: &At, routes: &Routes, out: &mut Out) -> Option<&'static str> {
    let kind = filter.proto("request_type");
    if let Some(kind) = kind.str().filter(|kind| *kind != "both") {
        let message = format!(
            "the rules apply to all requests, and the filter to `request_type: {}`",
            quoted(kind)
        );
        out.note(&filter.place(), &message);
    }
    let mut mode = None;
    for (name, off) in [("filter_enforced", "shadow"), ("filter_enabled", "off")] {
        let share = filter.proto(name);
        if !share.exists() {
            continue;
        }
        let (numerator, whole) = fraction(&share);
        if numerator == 0 {
            mode = Some(off);
        } else if numerator < whole {
            let message = format!(
                "the rules apply to all requests, and `{name}` chooses {numerator} of {whole}"
            );
            out.note(&share.place(), &message);
        }
    }
    if routes.disabled.contains(&filter.place()) {
        out.note(
            &filter.place(),
            "the filter is `disabled`, so its rules are off; a route that switches it on needs them",
        );
        mode = Some("off");
    }
    mode
}

/// Returns the actions of all routes that use a rate limit service.
fn described(routes: &Routes, out: &mut Out) -> Vec<Described> {
    let mut all = Vec::new();
    if routes.global.is_empty() {
        return all;
    }
    let mut is_counted = false;
    for route in routes.all.iter().filter(|route| !route.is_service_off) {
        for rate_limit in &route.rate_limits {
            match Actions::read(rate_limit) {
                Ok(actions) if actions.at_end => out.lost(
                    &rate_limit.place(),
                    "`apply_on_stream_done`; see `cost.settle` for costs that are known at the end",
                ),
                Ok(mut actions) => {
                    actions.within(&route.conditions);
                    actions.differences.extend(route.differences.clone());
                    if route.rate_limits.len() > 1 && !is_counted {
                        // This difference is the same for all rules, so one warning is enough.
                        out.note(&rate_limit.place(), COUNTED);
                        is_counted = true;
                    }
                    all.push(Described {
                        name: route.name.clone(),
                        actions,
                    });
                }
                Err(what) => out.lost(
                    &rate_limit.place(),
                    &format!("actions with {what}, which has no counterpart"),
                ),
            }
        }
    }
    all
}

/// Returns actions for the descriptor keys that have a fixed meaning. They replace the actions of
/// an Envoy configuration if none is given.
fn guessed(service: &At, out: &mut Out) -> Vec<Described> {
    out.note(
        &service.place(),
        "the file does not have the actions that make its descriptors, so only `remote_address` and `generic_key` are \
         converted; name the envoy.yaml with `rate_limits` as another FILE",
    );
    let mut all = Vec::new();
    let mut lists: Vec<(At, Vec<Entry>)> = vec![(service.get("descriptors"), Vec::new())];
    while let Some((nodes, entries)) = lists.pop() {
        for node in nodes.items() {
            let mut entries = entries.clone();
            let key = node.get("key").text().unwrap_or_default();
            let value = match (key.as_str(), node.get("value").text()) {
                ("remote_address", _) => EntryValue::Of(Input::Address { v4: 32, v6: 128 }),
                ("generic_key", Some(value)) => EntryValue::Fixed(value),
                _ => continue,
            };
            entries.push(Entry { key, value });
            if entries.len() < MAX_DEPTH {
                lists.push((node.get("descriptors"), entries.clone()));
            }
            let is_new = |one: &Described| {
                let keys = |entries: &[Entry]| -> Vec<String> {
                    entries
                        .iter()
                        .map(|entry| format!("{:?}", entry.value))
                        .collect()
                };
                keys(&one.actions.entries) != keys(&entries)
            };
            if node.get("rate_limit").exists() && all.iter().all(is_new) && all.len() < 256 {
                let mut differences = Vec::new();
                if entries
                    .iter()
                    .any(|entry| matches!(entry.value, EntryValue::Fixed(_)))
                {
                    differences.push("the rule applies to all requests; add the `match` of the route with this `generic_key`".to_owned());
                }
                all.push(Described {
                    name: String::new(),
                    actions: Actions {
                        entries,
                        conditions: Conditions::default(),
                        cost: None,
                        differences,
                        at_end: false,
                    },
                });
            }
        }
    }
    all
}

/// Warns about each limit whose descriptor is not produced by any actions.
fn unreached(nodes: &At, reached: &BTreeSet<(usize, usize)>, depth: usize, out: &mut Out) {
    for node in nodes.items() {
        if node.get("rate_limit").exists() && !reached.contains(&id(&node.place())) {
            let message = format!(
                "descriptor {}: no `rate_limits` in the given files make it",
                quoted(&words(&node))
            );
            out.lost(&node.place(), &message);
        }
        if depth < MAX_DEPTH {
            unreached(
                &node.get("descriptors"),
                reached,
                depth.saturating_add(1),
                out,
            );
        }
    }
}

const fn id(place: &Place) -> (usize, usize) {
    (place.position.line, place.position.column)
}

/// Returns a descriptor as `KEY` or `KEY=VALUE`.
fn words(node: &At) -> String {
    let key = node.get("key").text().unwrap_or_default();
    match node.get("value").text() {
        Some(value) => format!("{key}={value}"),
        None => key,
    }
}

impl Service<'_> {
    /// Descends the tree of descriptors, and matches the nodes of this level with the entry at
    /// `index`. The number of entries limits the recursion.
    fn walk(&mut self, nodes: &At, index: usize, walk: &Walk, out: &mut Out) {
        let described = self.described;
        let Some(entry) = described.actions.entries.get(index) else {
            return;
        };
        let nodes: Vec<At> = nodes.items();
        let nodes: Vec<At> = nodes
            .into_iter()
            .filter(|node| node.get("key").text().as_deref() == Some(&entry.key))
            .collect();
        let value = |node: &At| node.get("value").text().filter(|value| !value.is_empty());
        let is_wild = |node: &At| value(node).is_some_and(|value| value.ends_with('*'));
        let plain = nodes.iter().find(|node| value(node).is_none());
        match &entry.value {
            EntryValue::Fixed(fixed) => {
                let exact = nodes
                    .iter()
                    .find(|node| value(node).as_ref() == Some(fixed));
                let wild = || {
                    nodes.iter().find(|node| {
                        is_wild(node)
                            && value(node)
                                .is_some_and(|value| fixed.starts_with(value.trim_end_matches('*')))
                    })
                };
                if let Some(node) = exact.or_else(wild).or(plain) {
                    self.node(node, index, walk.clone(), Vec::new(), out);
                }
            }
            EntryValue::Of(input) => {
                let mut others = Vec::new();
                let mut overrides = Vec::new();
                let is_last = index.saturating_add(1) == described.actions.entries.len();
                // An override belongs to the rule of the descriptor without a value, and has the
                // mode of that rule.
                let takes_overrides =
                    is_last && walk.parts.is_empty() && plain.is_some_and(enforces);
                for node in &nodes {
                    let Some(text) = value(node) else {
                        continue;
                    };
                    if is_wild(node) {
                        let mut inner = walk.clone();
                        let prefix = text.trim_end_matches('*');
                        if !input.require_prefix(prefix, &mut inner.conditions) {
                            inner
                                .differences
                                .push(format!("the rule does not test `{}`", quoted(&text)));
                        }
                        if plain.is_some() || nodes.len() > 1 {
                            inner.differences.push("the service uses only the most exact descriptor, and other rules for this key also apply".to_owned());
                        }
                        if node.get("share_threshold").truth() != Some(true) {
                            inner.parts.push(input.part());
                        }
                        self.node(node, index, inner, Vec::new(), out);
                    } else if let (true, Some(exception)) = (takes_overrides, exception(node)) {
                        self.reached.insert(id(&node.place()));
                        overrides.push((bucket_key(std::slice::from_ref(&text)), exception));
                    } else {
                        let mut inner = walk.clone();
                        if !input.require(std::slice::from_ref(&text), &mut inner.conditions) {
                            inner
                                .differences
                                .push(format!("the rule does not test `{}`", quoted(&text)));
                        }
                        self.node(node, index, inner, Vec::new(), out);
                        others.push(text);
                    }
                }
                if let Some(node) = plain {
                    let mut inner = walk.clone();
                    inner.parts.push(input.part());
                    if !others.is_empty() && !input.exclude(&others, &mut inner.conditions) {
                        inner.differences.push(
                            "the rule also applies to values that have a descriptor of their own"
                                .to_owned(),
                        );
                    }
                    self.node(node, index, inner, overrides, out);
                }
            }
        }
    }

    /// Adds the rule of a descriptor if this is the last entry, and otherwise descends to the next
    /// entry.
    fn node(
        &mut self,
        node: &At,
        index: usize,
        mut walk: Walk,
        overrides: Vec<(String, Exception)>,
        out: &mut Out,
    ) {
        walk.words.push(words(node));
        if index.saturating_add(1) < self.described.actions.entries.len() {
            self.walk(
                &node.get("descriptors"),
                index.saturating_add(1),
                &walk,
                out,
            );
            return;
        }
        let limit = node.get("rate_limit");
        if !limit.exists() {
            return;
        }
        self.reached.insert(id(&node.place()));
        if limit.get("unlimited").truth() == Some(true) {
            return;
        }
        let name = [
            self.domain.as_str(),
            self.described.name.as_str(),
            &walk.words.join(" "),
        ]
        .join(" ");
        let original = format!(
            "descriptor {} of domain {}: {}",
            walk.words.join(" > "),
            self.domain,
            limit.json()
        );
        let mut rule = Rule::new(&name, &node.place(), &original);
        for difference in walk.differences {
            rule.differs(difference);
        }
        if limit.get("replaces").exists() {
            rule.differs("`replaces` is ignored, so the replaced limits also apply");
        }
        rule.set("scope", json!("fleet"));
        if let Some(value) = walk.conditions.value() {
            rule.set("match", value);
        }
        rule.set("key", json!(walk.parts));
        let Some((window, model)) = window(&limit) else {
            let message = format!(
                "{}: expected `unit` second, minute, hour, day, week, month or year, and `requests_per_unit`",
                rule.original()
            );
            out.lost(&node.place(), &message);
            return;
        };
        rule.set("limits", json!([window]));
        rule.counts(node.place().to_string(), Model::Window(model));
        if !overrides.is_empty() {
            let mut values = Map::new();
            for (key, Exception { value, counting }) in overrides {
                let counting = counting.map(|counting| (key.clone(), counting));
                rule.counted.overrides.extend(counting);
                values.insert(key, value);
            }
            rule.set("overrides", Value::Object(values));
        }
        if let Some(cost) = &self.described.actions.cost {
            rule.set("cost", cost.clone());
            rule.differs(
                "a refused request takes nothing, and the service adds its cost to the counter",
            );
        }
        if node.get("shadow_mode").truth() == Some(true) {
            rule.set("mode", json!("shadow"));
        }
        if let Some(mode) = self.mode {
            rule.set("mode", json!(mode));
        }
        if let Some(status) = self.status.filter(|status| *status >= 400) {
            rule.status(status);
        }
        self.rules.push((id(&node.place()), rule));
    }
}

/// Converts a `rate_limit` to a limit of a rule file and its model.
fn window(limit: &At) -> Option<(Value, Window)> {
    let nanos = unit(limit.get("unit").str()?)?;
    let capacity = limit.get("requests_per_unit").number()?;
    let value = json!({
        "algorithm": "fixed_window",
        "capacity": capacity,
        "window": duration(nanos),
        "align": "clock",
    });
    Some((value, Window::new(capacity, nanos)))
}

/// Returns true if the limit of a descriptor produces a rule that can refuse requests.
fn enforces(node: &At) -> bool {
    let limit = node.get("rate_limit");
    limit.get("unlimited").truth() != Some(true)
        && node.get("shadow_mode").truth() != Some(true)
        && has_capacity(&limit)
        && window(&limit).is_some()
}

/// Returns true if a rule file can express the capacity of a limit. A limit with any other capacity
/// needs its own rule, so that only this rule is rejected.
fn has_capacity(limit: &At) -> bool {
    let requests = limit.get("requests_per_unit").number();
    requests.is_some_and(|requests| (1..=MAX_CAPACITY).contains(&requests))
}

/// The override for a value, with the service's own limit.
struct Exception {
    value: Value,
    counting: Option<Counting>,
}

/// Returns the override for a descriptor with a value, or `None` if the descriptor needs its own
/// rule.
fn exception(node: &At) -> Option<Exception> {
    let limit = node.get("rate_limit");
    if !limit.exists() || limit.get("unlimited").truth() == Some(true) {
        return Some(Exception {
            value: json!("unlimited"),
            counting: None,
        });
    }
    if node.get("shadow_mode").truth() == Some(true) || !has_capacity(&limit) {
        return None;
    }
    let (window, model) = window(&limit)?;
    Some(Exception {
        value: json!({ "limits": [window] }),
        counting: Some(Counting {
            counter: node.place().to_string(),
            model: Model::Window(model),
            step: 0,
        }),
    })
}
