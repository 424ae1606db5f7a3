//! Client for the admin API: blocking HTTP calls, each with a timeout, and errors that suggest a
//! remedy.
//!
//! This is the terminal app's only crate that uses the network. Responses are untrusted input. Body
//! size is bounded. Redirects are not followed, because they would send the token to another
//! server.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use loudou_api::{
    BucketNames, BucketView, BucketsPage, EditAnswer, EventSource, Events, ExplainAnswer,
    ProblemAnswer, RuleView, Status, Top,
};
use loudou_words::text::shortened;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::http::{HeaderValue, Response, StatusCode, header};
use ureq::{Agent, Body, RequestBuilder};

mod address;
pub mod change;
pub mod clock;
pub mod command_line;
mod connect;
mod error;
#[cfg(any(test, feature = "fake"))]
#[expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "it serves tests, which end where something is wrong"
)]
pub mod fake;
pub mod live;
pub mod merged_top;
mod pace;
mod pages;
mod request;
#[cfg(test)]
mod tests;
mod tls;
mod unix;
mod ways;

pub use address::{PORTS, check as check_address, is_in_the_clear, is_port};
pub use error::{ClientError, problem_line, problem_text};
pub use pace::{Pace, too_early};
pub use request::{ActRequest, BucketsQuery, DropRequest, EditRequest, OverrideRequest, TopQuery};
pub use tls::{Pem, Tls};

use address::without_user;
use connect::{Connection, connection};
use request::Path;
use tls::{cause as tls_cause, error as tls_error};
use ways::Ways;

/// Prefix of every path.
const VERSION: &str = "/v1";
/// Maximum size of a response, in bytes.
const MAX_BODY: u64 = 8 << 20;
/// Maximum number of event pages to read after the first page.
const MAX_EVENT_PAGES: usize = 64;
/// Maximum number of characters of an unexpected response shown in an error message.
const MAX_SHOWN: usize = 120;

/// An admin listener: its address, and the credentials and connection settings for it.
#[derive(Clone, Default)]
pub struct Target {
    /// `http://127.0.0.1:9911`, `https://…`, or `unix:/PATH`.
    pub url: String,
    /// The bearer token, if the listener requires one.
    pub token: Option<String>,
    /// TLS settings.
    pub tls: Tls,
    /// Address of the proxy for `https://` addresses, if any.
    pub proxy: Option<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("url", &self.url)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish_non_exhaustive()
    }
}

/// A client for one admin listener. Clones share the same connections.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    /// Prefix of each request's URL.
    base: Arc<str>,
    /// The address given by the user, without a trailing slash.
    url: Arc<str>,
    /// The address as shown in messages, including the proxy.
    place: Arc<str>,
    /// True if calls go through a proxy.
    has_proxy: bool,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    ways: Ways,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.url)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Creates a client for `target`. `timeout` applies to each call separately. The client
    /// connects when the first call is made.
    pub fn new(target: &Target, timeout: Duration) -> Result<Self, ClientError> {
        let token = target.token.as_deref().map(authorization);
        let Connection { agent, base } = connection(target, timeout)?;
        let url = target.url.trim_end_matches('/');
        // Only TLS connections go through a proxy.
        let proxy = target.proxy.as_deref();
        let proxy = proxy.filter(|_| base.starts_with("https://"));
        let place = proxy.map(|proxy| format!("{url} through the proxy {}", without_user(proxy)));
        Ok(Self {
            agent,
            has_proxy: place.is_some(),
            place: place.as_deref().unwrap_or(url).into(),
            base: base.into(),
            url: url.into(),
            authorization: token.transpose()?,
            timeout,
            ways: Ways::default(),
        })
    }

    /// Returns the address of the admin listener.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the status of the filter and its store.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get(&Path::new(&["status"]).text)
    }

    /// Returns a single rule.
    pub fn rule(&self, name: &str) -> Result<RuleView, ClientError> {
        self.get(&Path::new(&["rules", name]).text)
    }

    /// Edits a rule, or performs a dry run of the edit.
    pub fn put_rule(&self, name: &str, edit: &EditRequest) -> Result<EditAnswer, ClientError> {
        let address = self.address(&edit.path(name));
        let request = || {
            let request = self.authorized(self.agent.put(&address));
            request.header(header::IF_MATCH, edit.if_match.as_str())
        };
        self.send(request, &edit.body)
    }

    /// Removes a rule's edit and restores the configured rule.
    pub fn delete_rule(&self, name: &str, edit: &DropRequest) -> Result<EditAnswer, ClientError> {
        let request = self.authorized(self.agent.delete(self.address(&edit.path(name))));
        let request = request.header(header::IF_MATCH, edit.if_match.as_str());
        self.answer(request.call())
    }

    /// Returns a page of live buckets. To read several pages, use a [`Pace`].
    pub fn buckets(&self, query: &BucketsQuery) -> Result<BucketsPage, ClientError> {
        self.get(&query.path())
    }

    /// Returns the buckets with the given names, in the same order, omitting buckets that do not
    /// exist. At most [`loudou_api::MAX_READ`] names are allowed. If the response has a
    /// `next_cursor`, the server looked up only that many names.
    pub fn read_buckets(&self, names: &BucketNames) -> Result<BucketsPage, ClientError> {
        let address = self.address(&Path::new(&["buckets"]).text);
        let names = serde_json::to_value(names).unwrap_or_default();
        self.send(|| self.authorized(self.agent.post(&address)), &names)
    }

    /// Returns a single bucket. A [`ClientError::Problem`] with status 404 means that the rule is
    /// unknown or the key has no bucket.
    pub fn bucket(&self, rule: &str, key: &str) -> Result<BucketView, ClientError> {
        self.get(&Path::new(&["buckets", rule, key]).text)
    }

    /// Sets or removes a key's edited override in a rule.
    pub fn set_override(
        &self,
        rule: &str,
        key: &str,
        edit: &OverrideRequest,
    ) -> Result<EditAnswer, ClientError> {
        let address = self.address(&edit.path(rule, key));
        let etag = edit.if_match.as_str();
        if let Some(body) = &edit.body {
            let request = || {
                let request = self.authorized(self.agent.put(&address));
                request.header(header::IF_MATCH, etag)
            };
            self.send(request, body)
        } else {
            let request = self.authorized(self.agent.delete(address));
            self.answer(request.header(header::IF_MATCH, etag).call())
        }
    }

    /// Performs an action on a key's bucket: `ban`, `unban` or `reset`.
    pub fn act<T: DeserializeOwned>(
        &self,
        (action, rule, key): (&str, &str, &str),
        with: &ActRequest,
    ) -> Result<T, ClientError> {
        let address = self.address(&with.path(action, rule, key));
        let mut request = self.authorized(self.agent.post(address));
        if let Some(etag) = &with.if_match {
            request = request.header(header::IF_MATCH, etag.as_str());
        }
        self.answer(request.send_empty())
    }

    /// Returns the decision that would be made for the request `sample`.
    pub fn explain(&self, sample: &Value) -> Result<ExplainAnswer, ClientError> {
        let address = self.address(&Path::new(&["explain"]).text);
        self.send(|| self.authorized(self.agent.post(&address)), sample)
    }

    /// Returns the keys with the highest recent counts of refusals or admissions.
    pub fn top(&self, query: &TopQuery) -> Result<Top, ClientError> {
        self.get(&query.path())
    }

    /// Returns the events of the process `instance` whose sequence numbers are greater than
    /// `after`. An empty `instance` matches any process.
    pub fn events(&self, instance: &str, after: u64) -> Result<Events, ClientError> {
        self.events_of(None, instance, after)
    }

    /// Like [`events`](Self::events), but returns only events from one source. Reads all pages, up
    /// to a limit that no filter reaches.
    pub fn events_of(
        &self,
        of: Option<EventSource>,
        instance: &str,
        after: u64,
    ) -> Result<Events, ClientError> {
        let page = |instance: &str, after: u64| -> Result<Events, ClientError> {
            let mut path = Path::new(&["events"]);
            let place = if instance.is_empty() {
                after.to_string()
            } else {
                format!("{instance}-{after}")
            };
            path.query("after", &place);
            path.query_unless_empty("of", of.map_or("", EventSource::name));
            self.get(&path.text)
        };
        let mut all = page(instance, after)?;
        for _ in 0..MAX_EVENT_PAGES {
            if !all.more {
                break;
            }
            let next = page(&all.instance, all.last_seq)?;
            if next.restarted {
                return Err(self.restarted());
            }
            all.events.extend(next.events);
            all.lost = all.lost.saturating_add(next.lost);
            (all.last_seq, all.more) = (next.last_seq, next.more);
        }
        Ok(all)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let request = self.authorized(self.agent.get(self.address(path)));
        self.answer(request.call())
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(token) => request.header(header::AUTHORIZATION, token),
            None => request,
        }
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, ClientError> {
        let mut answer = answer.map_err(|error| self.failed(&error, false))?;
        self.ways.note(&answer);
        let status = answer.status();
        if status.is_redirection() {
            let what = format!("{status}, a redirect; it was not followed");
            return Err(self.unexpected(what));
        }
        let body = answer.body_mut().with_config().limit(MAX_BODY);
        let body = body
            .read_to_vec()
            .map_err(|error| self.failed(&error, true))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| {
                let body = shown(&body);
                self.unexpected(format!("{status} with an unexpected body: {error}: {body}"))
            });
        }
        match serde_json::from_slice::<ProblemAnswer>(&body) {
            Ok(_) if status == StatusCode::NOT_FOUND && self.has_version() => {
                let url = without_user(&self.url);
                let why = format!("the address {url:?} ends with {VERSION}; leave it out");
                Err(ClientError::BadTarget { why })
            }
            Ok(problem) => Err(ClientError::Problem {
                status: status.as_u16(),
                problem: Box::new(problem),
            }),
            Err(_) => Err(self.unexpected(format!("{status}: {}", shown(&body)))),
        }
    }

    /// Returns true if the address already ends with the API version, which is appended on each
    /// call.
    fn has_version(&self) -> bool {
        self.base.ends_with(VERSION)
    }

    /// Returns a hint for when the port might expect TLS. If a client sends plain HTTP to such a
    /// port, the server closes the connection or sends a TLS alert.
    fn try_tls(&self) -> String {
        let rest = self.url.strip_prefix("http://");
        rest.map_or_else(String::new, |rest| {
            format!("; if this port expects TLS, try https://{rest}")
        })
    }

    fn failed(&self, error: &ureq::Error, in_body: bool) -> ClientError {
        let url = self.place.to_string();
        let timed_out = ClientError::TimedOut {
            url: url.clone(),
            after: self.timeout,
            had_body: false,
        };
        match error {
            ureq::Error::Timeout(_) => timed_out,
            ureq::Error::Io(io) if io.kind() == io::ErrorKind::TimedOut => timed_out,
            ureq::Error::BodyExceedsLimit(_) => {
                self.unexpected(format!("a body of more than {} MiB", MAX_BODY >> 20))
            }
            _ if in_body => self.unexpected(format!("the connection broke off: {error}")),
            ureq::Error::Io(io) if io.kind() == io::ErrorKind::UnexpectedEof => {
                let closed = "the connection was closed without an answer";
                self.unexpected(format!("{closed}{}", self.try_tls()))
            }
            ureq::Error::Io(io) if tls_error(io).is_some() => ClientError::Untrusted {
                url,
                cause: tls_error(io)
                    .map(|error| tls_cause(error, self.has_proxy))
                    .unwrap_or_default(),
            },
            // The server may have read the request, so it is unknown whether it has been performed.
            ureq::Error::Io(io)
                if matches!(
                    io.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::BrokenPipe
                ) =>
            {
                self.unexpected(format!("the connection broke off: {io}{}", self.try_tls()))
            }
            ureq::Error::Io(io) => ClientError::Unreachable {
                url,
                cause: io.to_string(),
            },
            ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::ConnectProxyFailed(_) => ClientError::Unreachable {
                url,
                cause: error.to_string(),
            },
            ureq::Error::Rustls(error) => ClientError::Untrusted {
                url,
                cause: tls_cause(error, self.has_proxy),
            },
            _ => self.unexpected(format!("invalid HTTP: {error}{}", self.try_tls())),
        }
    }

    /// Returns the error for responses that came from different processes.
    pub fn restarted(&self) -> ClientError {
        ClientError::Restarted {
            url: self.url.to_string(),
        }
    }

    fn unexpected(&self, what: String) -> ClientError {
        ClientError::Unexpected {
            url: self.place.to_string(),
            what,
        }
    }
}

/// Error message for an invalid token.
pub const BAD_TOKEN: &str = "the token is empty or contains characters other than visible ASCII";

/// Returns true if a token is valid: non-empty, and made up of visible ASCII characters only.
pub fn is_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

fn authorization(token: &str) -> Result<HeaderValue, ClientError> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"))
        .ok()
        .filter(|_| is_token(token));
    let mut value = value.ok_or_else(|| ClientError::BadTarget {
        why: BAD_TOKEN.to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the beginning of an unexpected body, for use in an error message.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..MAX_SHOWN.saturating_mul(4)).unwrap_or(body));
    let text = text.trim();
    if text.is_empty() {
        return "an empty body".to_owned();
    }
    format!("`{}`", shortened(text, MAX_SHOWN))
}
