//! The fields of a request that is typed: one line each, more for parts that may be there several times.

use loudou_api::RuleView;
use serde_json::Value;

use super::{Line, TypedRequest, header, metadata};

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Method,
    Path,
    Host,
    Header,
    Source,
    Route,
    Cluster,
    Metadata,
    ClientCert,
    Cost,
}

/// All parts, in the order of the form, each with its name in the admin API and the word in rules because of which it
/// is shown; all are shown without one.
const PARTS: [(Part, &str, Option<&str>); 10] = [
    (Part::Method, "method", None),
    (Part::Path, "path", None),
    (Part::Host, "host", None),
    (Part::Header, "header", None),
    (Part::Source, "source", None),
    (Part::Route, "route", Some("route")),
    (Part::Cluster, "cluster", Some("when")),
    (Part::Metadata, "metadata", Some("metadata")),
    (Part::ClientCert, "client_cert", Some("client_cert")),
    (Part::Cost, "cost", None),
];

/// One line of the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) part: Part,
    pub(crate) line: Line,
    pub(crate) problem: Option<String>,
}

impl Field {
    pub(super) fn new(part: Part, text: &str) -> Self {
        Self {
            part,
            line: Line::new(text),
            problem: None,
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        let mut parts = PARTS.iter();
        let found = parts.find(|(part, ..)| *part == self.part);
        found.map_or("", |(_, name, _)| name)
    }

    /// The meaning of an empty field, and an example.
    pub(crate) const fn hint(&self) -> &'static str {
        match self.part {
            Part::Method => "default GET",
            Part::Path => "default /, with any query",
            Part::Host => "such as api.example.com",
            Part::Header => "such as x-user-id: alice",
            Part::Source => "such as 203.0.113.7",
            Part::Route => "the name of Envoy's route",
            Part::Cluster => "the upstream, by its Envoy cluster",
            Part::Metadata => "such as envoy.filters.http.jwt_authn.payload.sub=alice",
            Part::ClientCert => "the name in the client's certificate",
            Part::Cost => "default: the cost in the rules",
        }
    }

    /// Whether it waits for a value that a rule needs and nobody knows.
    pub(super) fn is_open(&self) -> bool {
        let text = self.line.text();
        self.part == Part::Header && text.ends_with(": ")
    }

    /// Whether a problem with this path in the admin API is about it.
    pub(super) fn is_of(&self, path: &str) -> bool {
        match self.part {
            Part::Header => match (path.strip_prefix("headers."), header(&self.line.text())) {
                (Some(rest), Ok((name, _))) => rest.split('[').next() == Some(name.as_str()),
                _ => false,
            },
            Part::Metadata => match (path.strip_prefix("metadata."), metadata(&self.line.text())) {
                (Some(rest), Ok((name, _))) => rest == name,
                _ => false,
            },
            _ => self.name() == path,
        }
    }

    /// Adds its value to a request.
    pub(super) fn put_into(&self, request: &mut TypedRequest) -> Result<(), String> {
        let text = self.line.text().trim().to_owned();
        if text.is_empty() {
            return Ok(());
        }
        match self.part {
            Part::Method => request.method = Some(text),
            Part::Path => request.path = Some(text),
            Part::Host => request.host = Some(text),
            Part::Header => request.headers.push(header(&text)?),
            Part::Source => request.source = Some(text),
            Part::Route => request.route = Some(text),
            Part::Cluster => request.cluster = Some(text),
            Part::Metadata => request.metadata.push(metadata(&text)?),
            Part::ClientCert => request.client_cert = Some(text),
            Part::Cost => {
                let cost = text.parse();
                let cost = cost.map_err(|_error| "invalid cost; write a whole number")?;
                request.cost = Some(cost);
            }
        }
        Ok(())
    }
}

/// The lines of a form for this request: of each part that some rule reads, and of those that it has.
pub(super) fn fields(request: &TypedRequest, rules: &[RuleView]) -> Vec<Field> {
    let mut fields = Vec::new();
    for (part, _, word) in PARTS {
        let texts = texts(part, request);
        let is_read = word.is_none_or(|word| rules.iter().any(|rule| says(&rule.rule, word)));
        if !is_read && texts.is_empty() {
            continue;
        }
        fields.extend(texts.iter().map(|text| Field::new(part, text)));
        let repeats = matches!(part, Part::Header | Part::Metadata);
        if repeats || texts.is_empty() {
            fields.push(Field::new(part, ""));
        }
    }
    fields
}

fn texts(part: Part, request: &TypedRequest) -> Vec<String> {
    let one = |text: &Option<String>| text.iter().cloned().collect();
    let pairs = |pairs: &[(String, String)], between: &str| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| format!("{name}{between}{value}"))
            .collect()
    };
    match part {
        Part::Method => one(&request.method),
        Part::Path => one(&request.path),
        Part::Host => one(&request.host),
        Part::Header => pairs(&request.headers, ": "),
        Part::Source => one(&request.source),
        Part::Route => one(&request.route),
        Part::Cluster => one(&request.cluster),
        Part::Metadata => pairs(&request.metadata, "="),
        Part::ClientCert => one(&request.client_cert),
        Part::Cost => one(&request.cost.map(|cost| cost.to_string())),
    }
}

/// Whether a rule has a field or a text of this name anywhere.
fn says(rule: &Value, word: &str) -> bool {
    match rule {
        Value::String(text) => text == word,
        Value::Array(items) => items.iter().any(|item| says(item, word)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, value)| name == word || says(value, word)),
        _ => false,
    }
}
