//! One call: method, path and query, read strictly.

use std::borrow::Cow;

use loudou_api::RuleProblem;
use loudou_limiter::{Carry, DURATION_FORM, Nanos};
use loudou_rules::config::Problem;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::Failure;
use super::auth::Caller;
use crate::escaped::escaped;
use crate::host::Host;

/// The longest path with query, in bytes.
const MAX_PATH: usize = 4096;

/// A call of the API.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) caller: Caller,
    pub(super) method: String,
    /// The path's segments, decoded.
    pub(super) steps: Vec<String>,
    query: Vec<(String, String)>,
    pub(super) if_match: Option<String>,
}

impl Call {
    /// The current request.
    pub(super) fn read(host: &dyn Host, caller: Caller) -> Result<Self, Failure> {
        let text = |name| {
            host.request_header(name)
                .and_then(|value| String::from_utf8(value).ok())
        };
        let method = text(":method").unwrap_or_default();
        let path = text(":path").filter(|path| path.len() <= MAX_PATH);
        let path =
            path.ok_or_else(|| bad(format!("a path of at most {MAX_PATH} bytes of UTF-8")))?;
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        let steps = path
            .trim_start_matches('/')
            .split('/')
            .map(|step| decode(step, false));
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(name, true)?, decode(value, true)?))
            });
        Ok(Self {
            caller,
            method,
            steps: steps.collect::<Result<_, _>>()?,
            query: pairs.collect::<Result<_, Failure>>()?,
            if_match: text("if-match"),
        })
    }

    /// Whether the call needs the right to edit.
    pub(super) fn changes_something(&self) -> bool {
        let only_asks = matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS");
        // A sample of a request does not fit into a query.
        !only_asks && self.steps != ["v1", "explain"]
    }

    /// Whether a body is read: what belongs into the query would be overlooked in another's.
    pub(super) fn takes_body(&self) -> bool {
        self.method == "PUT" || self.steps == ["v1", "explain"]
    }

    /// Refuses a body that is not JSON: a form on a web page cannot send JSON unasked.
    pub(super) fn expect_json(host: &dyn Host) -> Result<(), Failure> {
        let kind = host.request_header("content-type").unwrap_or_default();
        let kind = String::from_utf8_lossy(&kind).to_ascii_lowercase();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind == "application/json" {
            return Ok(());
        }
        let detail = "the body must be JSON: `content-type: application/json`";
        Err(Failure::new(415, "Unsupported media type", detail))
    }

    /// The query, of which only the names `allowed` are understood.
    pub(super) fn query(&self, allowed: &[&str]) -> Result<Query<'_>, Failure> {
        for (index, (name, _)) in self.query.iter().enumerate() {
            let mut before = self.query.iter().take(index);
            if before.any(|(other, _)| other == name) {
                let name = name.escape_default();
                return Err(bad(format!("query parameter `{name}` is there twice")));
            }
            if !allowed.contains(&name.as_str()) {
                let known = if allowed.is_empty() {
                    "nothing".to_owned()
                } else {
                    allowed.join(", ")
                };
                let name = escaped(name);
                return Err(bad(format!(
                    "unknown query parameter `{name}`; allowed: {known}"
                )));
            }
        }
        Ok(Query { pairs: &self.query })
    }
}

fn decode(text: &str, plus_is_space: bool) -> Result<String, Failure> {
    let spaced = if plus_is_space {
        text.replace('+', " ")
    } else {
        text.to_owned()
    };
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded
        .map(Cow::into_owned)
        .map_err(|_invalid| bad("paths and queries are UTF-8"))
}

/// 400 with what is wrong.
pub(super) fn bad(detail: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(400, "Bad request", detail)
}

/// A body as JSON.
pub(super) fn json(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| bad(format!("the body is not JSON: {error}")))
}

/// 400 with everything that is wrong with a body that should be `what`.
pub(super) fn wrong_body(what: &str, problems: &[Problem]) -> Failure {
    let mut failure = bad(format!("the body is not {what}; see `problems`"));
    failure.problem.problems = problems.iter().map(RuleProblem::from).collect();
    failure
}

/// 400 for a parameter that is none of what is allowed.
fn odd(name: &str, text: &str, allowed: &str) -> Failure {
    let text = escaped(text);
    bad(format!("`{name}` is `{text}`; allowed: {allowed}"))
}

/// A query with known names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    pairs: &'a [(String, String)],
}

impl<'a> Query<'a> {
    /// The value of a parameter, if it is there and not empty.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let found = self.pairs.iter().find(|(own, _)| own == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn parsed<T>(
        &self,
        name: &str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        match self.get(name) {
            None => Ok(None),
            Some(text) => parse(text)
                .map(Some)
                .ok_or_else(|| odd(name, text, allowed)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        self.parsed(name, "a whole number", |text| text.parse().ok())
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        let flag = self.parsed(name, "true, false", |text| text.parse().ok())?;
        Ok(flag.unwrap_or(false))
    }

    pub(super) fn carry(&self) -> Result<Carry, Failure> {
        let carry = self.parsed("carry", &Carry::NAMES.join(", "), Carry::parse)?;
        Ok(carry.unwrap_or_default())
    }

    pub(super) fn duration(&self, name: &str) -> Result<Option<Nanos>, Failure> {
        // Nothing where a time belongs is a script that went wrong, and must not be for ever.
        if self
            .pairs
            .iter()
            .any(|(own, value)| own == name && value.is_empty())
        {
            return Err(bad(format!("`{name}` is empty; allowed: {DURATION_FORM}")));
        }
        let positive = |text: &str| Nanos::parse(text).filter(|span| *span > Nanos::ZERO);
        let allowed = format!("more than nothing, {DURATION_FORM}");
        self.parsed(name, &allowed, positive)
    }

    /// A reason: one line of at most [`loudou_api::MAX_REASON`] bytes.
    pub(super) fn reason(&self) -> Result<String, Failure> {
        let most = loudou_api::MAX_REASON;
        let allowed = format!("one line of at most {most} bytes");
        let line = |text: &str| {
            let fits = text.len() <= most && !text.chars().any(char::is_control);
            fits.then(|| text.to_owned())
        };
        Ok(self.parsed("reason", &allowed, line)?.unwrap_or_default())
    }

    pub(super) fn choice<T>(
        &self,
        name: &str,
        choices: &[&str],
        meaning: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        self.parsed(name, &choices.join(", "), meaning)
    }
}
