//! The calls that are measured, and a client that makes them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::clock::{now, pause_for};
use loudou_tests::{Envoy, Operator, Request};
use serde_json::{Value, json};

/// How a call is repeated, and its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Edit,
    /// A list that is followed from page to page, by clients that wait as they are told.
    Search(Pace),
}

/// How a client follows a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// As `loudou` does.
    Patient,
    /// One call after the other, whatever the filter answers.
    Hasty,
}

/// A call of the admin API.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Only with many buckets.
    pub(super) only_large: bool,
    /// The number of rules.
    rules: u64,
    /// The n-th call, with that number of rules.
    request: fn(u64, u64) -> Request,
}

const fn read(name: &'static str, request: fn(u64, u64) -> Request) -> Call {
    Call {
        name,
        kind: Kind::Read,
        only_large: false,
        rules: 1,
        request,
    }
}

const fn search(name: &'static str, pace: Pace, request: fn(u64, u64) -> Request) -> Call {
    Call {
        kind: Kind::Search(pace),
        ..read(name, request)
    }
}

const fn change(name: &'static str, request: fn(u64, u64) -> Request) -> Call {
    Call {
        kind: Kind::Edit,
        ..read(name, request)
    }
}

/// A text that no key contains, so that a search for it reads everything.
const NOBODY: &str = "/v1/buckets?limit=500&key=nobody-here";

/// The override of a key that may have one already: a rule with the most overrides has no room for another.
const OVERRIDE: &str = "/v1/overrides/rule-0/tenant-00000";

/// Every call that is measured.
pub(super) const CALLS: [Call; 19] = [
    read("GET status", |_, _| Request::get("/v1/status")),
    read("GET rules", |_, _| Request::get("/v1/rules")),
    read("GET rules/RULE", |_, _| Request::get("/v1/rules/rule-0")),
    read("GET buckets, 100", |_, _| Request::get("/v1/buckets")),
    search("GET buckets, all", Pace::Patient, |_, _| {
        Request::get("/v1/buckets?limit=500")
    }),
    search("GET buckets?key=", Pace::Patient, |_, _| {
        Request::get(NOBODY)
    }),
    Call {
        only_large: true,
        ..search("GET buckets?key=, impatient", Pace::Hasty, |_, _| {
            Request::get(NOBODY)
        })
    },
    search("GET buckets?state=refusing", Pace::Patient, |_, _| {
        Request::get("/v1/buckets?limit=500&state=refusing")
    }),
    search("GET buckets?state=banned", Pace::Patient, |_, _| {
        Request::get("/v1/buckets?limit=500&state=banned")
    }),
    read("GET buckets/RULE/KEY", |_, _| {
        Request::get("/v1/buckets/rule-0/user-0000001")
    }),
    read("GET top", |_, _| Request::get("/v1/top?by=admitted")),
    read("GET events", |_, _| Request::get("/v1/events")),
    read("GET audit", |_, _| Request::get("/v1/audit")),
    read("GET export", |_, _| Request::get("/v1/export")),
    read("POST explain", |_, _| {
        Request::post("/v1/explain").json(&json!({
            "method": "GET", "path": "/0/", "headers": { "x-user-id": "user-0000001" },
        }))
    }),
    // Edits of one rule without a pause bring its buckets forward, each some.
    change("PUT rules/RULE", |n, rules| edit_of_rule(n, n % rules)),
    change("PUT rules/RULE, always the same", |n, _| edit_of_rule(n, 0)),
    change("PUT overrides/RULE/KEY", |n, _| {
        put(OVERRIDE).json(&json!({ "scale": 3 + n % 2 }))
    }),
    change("POST ban", |n, _| {
        Request::post(&format!("/v1/buckets/rule-0/mallory-{}/ban?for=1h", n % 64))
    }),
];

fn edit_of_rule(n: u64, rule: u64) -> Request {
    put(&format!("/v1/rules/rule-{rule}")).json(&json!({ "limits": [{
        "name": "day", "algorithm": "funnel", "capacity": 900_000 + n % 3, "rate": "1000000/d",
    }] }))
}

/// The edit after which first requests are measured.
pub(super) fn edit() -> Call {
    change("edit", |n, _| {
        put(OVERRIDE).json(&json!({ "scale": 3 + n % 2 }))
    })
}

impl Call {
    /// The same for a configuration of so many rules.
    pub(super) const fn with_rules(self, rules: u64) -> Self {
        Self { rules, ..self }
    }

    /// Whether this filter has the call.
    pub(super) fn exists(&self, ops: &mut Operator) -> Result<bool> {
        if self.kind == Kind::Edit {
            return Ok(true);
        }
        Ok(ops.send((self.request)(0, self.rules))?.status != 404)
    }

    /// A client that makes the call again and again.
    pub(super) fn caller(self, envoy: &Envoy) -> Caller {
        Caller {
            call: self,
            ops: Operator::editor(envoy),
            number: 0,
            cursor: None,
            wait: Duration::ZERO,
        }
    }
}

/// A client with one connection.
#[derive(Debug)]
pub(super) struct Caller {
    call: Call,
    ops: Operator,
    number: u64,
    cursor: Option<String>,
    /// How long the filter asked to wait.
    wait: Duration,
}

impl Caller {
    /// Makes the call once. One that is refused because of too many calls is made again.
    pub(super) fn call(&mut self) -> Result<()> {
        loop {
            let begun = now();
            let answer = self.ops.send(self.request())?;
            self.number += 1;
            let is_search = matches!(self.call.kind, Kind::Search(_) | Kind::Read);
            if answer.status == 429 && is_search {
                if self.call.kind == Kind::Search(Pace::Hasty) {
                    return Ok(());
                }
                let wait = answer.json()?;
                pause_for(nanos(&wait, "retry_after_ns"));
                continue;
            }
            ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
            if let Kind::Search(pace) = self.call.kind {
                let page = answer.json()?;
                let next = page.get("next_cursor").and_then(Value::as_str);
                self.cursor = next.map(ToOwned::to_owned);
                self.wait = nanos(&page, "wait_ns");
                if pace == Pace::Patient {
                    pause_for(self.wait.saturating_sub(begun.elapsed()));
                }
            }
            return Ok(());
        }
    }

    fn request(&self) -> Request {
        let request = (self.call.request)(self.number, self.call.rules);
        match &self.cursor {
            None => request,
            Some(cursor) => request.with_query("cursor", cursor),
        }
    }

    /// Follows a search from its beginning to its end; returns the number of calls.
    pub(super) fn whole_search(&mut self) -> Result<u32> {
        self.cursor = None;
        for calls in 1..=100_000 {
            self.call()?;
            if self.cursor.is_none() {
                return Ok(calls);
            }
        }
        None.context("the search does not end")
    }
}

/// A `PUT` for any generation.
fn put(path: &str) -> Request {
    Request::new("PUT", path).header("if-match", "*")
}

fn nanos(answer: &Value, field: &str) -> Duration {
    let ns = answer.get(field).and_then(Value::as_u64);
    Duration::from_nanos(ns.unwrap_or_default())
}
