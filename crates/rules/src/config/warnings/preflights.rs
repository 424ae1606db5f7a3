//! Finds rules that refuse all CORS preflight requests. Before some cross-origin requests, browsers
//! send a preflight: an `OPTIONS` request without cookies and without most headers of the actual
//! request.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use crate::config::problem::{Path, Problem};
use crate::rule::{KeyPart, Match, Mode, NamedTest, OnMissingKey, Rule, RuleFile, Test};

const OPTIONS: &str = "OPTIONS";
/// Headers that browsers send in a preflight or that Envoy or another proxy may add.
const SENT: [&str; 19] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    REQUESTED_METHOD,
    "cache-control",
    "connection",
    "forwarded",
    "host",
    ORIGIN,
    "pragma",
    "priority",
    "referer",
    "traceparent",
    "user-agent",
    "via",
    "x-real-ip",
    "x-request-id",
    "x-scheme",
];
const SENT_PREFIXES: [&str; 4] = [":", "sec-", "x-forwarded-", "x-envoy-"];
const ORIGIN: &str = "origin";
const REQUESTED_METHOD: &str = "access-control-request-method";

/// Returns a warning for each rule that refuses all CORS preflight requests. The warnings do not
/// apply if an earlier filter responds to preflight requests.
pub fn preflight_advice(file: &RuleFile) -> Vec<Problem> {
    let at = Path::root().field("rules");
    let rules = file.rules.iter().enumerate();
    let refused = rules.filter_map(|(index, rule)| of_rule(rule, &at.index(index)));
    refused.collect()
}

fn of_rule(rule: &Rule, at: &Path) -> Option<Problem> {
    if rule.on_missing_key != OnMissingKey::Refuse
        || rule.mode != Mode::Enforce
        || never_holds(&rule.matches)
    {
        return None;
    }
    let what = rule.key.iter().find_map(|part| match part {
        KeyPart::Header(name) if !is_sent(name) => Some(format!("header {name}")),
        KeyPart::Cookie(_) => Some(String::from("cookies")),
        _ => None,
    })?;
    let message = format!(
        "refuses every CORS preflight, because browsers send no {what} in it; if browsers call this API, put \
         Envoy's cors filter before Loudou, or add `not: {{ methods: [{OPTIONS}] }}` to the match"
    );
    let value = Value::from("refuse");
    Some(Problem::error(at.field("on_missing_key"), &value, message).warning())
}

fn is_sent(name: &str) -> bool {
    SENT.contains(&name) || SENT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns true if no preflight request matches.
fn never_holds(matches: &Match) -> bool {
    let has = |method: &String| method == OPTIONS;
    let method = !matches.methods.is_empty() && !matches.methods.iter().any(has);
    let needs = |test: &NamedTest| test.test != Test::Present(false);
    let header = matches.headers.iter().any(|header| match &header.test {
        Test::Exact(method) if header.name == ":method" => method != OPTIONS,
        _ => needs(header) && !is_sent(&header.name),
    });
    let metadata = matches.metadata.iter();
    let mut metadata = metadata.filter(|part| part.test != Test::Present(false));
    let not = matches.not.as_ref().is_some_and(|not| always_holds(not));
    method || header || matches.cookies.iter().any(needs) || metadata.next().is_some() || not
}

/// Returns true if every preflight request matches.
fn always_holds(matches: &Match) -> bool {
    let has = |method: &String| method == OPTIONS;
    let rest = Match {
        methods: Vec::new(),
        headers: Vec::new(),
        cookies: Vec::new(),
        ..matches.clone()
    };
    let header = |header: &NamedTest| match &header.test {
        Test::Present(true) => [ORIGIN, REQUESTED_METHOD].contains(&header.name.as_str()),
        Test::Present(false) => !is_sent(&header.name),
        Test::Exact(method) => header.name == ":method" && method == OPTIONS,
        _ => false,
    };
    let absent = |cookie: &NamedTest| cookie.test == Test::Present(false);
    (matches.methods.is_empty() || matches.methods.iter().any(has))
        && matches.headers.iter().all(header)
        && matches.cookies.iter().all(absent)
        && rest.is_everything()
}
