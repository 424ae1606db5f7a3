//! The admin role: the HTTP API that the terminal uses.
//!
//! Requests land on any worker, and one answer never holds it for long: lists are cut by work done.
//! Everything is answered from shared data and metrics, so it is the same on every worker.

use std::borrow::Cow;

use loudou_api::{Access, ProblemAnswer};
use loudou_rules::config::{AdminSettings, RuleEdit};
use loudou_rules::rule::Rule;
use serde::Serialize;

use crate::current;
use crate::escaped::escaped;
use crate::host::{Host, Reply};
use crate::metrics::{Registry, StoreMetrics};
use crate::record::{Record, RecordError};

mod auth;
mod bans;
mod bucket;
mod buckets;
mod call;
mod change;
mod edit;
mod explain;
mod rules;
mod status;
mod top;

use call::{Call, Query, bad};

/// The largest body of a request, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// One worker's admin role.
#[derive(Debug)]
pub struct AdminPlane {
    settings: AdminSettings,
    registry: Registry,
}

/// What to do with a request after its headers.
#[derive(Debug)]
pub enum Begin {
    /// Answer it now.
    Answer(Reply),
    /// Wait for its body, then call [`AdminPlane::finish`].
    AwaitBody,
}

impl AdminPlane {
    /// An admin role with these settings.
    pub fn new(settings: AdminSettings) -> Self {
        Self {
            settings,
            registry: Registry::default(),
        }
    }

    /// Looks at the headers. A request that is not allowed is answered without its body.
    pub fn begin(&mut self, host: &dyn Host, has_body: bool) -> Begin {
        let call = match self.check(host, has_body) {
            Ok(call) => call,
            Err(refused) => return Begin::Answer(refused.reply()),
        };
        if has_body {
            Begin::AwaitBody
        } else {
            Begin::Answer(self.answer(host, &call, &[]))
        }
    }

    /// Answers a request whose body is there.
    pub fn finish(&mut self, host: &dyn Host) -> Reply {
        let call = match self.check(host, true) {
            Ok(call) => call,
            Err(refused) => return refused.reply(),
        };
        let body = host
            .request_body(MAX_BODY.saturating_add(1))
            .unwrap_or_default();
        if body.len() > MAX_BODY {
            return too_large().reply();
        }
        self.answer(host, &call, &body)
    }

    fn check(&self, host: &dyn Host, has_body: bool) -> Result<Call, Failure> {
        let caller = auth::authorize(host, &self.settings)?;
        let call = Call::read(host, caller)?;
        if has_body {
            let length = host.request_header("content-length");
            let length = length.and_then(|n| String::from_utf8(n).ok()?.parse::<usize>().ok());
            if length.is_some_and(|length| length > MAX_BODY) {
                return Err(too_large());
            }
            Call::expect_json(host)?;
        }
        if call.changes_something() && call.caller.access == Access::View {
            let detail = format!("token `{}` may only view", call.caller.name);
            return Err(Failure::new(403, "Forbidden", detail));
        }
        Ok(call)
    }

    fn answer(&mut self, host: &dyn Host, call: &Call, body: &[u8]) -> Reply {
        self.route(host, call, body).unwrap_or_else(Failure::reply)
    }

    fn route(&mut self, host: &dyn Host, call: &Call, body: &[u8]) -> Result<Reply, Failure> {
        if !body.is_empty() && !call.takes_body() {
            return Err(bad(
                "this call takes no body: its parameters are in the query",
            ));
        }
        let steps: Vec<&str> = call.steps.iter().map(String::as_str).collect();
        match (call.method.as_str(), steps.as_slice()) {
            ("GET", ["v1", "status"]) => self.status(host, call),
            ("GET", ["v1", "rules"]) => self.rules(host, call),
            ("GET", ["v1", "rules", rule]) => self.rule(host, call, rule),
            ("PUT", ["v1", "rules", rule]) => self.put_rule(host, call, rule, body),
            ("DELETE", ["v1", "rules", rule]) => self.delete_rule(host, call, rule),
            ("GET", ["v1", "buckets"]) => self.buckets(host, call),
            ("GET", ["v1", "buckets", rule, key]) => self.bucket(host, call, rule, key),
            ("POST", ["v1", "buckets", rule, key, "reset"]) => self.reset(host, call, rule, key),
            ("POST", ["v1", "explain"]) => self.explain(host, call, body),
            ("GET", ["v1", "top"]) => self.top(host, call),
            ("POST", ["v1", "buckets", rule, key, "ban"]) => self.ban(host, call, (rule, key)),
            ("POST", ["v1", "buckets", rule, key, "unban"]) => self.unban(host, call, (rule, key)),
            ("PUT", ["v1", "overrides", rule, key]) => {
                self.put_override(host, call, (rule, key), body)
            }
            ("DELETE", ["v1", "overrides", rule, key]) => {
                self.delete_override(host, call, (rule, key))
            }
            ("GET", ["v1", "events"]) => self.events(host, call),
            ("GET", ["v1", "export"]) => self.export(host, call),
            (_, steps) => Err(not_here(call, steps)),
        }
    }

    /// The rules as they are now.
    fn record(&mut self, host: &dyn Host) -> Result<Record, Failure> {
        let share = &self.settings.store.share;
        let metrics = StoreMetrics::define(host, &mut self.registry, share);
        Ok(current::load(host, share, &metrics)?)
    }

    fn share(&self) -> &str {
        &self.settings.store.share
    }
}

/// 405 for a known path, 404 for another.
fn not_here(call: &Call, steps: &[&str]) -> Failure {
    let allowed = match steps {
        [
            "v1",
            "status" | "rules" | "events" | "export" | "buckets" | "top",
        ]
        | ["v1", "buckets", _, _] => "GET",
        ["v1", "rules", _] => "GET, PUT, DELETE",
        ["v1", "explain"] | ["v1", "buckets", _, _, "reset" | "ban" | "unban"] => "POST",
        ["v1", "overrides", _, _] => "PUT, DELETE",
        _ => {
            let paths = "/v1/status, /v1/rules[/RULE], /v1/buckets[/RULE/KEY[/reset]], /v1/buckets/RULE/KEY/ban, \
                         /v1/buckets/RULE/KEY/unban, /v1/overrides/RULE/KEY, /v1/top, /v1/explain, /v1/events, \
                         /v1/export";
            return Failure::new(404, "Not found", format!("there is: {paths}"));
        }
    };
    let detail = format!(
        "{} is not for this path; it takes {allowed}",
        escaped(&call.method)
    );
    Failure {
        allow: Some(allowed),
        ..Failure::new(405, "Method not allowed", detail)
    }
}

fn too_large() -> Failure {
    Failure::new(413, "Body too large", format!("at most {MAX_BODY} bytes"))
}

/// A call that did not work out.
#[derive(Debug)]
pub(crate) struct Failure {
    problem: Box<ProblemAnswer<Rule, RuleEdit>>,
    allow: Option<&'static str>,
}

impl Failure {
    fn new(status: u16, title: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        let problem = ProblemAnswer {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status,
            detail: detail.into().into_owned(),
            ..ProblemAnswer::default()
        };
        Self {
            problem: Box::new(problem),
            allow: None,
        }
    }

    fn reply(self) -> Reply {
        let status = self.problem.status;
        let mut headers = vec![("content-type", "application/problem+json".to_owned())];
        if status == 401 {
            headers.push(("www-authenticate", "Bearer realm=\"loudou\"".to_owned()));
        }
        if let Some(allow) = self.allow {
            headers.push(("allow", allow.to_owned()));
        }
        reply(status, headers, json(&self.problem))
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        if error == RecordError::TooLarge {
            let detail = "the rules with all their edits would be too large: drop edits, or put them into \
                          the configuration";
            return Self::new(409, "Too many edits", detail);
        }
        let detail = match error {
            RecordError::Missing => {
                "no rules yet: no data listener of this share has started; is its vm_id the same, \
                 and its store.namespace?"
            }
            RecordError::Unreadable => "the rules in shared data are of another version of Loudou",
            RecordError::Contended => "too many edits at once; try again",
            RecordError::TooOften => {
                "this rule was edited faster than its buckets can follow; try again in some seconds"
            }
            RecordError::Failed | RecordError::TooLarge => "Envoy's shared data failed",
        };
        Self::new(503, "Not available", detail)
    }
}

fn ok(body: &impl Serialize) -> Reply {
    whole(None, json(body))
}

/// An answer about rules: the process with its generation is its `ETag`.
fn ok_at(record: &Record, body: &impl Serialize) -> Reply {
    whole(Some(record), json(body))
}

/// An answer whatever it is made of.
fn whole(record: Option<&Record>, body: Vec<u8>) -> Reply {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    headers.extend(record.map(|record| ("etag", record.instance.etag(record.generation))));
    reply(200, headers, body)
}

fn json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

fn reply(status: u16, headers: Vec<(&'static str, String)>, mut body: Vec<u8>) -> Reply {
    let headers = headers
        .into_iter()
        .chain([("cache-control", "no-store".to_owned())]);
    body.push(b'\n');
    Reply {
        status,
        details: "loudou_admin".to_owned(),
        headers: headers.map(|(name, value)| (name.into(), value)).collect(),
        body,
        grpc_status: None,
    }
}

#[cfg(test)]
mod tests;
