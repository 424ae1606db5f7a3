//! Envoy's `rate_limits`: lists of actions that describe a request with key-value pairs.

use serde_json::{Value, json};

use crate::conditions::{Conditions, any_of, named, string_test};
use crate::out::quoted;
use crate::yaml::At;

/// A request property from which an action takes its value.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Header(String),
    Query(String),
    Metadata(Value),
    Address { v4: u64, v6: u64 },
}

/// An action, represented by the key-value pair that it adds.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: EntryValue,
}

#[derive(Clone, Debug)]
pub(crate) enum EntryValue {
    /// A value that does not depend on the request.
    Fixed(String),
    /// A value that is read from the request.
    Of(Input),
}

/// One `rate_limits` element: a list of actions. If an action adds no pair, Envoy ignores the whole
/// list for the request.
#[derive(Clone, Debug)]
pub(crate) struct Actions {
    pub(crate) entries: Vec<Entry>,
    /// Conditions under which every action adds a pair.
    pub(crate) conditions: Conditions,
    pub(crate) cost: Option<Value>,
    pub(crate) differences: Vec<String>,
    /// True if Envoy applies the actions when the request has ended.
    pub(crate) at_end: bool,
}

impl Input {
    /// Returns the part of a rule's key that reads this value.
    pub(crate) fn part(&self) -> Value {
        match self {
            Self::Header(name) => match name.to_ascii_lowercase().as_str() {
                ":path" => json!({ "path": { "normalize": false } }),
                ":method" => json!("method"),
                ":authority" | "host" => json!("host"),
                _ => json!({ "header": name }),
            },
            Self::Query(name) => json!({ "query": name }),
            Self::Metadata(path) => json!({ "metadata": path }),
            Self::Address { v4: 32, v6 } => json!({ "source": { "v6_prefix": v6 } }),
            Self::Address { v4, v6 } => json!({ "source": { "v4_prefix": v4, "v6_prefix": v6 } }),
        }
    }

    /// Restricts a match to requests in which this property has one of the given values. Returns
    /// false if a match cannot test the property.
    pub(crate) fn require(&self, texts: &[String], conditions: &mut Conditions) -> bool {
        let (test, value) = any_of(texts);
        self.test((test, &value), texts, conditions)
    }

    /// Restricts a match to requests in which this property starts with `prefix`.
    pub(crate) fn require_prefix(&self, prefix: &str, conditions: &mut Conditions) -> bool {
        !matches!(self, Self::Address { .. }) && self.test(("prefix", prefix), &[], conditions)
    }

    fn test(
        &self,
        (test, value): (&str, &str),
        texts: &[String],
        conditions: &mut Conditions,
    ) -> bool {
        match self {
            Self::Header(name) => conditions.headers.push(named(name, test, value)),
            Self::Query(name) => conditions.query.push(named(name, test, value)),
            Self::Metadata(path) => conditions
                .metadata
                .push(json!({ "path": path, test: value })),
            Self::Address { .. } if conditions.source.is_empty() => {
                conditions.source.extend_from_slice(texts);
            }
            Self::Address { .. } => return false,
        }
        true
    }

    /// Excludes requests in which this property has one of the given values.
    pub(crate) fn exclude(&self, texts: &[String], conditions: &mut Conditions) -> bool {
        let mut excluded = Conditions::default();
        self.require(texts, &mut excluded)
            && excluded
                .value()
                .is_some_and(|excluded| conditions.exclude(excluded))
    }
}

impl Actions {
    /// Reads an element of `rate_limits`. The error names the field that has no counterpart in a
    /// rule file.
    pub(crate) fn read(rate_limit: &At) -> Result<Self, String> {
        let mut actions = Self {
            entries: Vec::new(),
            conditions: Conditions::default(),
            cost: None,
            differences: Vec::new(),
            at_end: rate_limit.proto("apply_on_stream_done").truth() == Some(true),
        };
        if rate_limit.proto("stage").number().unwrap_or(0) > 0 {
            actions
                .differences
                .push("its `stage` is ignored, so it applies with all others".to_owned());
        }
        for name in ["limit", "disable_key"] {
            if rate_limit.proto(name).exists() {
                actions.differences.push(format!("its `{name}` is ignored"));
            }
        }
        let hits = rate_limit.proto("hits_addend");
        if let Some(number) = hits.proto("number").number() {
            actions.cost = Some(json!(number));
        } else if hits.exists() {
            actions.differences.push(format!(
                "each request costs 1, and {} in Envoy",
                quoted(&hits.json())
            ));
        }
        for action in rate_limit.proto("actions").items() {
            actions.action(&action)?;
        }
        Ok(actions)
    }

    /// Restricts the actions to the requests of a route.
    pub(crate) fn within(&mut self, route: &Conditions) {
        if !self.conditions.meet(route) {
            self.differences.push(
                "the rule does not test all conditions of its route, because a match has each condition only once"
                    .to_owned(),
            );
        }
    }

    fn action(&mut self, action: &At) -> Result<(), String> {
        let Some((_, inner)) = action.fields().into_iter().next() else {
            return Err("an empty action".to_owned());
        };
        let is = |name: &str| action.proto(name).exists();
        let key = |default: &str| {
            let key = inner.proto("descriptor_key").text();
            key.unwrap_or_else(|| default.to_owned())
        };
        if is("generic_key") {
            let value = inner.proto("descriptor_value").text().unwrap_or_default();
            self.add(key("generic_key"), EntryValue::Fixed(value));
        } else if is("request_headers") {
            let name = inner.proto("header_name").text().unwrap_or_default();
            match name.to_ascii_lowercase().as_str() {
                ":path" => self.differences.push(
                    "the key is the path without its query, and Envoy's `:path` has the query".to_owned(),
                ),
                ":authority" | "host" => self.differences.push(
                    "the key is the host without its port, and Envoy's `:authority` may have a port".to_owned(),
                ),
                _ => {}
            }
            self.skips(&inner);
            self.add(key(""), EntryValue::Of(Input::Header(name)));
        } else if is("query_parameters") {
            let name = inner
                .proto("query_parameter_name")
                .text()
                .unwrap_or_default();
            self.skips(&inner);
            self.add(key(""), EntryValue::Of(Input::Query(name)));
        } else if is("remote_address") {
            let input = Input::Address { v4: 32, v6: 128 };
            self.add("remote_address".to_owned(), EntryValue::Of(input));
        } else if is("masked_remote_address") {
            let length = |name: &str, default| inner.proto(name).number().unwrap_or(default);
            let input = Input::Address {
                v4: length("v4_prefix_mask_len", 32),
                v6: length("v6_prefix_mask_len", 128),
            };
            self.add("masked_remote_address".to_owned(), EntryValue::Of(input));
        } else if is("metadata") || is("dynamic_metadata") {
            if inner.proto("source").str() == Some("ROUTE_ENTRY") {
                return Err("metadata of the route".to_owned());
            }
            if inner.proto("default_value").exists() {
                self.differences.push(
                    "a request without the metadata is not limited here, and counts by `default_value` in Envoy"
                        .to_owned(),
                );
            }
            let of = inner.proto("metadata_key");
            let mut path: Vec<Value> = vec![of.proto("key").value().clone()];
            path.extend(
                of.proto("path")
                    .items()
                    .iter()
                    .map(|step| step.proto("key").value().clone()),
            );
            self.add(key(""), EntryValue::Of(Input::Metadata(json!(path))));
        } else if is("header_value_match") || is("query_parameter_value_match") {
            let is_header = is("header_value_match");
            self.value_match(&inner, is_header)?;
            let default = if is_header {
                "header_match"
            } else {
                "query_match"
            };
            let value = inner.proto("descriptor_value").text().unwrap_or_default();
            self.add(key(default), EntryValue::Fixed(value));
        } else {
            return Err(format!("the action {}", quoted(&action.json())));
        }
        Ok(())
    }

    fn add(&mut self, key: String, value: EntryValue) {
        self.entries.push(Entry { key, value });
    }

    fn skips(&mut self, action: &At) {
        if action.proto("skip_if_absent").truth() == Some(true) {
            self.differences.push(
                "a request without this value is not limited here, and Envoy then uses the other values alone".to_owned(),
            );
        }
    }

    fn value_match(&mut self, action: &At, is_header: bool) -> Result<(), String> {
        let list = if is_header {
            "headers"
        } else {
            "query_parameters"
        };
        let mut inner = Conditions::default();
        for matcher in action.proto(list).items() {
            add_matcher(&matcher, is_header, &mut inner)?;
        }
        if action.proto("expect_match").truth() == Some(false) {
            let excluded = inner.value();
            if !excluded.is_some_and(|excluded| self.conditions.exclude(excluded)) {
                return Err("a second negation".to_owned());
            }
            return Ok(());
        }
        self.conditions.headers.extend(inner.headers);
        self.conditions.query.extend(inner.query);
        if inner.not.is_some_and(|not| !self.conditions.exclude(not)) {
            return Err("a second negation".to_owned());
        }
        Ok(())
    }
}

/// Adds a condition for Envoy's matcher of a header or query parameter.
pub(crate) fn add_matcher(
    matcher: &At,
    is_header: bool,
    conditions: &mut Conditions,
) -> Result<(), String> {
    let name = matcher.proto("name").text().unwrap_or_default();
    let old = ["exact", "prefix", "suffix"];
    let old = old.into_iter().find_map(|test| {
        let text = matcher.proto(&format!("{test}_match")).text()?;
        Some((test, Value::from(text)))
    });
    let regex = matcher.proto("safe_regex_match").proto("regex").text();
    let (test, value) = if matcher.proto("string_match").exists() {
        let (test, value) = string_test(&matcher.proto("string_match"))?;
        (test, Value::from(value))
    } else if let Some(old) = old {
        old
    } else if let Some(present) = matcher.proto("present_match").truth() {
        ("present", json!(present))
    } else if let Some(regex) = regex {
        ("regex", json!(regex))
    } else if let Some(part) = matcher.proto("contains_match").text() {
        let regex = format!(".*{}.*", crate::conditions::escaped(&part));
        ("regex", json!(regex))
    } else if matcher.fields().len() == 1 {
        ("present", json!(true))
    } else {
        return Err(format!("the test {}", quoted(&matcher.json())));
    };
    let test = named(&name, test, value);
    let field = if is_header { "headers" } else { "query" };
    if matcher.proto("invert_match").truth() == Some(true) {
        if !conditions.exclude(json!({ field: [test] })) {
            return Err("a second negation".to_owned());
        }
    } else if is_header {
        conditions.headers.push(test);
    } else {
        conditions.query.push(test);
    }
    Ok(())
}
