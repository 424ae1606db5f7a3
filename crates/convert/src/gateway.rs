//! Converts the `rateLimit` field of Envoy Gateway's `BackendTrafficPolicy`.
//!
//! Envoy Gateway counts a rule separately for each route of the target, unless the rule is
//! `shared`. Global limits are fixed windows in a rate limit service, and local limits are token
//! buckets of Envoy's `local_ratelimit`.

use loudou_limiter::Nanos;
use serde_json::{Value, json};

use crate::conditions::{Conditions, named};
use crate::envoy::ONE_AFTER_ANOTHER;
use crate::ingress::listed;
use crate::model::Model;
use crate::model::envoy::LocalBucket;
use crate::model::service::Window;
use crate::number::{duration, rate, unit};
use crate::out::{Out, Rule, quoted};
use crate::yaml::At;

/// Converts the `BackendTrafficPolicy` objects of all files.
pub(crate) fn convert(objects: &[At], out: &mut Out) {
    let objects: Vec<At> = objects.iter().flat_map(listed).collect();
    let policies = objects.iter().filter(|object| {
        object.get("kind").str() == Some("BackendTrafficPolicy")
            && object.get("spec").get("rateLimit").exists()
    });
    let policies: Vec<(&At, Target)> = policies
        .map(|policy| (policy, Target::of(policy, out)))
        .collect();
    for (policy, _) in &policies {
        let merge = policy.get("spec").get("mergeType");
        if merge.exists() {
            let message = format!(
                "`mergeType: {}` is ignored, so add the rules of the Gateway's policy that also apply to this route",
                quoted(&merge.text().unwrap_or_default())
            );
            out.note(&merge.place(), &message);
        }
    }
    if let [(first, _), _, ..] = policies.as_slice()
        && policies.iter().any(|(_, target)| target.route.is_none())
    {
        out.note(
            &first.place(),
            "the policy of a route replaces the policy of its Gateway, unless it has a `mergeType`; convert the policies of each target separately",
        );
    }
    let first = |scope: &str| {
        let mut all = policies.iter();
        all.find_map(|(policy, _)| {
            let rules = policy.get("spec").get("rateLimit").get(scope).get("rules");
            rules.items().into_iter().next()
        })
    };
    if let (Some(_), Some(global)) = (first("local"), first("global")) {
        out.note(&global.place(), ONE_AFTER_ANOTHER);
    }
    for (policy, target) in &policies {
        let rules = policy
            .get("spec")
            .get("rateLimit")
            .get("global")
            .get("rules");
        for (index, rule) in rules.items().iter().enumerate() {
            target.rule(rule, index, true, false, out);
        }
    }
    for (policy, target) in &policies {
        let local = policy
            .get("spec")
            .get("rateLimit")
            .get("local")
            .get("rules");
        let local = local.items();
        let is_default = |rule: &At| rule.get("clientSelectors").items().is_empty();
        // Rules with selectors come first, because they may have `stop: true`.
        let (defaults, selected): (Vec<_>, Vec<_>) = local
            .iter()
            .enumerate()
            .partition(|(_, rule)| is_default(rule));
        let has_default = !defaults.is_empty();
        for (index, rule) in &selected {
            let stops = has_default && selected.len() == 1;
            target.rule(rule, *index, false, stops, out);
        }
        for (index, rule) in &defaults {
            if selected.len() > 1 {
                let message = "the local rule without clientSelectors also counts requests of the other rules here, and \
                               Envoy Gateway counts only the others";
                out.note(&rule.place(), message);
            }
            target.rule(rule, *index, false, false, out);
        }
    }
}

/// A policy, with the routes to which it applies.
struct Target {
    name: String,
    /// Prefix of the names of the Envoy routes, or `None` for all routes of the filter.
    route: Option<String>,
    difference: Option<String>,
}

impl Target {
    fn of(object: &At, out: &mut Out) -> Self {
        let metadata = object.get("metadata");
        let text = |name: &str| metadata.get(name).text();
        let namespace = text("namespace").unwrap_or_else(|| "default".to_owned());
        let name = text("name").unwrap_or_default();
        let spec = object.get("spec");
        let mut targets = spec.get("targetRefs").items();
        if spec.get("targetRef").exists() {
            targets.push(spec.get("targetRef"));
        }
        let mut route = None;
        let mut difference = None;
        if spec.get("targetSelectors").exists() {
            difference = Some("`targetSelectors` is ignored; attach the rules to these targets, or add `match.route`".to_owned());
        }
        match targets.as_slice() {
            [target] if target.get("kind").str() == Some("HTTPRoute") => {
                let of = target.get("name").text().unwrap_or_default();
                // Envoy Gateway generates Envoy route names with this prefix.
                route = Some(format!("httproute/{namespace}/{of}/"));
                if target.get("sectionName").exists() {
                    difference = Some(
                        "`sectionName` is ignored, so the rule applies to the whole route"
                            .to_owned(),
                    );
                }
            }
            [] => {}
            targets => {
                let names: Vec<String> = targets
                    .iter()
                    .map(|target| {
                        let text = |name: &str| target.get(name).text().unwrap_or_default();
                        format!("{} {}", text("kind"), text("name"))
                    })
                    .collect();
                out.note(
                    &object.place(),
                    &format!(
                        "{} {}: attach the rules to {} by an EnvoyExtensionPolicy",
                        object.get("kind").text().unwrap_or_default(),
                        quoted(&name),
                        quoted(&names.join(", "))
                    ),
                );
            }
        }
        Self {
            name: format!("{namespace}/{name}"),
            route,
            difference,
        }
    }

    /// Adds a rule of the policy to the output.
    fn rule(&self, at: &At, index: usize, is_global: bool, stops: bool, out: &mut Out) {
        let limit = at.get("limit");
        let scope = if is_global { "global" } else { "local" };
        let original = format!(
            "BackendTrafficPolicy {}, {scope} rule {index}: {}",
            self.name,
            limit.json()
        );
        let name = format!("{} {scope} {index}", self.name);
        let mut rule = Rule::new(&name, &at.place(), &original);
        let mut conditions = Conditions::default();
        if let Some(route) = &self.route {
            conditions.route = Some(json!({ "prefix": route }));
        }
        if let Some(difference) = &self.difference {
            rule.differs(difference.clone());
        }
        let is_shared = at.get("shared").truth() == Some(true);
        let mut parts = Vec::new();
        if !is_shared {
            // Without `shared`, each route has its own counter.
            parts.push(json!("route"));
        }
        for selector in at.get("clientSelectors").items() {
            if let Err(why) = select(&selector, &mut conditions, &mut parts, &mut rule) {
                let message = format!("{}: {why}", rule.original());
                out.lost(&selector.place(), &message);
                return;
            }
        }
        let requests = limit.get("requests").number();
        let window = limit.get("unit").str().and_then(unit);
        let (Some(requests), Some(window)) = (requests, window) else {
            let message = format!(
                "{}: expected `requests`, and `unit` Second, Minute, Hour, Day, Month or Year",
                rule.original()
            );
            out.lost(&limit.place(), &message);
            return;
        };
        let counter = format!("{original} {}", at.place());
        let limit = if is_global {
            rule.set("scope", json!("fleet"));
            rule.counts(counter, Model::Window(Window::new(requests, window)));
            // Envoy Gateway places the local rate limit filter before the global one.
            rule.in_step(1);
            json!({ "algorithm": "fixed_window", "capacity": requests, "window": duration(window), "align": "clock" })
        } else {
            let bucket = LocalBucket {
                is_default: at.get("clientSelectors").items().is_empty(),
                ..LocalBucket::new(requests, requests, Nanos::new(window))
            };
            rule.counts(counter, Model::LocalBucket(bucket));
            json!({ "algorithm": "token_bucket", "capacity": requests, "rate": rate(requests, window) })
        };
        cost(&at.get("cost"), requests, &mut rule);
        if let Some(value) = conditions.value() {
            rule.set("match", value);
        }
        let is_shadow = at.get("shadowMode").truth() == Some(true);
        if stops && is_shadow {
            rule.differs("the rule without clientSelectors also counts these requests, because a rule in shadow mode does not stop");
        } else if stops {
            rule.remark(
                "It stops, because the rule without clientSelectors counts only the other requests",
            );
            rule.set("stop", json!(true));
        }
        rule.set("key", Value::Array(parts));
        rule.set("limits", json!([limit]));
        if is_shadow {
            rule.set("mode", json!("shadow"));
        }
        out.add(rule);
    }
}

/// Adds the conditions and key parts for a client selector.
fn select(
    selector: &At,
    conditions: &mut Conditions,
    parts: &mut Vec<Value>,
    rule: &mut Rule,
) -> Result<(), String> {
    for header in selector.get("headers").items() {
        let name = header.get("name").text().unwrap_or_default();
        let value = header.get("value").text().unwrap_or_default();
        let test = match header.get("type").str() {
            Some("Distinct") if header.get("invert").truth() == Some(true) => {
                return Err("type Distinct of a header with `invert`".to_owned());
            }
            Some("Distinct") => {
                parts.push(json!({ "header": name }));
                continue;
            }
            Some("RegularExpression") => named(&name, "regex", value),
            None | Some("Exact") => named(&name, "exact", value),
            Some(other) => return Err(format!("type {} of a header", quoted(other))),
        };
        if header.get("invert").truth() == Some(true) {
            exclude(conditions, json!({ "headers": [test] }))?;
        } else {
            conditions.headers.push(test);
        }
    }
    let methods = selector.get("methods").items();
    let inverted = |method: &At| method.get("invert").truth() == Some(true);
    if methods.iter().any(inverted) {
        if methods.len() > 1 {
            return Err("several methods with `invert`".to_owned());
        }
        let methods: Vec<String> = methods
            .iter()
            .filter_map(|method| method.get("value").text())
            .collect();
        exclude(conditions, json!({ "methods": methods }))?;
    } else if !methods.is_empty() {
        let methods = methods
            .iter()
            .filter_map(|method| method.get("value").text());
        let methods: Vec<String> = methods.collect();
        if !conditions.methods.is_empty() && conditions.methods != methods {
            return Err("two selectors with different methods".to_owned());
        }
        conditions.methods = methods;
    }
    let path = selector.get("path");
    if path.exists() {
        rule.differs(
            "the path is compared without its query, and Envoy Gateway compares both together",
        );
        let value = path.get("value").text().unwrap_or_else(|| "/".to_owned());
        let test = match path.get("type").str() {
            Some("Exact") => Some(json!({ "exact": value })),
            Some("RegularExpression") => Some(json!({ "regex": value })),
            None | Some("PathPrefix") => crate::routes::prefix_test(&value),
            Some(other) => return Err(format!("type {} of a path", quoted(other))),
        };
        if let Some(test) = test {
            if path.get("invert").truth() == Some(true) {
                exclude(conditions, json!({ "path": test }))?;
            } else if !conditions.set_path(test) {
                return Err("two paths".to_owned());
            }
        }
    }
    let source = selector.get("sourceCIDR");
    if source.exists() {
        let value = source.get("value").text().unwrap_or_default();
        if source.get("invert").truth() == Some(true) {
            exclude(conditions, json!({ "source": [value] }))?;
        } else if !conditions.source.is_empty() && conditions.source != [value.clone()] {
            return Err("two networks".to_owned());
        } else {
            conditions.source = vec![value];
        }
        match source.get("type").str() {
            Some("Distinct") => parts.push(json!({ "source": { "v6_prefix": 128 } })),
            None | Some("Exact") => {}
            Some(other) => return Err(format!("type {} of sourceCIDR", quoted(other))),
        }
    }
    let known = ["headers", "methods", "path", "sourceCIDR"];
    if let Some((name, _)) = selector
        .fields()
        .iter()
        .find(|(name, _)| !known.contains(&name.as_str()))
    {
        return Err(format!("the selector `{}`", quoted(name)));
    }
    Ok(())
}

fn exclude(conditions: &mut Conditions, excluded: Value) -> Result<(), String> {
    if conditions.exclude(excluded) {
        Ok(())
    } else {
        Err("a second `invert`".to_owned())
    }
}

/// Sets the rule's cost of a request.
fn cost(cost: &At, capacity: u64, rule: &mut Rule) {
    let request = cost.get("request");
    let metadata = request.get("metadata");
    if let Some(number) = request.get("number").number() {
        if number == 0 {
            rule.differs("each request costs 1, and 0 in the source, which only tests the counter; see `cost.settle`");
        } else if number > 1 {
            rule.set("cost", json!(number));
        }
    } else if metadata.exists() {
        let text = |name: &str| metadata.get(name).text().unwrap_or_default();
        rule.set(
            "cost",
            json!({ "metadata": [text("namespace"), text("key")], "default": 1, "max": capacity }),
        );
        rule.differs("a request that costs more than the limit counts as the limit, and is refused in the source");
    }
    if cost.get("response").exists() {
        rule.differs(
            "the cost of the response is ignored; see `cost.settle` for costs that are known at the end",
        );
    }
}
