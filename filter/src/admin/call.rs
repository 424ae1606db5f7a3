//! Parses an API call, and rejects any path or query that is not strictly valid.

use loudou_api::{Access, BODY_HEADER, BodyWays, Event, EventKind, MAX_BODY_HEADER};
use loudou_limiter::{Carry, Clock, DURATION_FORM, Nanos};
use serde_json::Value;

use super::AdminPlane;
use super::answer::Failure;
use super::auth::Caller;
use super::bucket::CallTime;
use super::if_match::IfMatch;
use crate::escaped::escaped;
use crate::events;
use crate::host::{Host, Reply};
use loudou_rules::config::{JsonError, parse_json};
use loudou_rules::fleet::FleetView;
use loudou_rules::joined::joined;

/// Maximum length of a path, including its query, in bytes.
const MAX_PATH: usize = 4096;
/// Query parameters that mean true when given without a value.
const FLAGS: [&str; 2] = ["dry_run", "replace"];
/// Placeholder for a rule name among a route's path segments.
const RULE: &str = "RULE";
/// Placeholder for a key among a route's path segments.
pub(super) const KEY: &str = "KEY";

const FLAG_VALUES: &str = "true, false, or the name alone for true";

pub(super) type Handler = fn(&mut AdminPlane, &dyn Host, &Call) -> Result<Reply, Failure>;

/// An API endpoint.
#[derive(Debug)]
pub struct Route {
    /// HTTP method.
    pub method: &'static str,
    /// Path as it appears in the documentation. `RULE` and `KEY` match any path segment.
    pub path: &'static str,
    /// Access level that the caller needs.
    pub access: Access,
    /// Allowed query parameters.
    pub query: &'static [&'static str],
    /// True if the endpoint reads a request body. Other endpoints reject a body, because they would
    /// otherwise silently ignore it.
    pub takes_body: bool,
    /// True if the endpoint evaluates `If-Match`. Other endpoints that make changes reject the
    /// header, because they would otherwise ignore the condition.
    pub takes_if_match: bool,
    pub(super) handler: Handler,
}

impl Route {
    /// Returns true if the path segments match this route.
    pub(super) fn has_path(&self, steps: &[String]) -> bool {
        let mut pattern = self.steps();
        let fits = |step: &String| {
            let part = pattern.next();
            part.is_some_and(|part| part == step || matches!(part, RULE | KEY))
        };
        steps.iter().all(fits) && pattern.next().is_none()
    }

    fn steps(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').skip(1)
    }
}

/// A request's target: its method, path and query.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) method: String,
    /// Decoded path segments.
    pub(super) steps: Vec<String>,
    /// Names and values of the query parameters. The value is `None` if there is no `=` after the
    /// name.
    query: Vec<(String, Option<String>)>,
}

impl Target {
    /// Parses the method, path and query of the current request. The path prefix `at` is stripped.
    pub(super) fn read(host: &dyn Host, at: &str) -> Result<Self, Failure> {
        let path = header(host, ":path").filter(|path| path.len() <= MAX_PATH);
        let path = path.ok_or_else(|| {
            Failure::bad(format!("paths must be UTF-8 of at most {MAX_PATH} bytes"))
        })?;
        let path = path.strip_prefix(at).unwrap_or(&path);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let steps = path
            .strip_prefix('/')
            .unwrap_or(path)
            .split('/')
            .map(|step| decode(step, false));
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = match pair.split_once('=') {
                    Some((name, value)) => (name, Some(decode(value, true)?)),
                    None => (pair, None),
                };
                Ok((decode(name, true)?, value))
            });
        Ok(Self {
            method: header(host, ":method").unwrap_or_default(),
            steps: steps.collect::<Result<_, _>>()?,
            query: pairs.collect::<Result<_, Failure>>()?,
        })
    }

    /// Returns the access level required for a call to an unknown endpoint. This check prevents
    /// callers with view access from finding out which endpoints make changes.
    pub(super) fn needs(&self) -> Access {
        match self.method.as_str() {
            "GET" | "HEAD" | "OPTIONS" => Access::View,
            _ => Access::Edit,
        }
    }

    /// Rejects unknown and duplicate query parameters, as well as non-flag parameters without a
    /// value. An empty value is usually a scripting mistake.
    fn check_query(&self, known: &[&str]) -> Result<(), Failure> {
        for (index, (name, value)) in self.query.iter().enumerate() {
            let mut before = self.query.iter().take(index);
            if before.any(|(other, _)| other == name) {
                let name = escaped(name);
                return Err(Failure::bad(format!("duplicate query parameter `{name}`")));
            }
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    joined(known, ", ")
                };
                let name = escaped(name);
                return Err(Failure::bad(format!(
                    "unknown query parameter `{name}`; allowed: {known}"
                )));
            }
            let is_flag = FLAGS.contains(&name.as_str());
            match value.as_deref() {
                Some("") if is_flag => return Err(invalid(name, "", FLAG_VALUES)),
                None if is_flag => {}
                None | Some("") => {
                    let detail = format!("`{name}` is empty: give it a value, or leave it out");
                    return Err(Failure::bad(detail));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// An API call whose caller has the required access.
#[derive(Debug)]
pub struct Call {
    pub(super) caller: Caller,
    pub(super) route: &'static Route,
    target: Target,
    pub(super) if_match: IfMatch,
    /// Time of the call, as given in the response.
    pub(super) clock: Clock,
    /// Fleet state at the time of `clock`.
    pub(super) fleet: Option<FleetView>,
    pub(super) body: Vec<u8>,
}

impl Call {
    /// Creates a call for the current request, whose body has not been read yet.
    pub(super) fn new(
        host: &dyn Host,
        caller: Caller,
        target: Target,
        route: &'static Route,
    ) -> Result<Self, Failure> {
        target.check_query(route.query)?;
        let if_match = if route.takes_if_match {
            IfMatch::read(host)?
        } else {
            IfMatch::Absent
        };
        let is_change = route.access == Access::Edit && !route.takes_if_match;
        if is_change && host.request_header("if-match").is_some() {
            let detail = "this call takes no `If-Match`: it would not be conditional";
            return Err(Failure::bad(detail));
        }
        Ok(Self {
            caller,
            route,
            target,
            if_match,
            clock: host.clock_at(host.now()),
            fleet: None,
            body: Vec::new(),
        })
    }

    /// Returns the call's time together with the fleet state.
    pub(super) const fn call_time(&self) -> CallTime {
        CallTime {
            clock: self.clock,
            fleet: self.fleet,
        }
    }

    /// Creates an event whose author is the caller. The handler fills in the details.
    pub(super) fn event(&self, kind: EventKind, generation: u64) -> Event {
        events::event(self.clock, kind, &self.caller.name, generation)
    }

    /// Returns the rule name in the path.
    pub(super) fn rule(&self) -> &str {
        self.step(RULE).unwrap_or_default()
    }

    /// Returns the key in the path.
    pub(super) fn key(&self) -> &str {
        self.step(KEY).unwrap_or_default()
    }

    /// Returns the path segment at the position of the route's placeholder `name`.
    pub(super) fn step(&self, name: &str) -> Option<&str> {
        let mut steps = self.route.steps().zip(&self.target.steps);
        let found = steps.find(|(other, _)| *other == name);
        found.map(|(_, step)| step.as_str())
    }

    /// Parses the body as JSON.
    pub(super) fn json(&self) -> Result<Value, Failure> {
        parse_json(&self.body).map_err(|error| match error {
            JsonError::Invalid(error) => Failure::bad(format!("the body is not JSON: {error}")),
            JsonError::Duplicates(found) => Failure::wrong_body("without duplicate fields", &found),
        })
    }

    /// Returns the value of a query parameter. `None` if the parameter is missing or has no value.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.written(name)?.as_deref()
    }

    /// Returns a query parameter. The inner option is `None` if the parameter has no value.
    fn written(&self, name: &str) -> Option<&Option<String>> {
        debug_assert!(self.route.query.contains(&name), "{name} is not allowed");
        let mut pairs = self.target.query.iter();
        let found = pairs.find(|(other, _)| other == name);
        found.map(|(_, value)| value)
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
                .ok_or_else(|| invalid(name, text, allowed)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        self.parsed(name, "a whole number", |text| text.parse().ok())
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        let flag = self.parsed(name, FLAG_VALUES, |text| text.parse().ok())?;
        Ok(flag.unwrap_or_else(|| self.written(name).is_some()))
    }

    pub(super) fn carry(&self) -> Result<Carry, Failure> {
        let carry = self.parsed("carry", &joined(&Carry::NAMES, ", "), Carry::parse)?;
        Ok(carry.unwrap_or_default())
    }

    pub(super) fn duration(&self, name: &str) -> Result<Option<Nanos>, Failure> {
        let positive = |text: &str| Nanos::parse(text).filter(|span| *span > Nanos::ZERO);
        let allowed = format!("more than 0, {DURATION_FORM}");
        self.parsed(name, &allowed, positive)
    }

    /// Returns the query parameter `reason`, which must be a single line of at most
    /// [`loudou_api::MAX_REASON`] bytes.
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
        self.parsed(name, &joined(choices, ", "), meaning)
    }
}

/// Rejects a request whose content type is not JSON. The check blocks cross-site request forgery,
/// because a form cannot send JSON, and a script cannot send it without a CORS preflight request.
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

/// Returns the JSON body that a client sent in a header, which is needed because some listeners do
/// not pass request bodies to the filter. Returns an empty body if the header is missing.
pub(super) fn body_in_header(
    host: &dyn Host,
    has_body: bool,
    ways: BodyWays,
) -> Result<Vec<u8>, Failure> {
    let found = host.request_header(BODY_HEADER);
    if has_body && (found.is_some() || ways == BodyWays::Header) {
        let detail = format!(
            "send the JSON in the header `{BODY_HEADER}` and no body: ASCII of at most {MAX_BODY_HEADER} bytes"
        );
        return Err(Failure::bad(detail));
    }
    let body = found.unwrap_or_default();
    // `request_header` returns only the first line of the header. If the filter ignored a second
    // line, the caller would wrongly assume that its content had been applied.
    let lines = host.request_headers();
    if lines.is_some_and(|lines| lines.of(BODY_HEADER).nth(1).is_some()) {
        let detail = format!("`{BODY_HEADER}` is sent twice: send the whole JSON in one header");
        return Err(Failure::bad(detail));
    }
    if body.len() > MAX_BODY_HEADER {
        return Err(super::too_large(MAX_BODY_HEADER));
    }
    if !body.is_ascii() {
        let detail = format!("`{BODY_HEADER}` is not ASCII: write other characters as \\u00e9");
        return Err(Failure::bad(detail));
    }
    Ok(body)
}

/// Returns a header of the current request. `None` if the header is missing or not UTF-8.
fn header(host: &dyn Host, name: &str) -> Option<String> {
    String::from_utf8(host.request_header(name)?).ok()
}

fn decode(text: &str, plus_is_space: bool) -> Result<String, Failure> {
    let spaced = if plus_is_space {
        text.replace('+', " ")
    } else {
        text.to_owned()
    };
    loudou_api::percent_decoded(&spaced)
        .ok_or_else(|| Failure::bad("paths and queries must be UTF-8"))
}

/// Creates a 400 response for a parameter with an invalid value.
fn invalid(name: &str, text: &str, allowed: &str) -> Failure {
    let text = escaped(text);
    Failure::bad(format!("`{name}` is `{text}`; allowed: {allowed}"))
}
