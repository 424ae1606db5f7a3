//! An operator at the admin API, with a token and the calls that most tests make.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::clock::pause_for;
use crate::config::{EDIT_TOKEN, VIEW_TOKEN};
use crate::envoy::Envoy;
use crate::http::{Http, Request, Response};

/// A client of the admin API with one kept connection and a token.
#[derive(Debug)]
pub struct Operator {
    http: Http,
    token: &'static str,
}

impl Operator {
    /// Creates an operator that may edit.
    pub const fn editor(envoy: &Envoy) -> Self {
        Self {
            http: envoy.admin(),
            token: EDIT_TOKEN,
        }
    }

    /// Creates an operator that may only view.
    pub const fn viewer(envoy: &Envoy) -> Self {
        Self {
            http: envoy.admin(),
            token: VIEW_TOKEN,
        }
    }

    /// Sends a request with the token. Any answer is accepted.
    pub fn send(&mut self, request: Request) -> Result<Response> {
        self.http.send(&request.token(self.token))
    }

    /// Returns the JSON of `GET path`. The status must be 200.
    pub fn get(&mut self, path: &str) -> Result<Value> {
        let answer = self.send(Request::get(path))?;
        expect(&answer, 200).context(path.to_owned())
    }

    /// Returns the first page of `GET /v1/rules`, with the rules of all other pages added. Returns
    /// `None` if a page is not answered with 200, for example because the rules have changed since
    /// the first page, or because a sandbox died.
    pub fn rules(&mut self) -> Result<Option<Value>> {
        let mut path = "/v1/rules".to_owned();
        let mut all: Option<Value> = None;
        loop {
            let answer = self.send(Request::get(&path))?;
            if answer.status != 200 {
                return Ok(None);
            }
            let mut page = answer.json()?;
            let next = page.get("next_cursor").and_then(Value::as_str);
            let next = next.map(|cursor| format!("/v1/rules?cursor={cursor}"));
            let all = all.get_or_insert_with(|| page.clone());
            if !path.ends_with("/rules") {
                let more = page.pointer_mut("/rules").map(Value::take);
                let (Some(all), Some(Value::Array(more))) = (all.pointer_mut("/rules"), more)
                else {
                    bail!("{path}: no rules: {page}");
                };
                all.as_array_mut().context("no rules")?.extend(more);
            }
            let Some(next) = next else {
                return Ok(Some(all.take()));
            };
            path = next;
        }
    }

    /// Returns the number of requests that wait now, on all workers.
    pub fn waiting(&mut self) -> Result<u64> {
        let status = self.get("/v1/status")?;
        let waiting = status.get("waiting").and_then(Value::as_u64);
        waiting.with_context(|| format!("no number of waiting: {status}"))
    }

    /// Returns the current generation of the rules.
    pub fn generation(&mut self) -> Result<u64> {
        let rules = self.get("/v1/rules")?;
        let generation = rules.get("generation").and_then(Value::as_u64);
        generation.with_context(|| format!("no generation: {rules}"))
    }

    /// Returns the current `ETag` of the rules.
    pub fn etag(&mut self) -> Result<String> {
        let answer = self.send(Request::get("/v1/rules"))?;
        let etag = answer.header("etag").map(ToOwned::to_owned);
        etag.with_context(|| format!("no ETag: {answer:?}"))
    }

    /// Returns the `ETag` of this process's rules at another generation.
    pub fn etag_at(&mut self, generation: u64) -> Result<String> {
        let etag = self.etag()?;
        let (instance, _) = etag.split_once('-').context("no instance")?;
        Ok(format!("{instance}-{generation}\""))
    }

    /// Sends `PUT /v1/rules/{rule}` on top of the current generation. `query` is without `?`.
    pub fn put(&mut self, rule: &str, query: &str, body: &Value) -> Result<Response> {
        let etag = self.etag()?;
        let request = Request::new("PUT", &format!("/v1/rules/{rule}?{query}"));
        let request = request.header("if-match", etag);
        self.send(request.json(body))
    }

    /// Like [`Self::put`], but the edit must be accepted. Returns the answer.
    pub fn edit(&mut self, rule: &str, query: &str, body: &Value) -> Result<Value> {
        expect(&self.put(rule, query, body)?, 200)
    }

    /// Sends `DELETE /v1/rules/{rule}`, which must be accepted. Returns the answer.
    pub fn drop_edit(&mut self, rule: &str, query: &str) -> Result<Value> {
        let request = Request::new("DELETE", &format!("/v1/rules/{rule}?{query}"));
        expect(&self.send(request.header("if-match", "*"))?, 200)
    }

    /// Sends `POST /v1/buckets/{rule}/{key}/reset`, which must be accepted. Returns the answer.
    pub fn reset(&mut self, rule: &str, key: &str) -> Result<Value> {
        let path = format!("/v1/buckets/{rule}/{}/reset", percent(key));
        expect(&self.send(Request::post(&path))?, 200)
    }

    /// Sends `POST /v1/buckets/{rule}/{key}/ban`, which must be accepted. Returns the answer.
    pub fn ban(&mut self, rule: &str, key: &str, query: &str) -> Result<Value> {
        let path = format!("/v1/buckets/{rule}/{}/ban?{query}", percent(key));
        expect(&self.send(Request::post(&path))?, 200)
    }

    /// Sends `POST /v1/buckets/{rule}/{key}/unban`, which must be accepted. Returns the answer.
    pub fn unban(&mut self, rule: &str, key: &str) -> Result<Value> {
        let path = format!("/v1/buckets/{rule}/{}/unban", percent(key));
        expect(&self.send(Request::post(&path))?, 200)
    }

    /// Sends `PUT /v1/overrides/{rule}/{key}` for any generation, which must be accepted. Returns
    /// the answer.
    pub fn set_override(
        &mut self,
        rule: &str,
        key: &str,
        query: &str,
        body: &Value,
    ) -> Result<Value> {
        let path = format!("/v1/overrides/{rule}/{}?{query}", percent(key));
        let request = Request::new("PUT", &path).header("if-match", "*");
        expect(&self.send(request.json(body))?, 200)
    }

    /// Sends `DELETE /v1/overrides/{rule}/{key}`. Any answer is accepted.
    pub fn drop_override(&mut self, rule: &str, key: &str) -> Result<Response> {
        let path = format!("/v1/overrides/{rule}/{}", percent(key));
        self.send(Request::new("DELETE", &path).header("if-match", "*"))
    }

    /// Returns a bucket, or `None` if it does not exist.
    pub fn bucket(&mut self, rule: &str, key: &str) -> Result<Option<Value>> {
        let path = format!("/v1/buckets/{rule}/{}", percent(key));
        let answer = self.send(Request::get(&path))?;
        if answer.status == 404 {
            return Ok(None);
        }
        expect(&answer, 200).map(Some)
    }

    /// Returns every bucket that `query` finds, over all pages, at the pace that the filter
    /// requests.
    pub fn buckets(&mut self, query: &str) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.search(&format!("/v1/buckets?{query}{cursor}"))?;
            let buckets = page.get("buckets").and_then(Value::as_array);
            all.extend(buckets.context("a page without buckets")?.iter().cloned());
            match page.get("next_cursor").and_then(Value::as_str) {
                Some(next) => {
                    let next = format!("&cursor={next}");
                    ensure!(next != cursor, "the cursor stays at {cursor}");
                    cursor = next;
                }
                None => return Ok(all),
            }
        }
    }

    /// Returns the JSON of `GET path`, where `path` is a search of buckets. Repeats a call that
    /// came too early.
    pub fn search(&mut self, path: &str) -> Result<Value> {
        let nanos = |answer: &Value, field| {
            let ns = answer.get(field).and_then(Value::as_u64);
            Duration::from_nanos(ns.unwrap_or_default())
        };
        loop {
            let answer = self.send(Request::get(path))?;
            let body = answer.json()?;
            if answer.status != 429 {
                pause_for(nanos(&body, "wait_ns"));
                return expect(&answer, 200).context(path.to_owned());
            }
            pause_for(nanos(&body, "retry_after_ns"));
        }
    }

    /// Returns the events after number `after`, over all pages, oldest first.
    pub fn events(&mut self, after: u64) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut after = after;
        loop {
            let page = self.get(&format!("/v1/events?after={after}"))?;
            let events = page.get("events").and_then(Value::as_array);
            all.extend(events.context("an answer without events")?.iter().cloned());
            if page.get("more").is_none() {
                return Ok(all);
            }
            let last = page.get("last_seq").and_then(Value::as_u64);
            after = last.context("an answer without a number")?;
        }
    }
}

/// Returns the JSON of an answer, which must have this status.
pub fn expect(answer: &Response, status: u16) -> Result<Value> {
    ensure!(
        answer.status == status,
        "{} instead of {status}: {}",
        answer.status,
        answer.text()
    );
    answer.json()
}

/// Returns the detail of an admin API answer, which must be a problem document with this status.
pub fn expect_problem(answer: &Response, status: u16) -> Result<String> {
    let body = expect(answer, status)?;
    let kind = answer.header("content-type").unwrap_or_default();
    ensure!(kind == "application/problem+json", "{kind}: {answer:?}");
    let cache = answer.header("cache-control");
    ensure!(cache == Some("no-store"), "{cache:?}: {answer:?}");
    let text = |field: &str| {
        let text = body.get(field).and_then(Value::as_str);
        text.filter(|text| !text.is_empty() && !text.chars().any(char::is_control))
            .with_context(|| format!("no {field} in words: {body}"))
    };
    let repeated = body.get("status").and_then(Value::as_u64);
    ensure!(repeated == Some(status.into()), "{body}");
    text("type")?;
    text("title")?;
    text("detail").map(str::to_owned)
}

/// Percent-encodes everything except letters and digits.
pub fn percent(text: &str) -> String {
    let encode = |byte: u8| match byte {
        letter if letter.is_ascii_alphanumeric() => char::from(letter).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn a_regular_expression_survives_the_query() {
        assert_eq!(percent(r"^a\.b$"), "%5Ea%5C%2Eb%24");
    }
}
