//! From a request to a verdict, by the matching rules, the request's buckets, and their decisions.
#![cfg(test)]

use std::borrow::Cow;
use std::collections::BTreeMap;

use loudou_rules::config::parse_rule;
use loudou_rules::request::Request;
use loudou_rules::rule::Rule;
use serde_json::{Value, json};

mod costs;
mod escaping;
mod evaluating;
mod indexed;
mod long_values;
mod matching;
mod metadata;
mod numbers;
mod overriding;
mod parts;
mod paths;
mod patterns;
mod repeated;
mod settling;
mod tags;

/// A request of arbitrary bytes.
#[derive(Clone, Debug, Default)]
struct Fake {
    method: Option<Vec<u8>>,
    path: Option<Vec<u8>>,
    source: Option<Vec<u8>>,
    route: Option<Vec<u8>>,
    headers: BTreeMap<String, Vec<u8>>,
    client_cert: Option<Vec<u8>>,
    cluster: Option<Vec<u8>>,
    /// By the path, with `/` between the steps.
    metadata: BTreeMap<String, Vec<u8>>,
    /// The names of the headers that were read.
    asked: Vec<String>,
}

impl Fake {
    /// A request with this path and nothing else.
    fn to(path: &str) -> Self {
        Self {
            path: Some(path.into()),
            ..Self::default()
        }
    }

    fn with(mut self, header: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.insert(header.to_string(), value.into());
        self
    }
}

fn bytes(value: Option<&Vec<u8>>) -> Option<Cow<'_, [u8]>> {
    value.map(|value| Cow::Borrowed(value.as_slice()))
}

impl Request for Fake {
    fn method(&mut self) -> Option<Cow<'_, [u8]>> {
        bytes(self.method.as_ref())
    }

    fn path(&mut self) -> Option<Cow<'_, [u8]>> {
        bytes(self.path.as_ref())
    }

    fn header(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.asked.push(name.to_string());
        bytes(self.headers.get(name))
    }

    fn source(&mut self) -> Option<Cow<'_, [u8]>> {
        bytes(self.source.as_ref())
    }

    fn route(&mut self) -> Option<Cow<'_, [u8]>> {
        bytes(self.route.as_ref())
    }

    fn client_cert(&mut self) -> Option<Cow<'_, [u8]>> {
        bytes(self.client_cert.as_ref())
    }

    fn cluster(&mut self) -> Option<Cow<'_, [u8]>> {
        self.asked.push("(cluster)".to_string());
        bytes(self.cluster.as_ref())
    }

    fn metadata(&mut self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        bytes(self.metadata.get(&path.join("/")))
    }
}

/// Returns a rule that admits one request a day per bucket, with the given additional fields.
fn rule(fields: &Value) -> Rule {
    let mut rule = json!({
        "name": "r",
        "key": [],
        "limits": [{ "algorithm": "funnel", "capacity": 1, "rate": "1/d" }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        rule[name] = value.clone();
    }
    parse_rule(&rule).expect("a valid rule")
}
