//! The HTTP service: routing, token verification, call limits, and responses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
    RETRY_AFTER,
};
use hyper::{Method, Request, Response, StatusCode};
use loudou_api::{LEASE_PATH, LeaseRequest, MAX_LEASE_BODY, RELAY_HEADER};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::call;
use crate::connections::Seat;
use crate::engine::Engine;
use crate::log::{Level, Log};
use crate::metrics::Metrics;

/// HTTP response with a fully buffered body.
pub type Answer = Response<Full<Bytes>>;

/// The relay's version, sent in every response.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Timeout for reading a call's body.
const BODY_TIME: Duration = Duration::from_secs(5);
/// Header in which Envoy sends its request timeout, in milliseconds.
const PATIENCE_HEADER: &str = "x-envoy-expected-rq-timeout-ms";
/// Timeout for callers that do not send a [`PATIENCE_HEADER`]: half of the default `fleet.timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(15);
/// Maximum timeout that the header can set.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);
/// Value of `retry-after` in 503 responses, in seconds.
const RETRY_S: &str = "1";

/// The HTTP service.
#[derive(Debug)]
pub struct Service {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The log.
    pub log: Log,
    /// Token that lease calls must present. If `None`, every caller is accepted.
    pub token: Option<String>,
    /// Maximum time that a call waits for the engine. The default is half of the caller's timeout.
    pub timeout: Option<Duration>,
    /// Maximum number of concurrent calls.
    pub max_calls: usize,
    /// Permits for concurrent calls, `max_calls` in total.
    pub calls: Semaphore,
}

/// Status and detail of a failed call.
type Refusal = (StatusCode, String);

impl Service {
    /// Responds to a request. On a reserve connection, the response contains `connection: close`.
    pub async fn respond(&self, request: Request<Incoming>, seat: &Seat) -> Answer {
        let _running = seat.begin();
        let mut answer = self.route(request, seat).await;
        if seat.is_reserve() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        let version = HeaderValue::from_static(VERSION);
        answer.headers_mut().insert(RELAY_HEADER, version);
        answer
    }

    async fn route(&self, request: Request<Incoming>, seat: &Seat) -> Answer {
        let path = request.uri().path();
        let (allowed, is_call) = match path {
            LEASE_PATH => (Method::POST, true),
            "/healthz" | "/metrics" => (Method::GET, false),
            _ => {
                let detail = format!("no such path; allowed: {LEASE_PATH}, /healthz, /metrics");
                return problem(StatusCode::NOT_FOUND, &detail);
            }
        };
        if *request.method() != allowed {
            let detail = format!("allowed: {allowed}");
            let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &detail);
            let allowed = HeaderValue::from_static(if is_call { "POST" } else { "GET" });
            answer.headers_mut().insert(ALLOW, allowed);
            return answer;
        }
        match path {
            "/metrics" => {
                let running = self
                    .max_calls
                    .saturating_sub(self.calls.available_permits());
                let running = u64::try_from(running).unwrap_or(u64::MAX);
                self.metrics.calls_running.set(running);
                self.metrics.note_engine(&self.engine);
                with_type("text/plain; version=0.0.4", self.metrics.text())
            }
            "/healthz" if self.engine.is_reached() => with_type("text/plain", "ok\n"),
            "/healthz" => problem(StatusCode::SERVICE_UNAVAILABLE, "the engine is unreachable"),
            _ => self.lease(request, seat).await,
        }
    }

    async fn lease(&self, request: Request<Incoming>, seat: &Seat) -> Answer {
        let begin = Instant::now();
        let answer = match self.answer(request, seat, begin).await {
            Ok(answer) => {
                self.metrics.calls_ok.inc();
                with_type("application/json", answer)
            }
            Err((status, detail)) => {
                self.count(status);
                let fields = json!({ "status": status.as_u16(), "detail": detail });
                self.log.write(Level::Debug, "call refused", fields);
                let mut answer = problem(status, &detail);
                if status == StatusCode::SERVICE_UNAVAILABLE {
                    let seconds = HeaderValue::from_static(RETRY_S);
                    answer.headers_mut().insert(RETRY_AFTER, seconds);
                }
                answer
            }
        };
        self.metrics
            .call_time
            .observe(begin.elapsed().as_secs_f64());
        answer
    }

    fn count(&self, status: StatusCode) {
        let counter = match status {
            StatusCode::UNAUTHORIZED => &self.metrics.calls_unauthorized,
            StatusCode::PAYLOAD_TOO_LARGE => &self.metrics.calls_large,
            StatusCode::REQUEST_TIMEOUT => &self.metrics.calls_slow,
            StatusCode::SERVICE_UNAVAILABLE => &self.metrics.calls_overload,
            _ => &self.metrics.calls_bad,
        };
        counter.inc();
    }

    /// Handles a call and returns the response body. The request body is read only if the token is valid and a permit
    /// is available.
    async fn answer(
        &self,
        request: Request<Incoming>,
        seat: &Seat,
        begin: Instant,
    ) -> Result<Vec<u8>, Refusal> {
        if !seat.may_call() {
            let detail = "too many connections (--max-connections, --max-peer-connections)";
            return Err((StatusCode::SERVICE_UNAVAILABLE, detail.to_owned()));
        }
        self.check_token(&request)?;
        seat.mark_known();
        let Ok(_running) = self.calls.try_acquire() else {
            let detail = "too many concurrent calls (--max-calls)";
            return Err((StatusCode::SERVICE_UNAVAILABLE, detail.to_owned()));
        };
        let timeout = timeout_of(request.headers(), self.timeout);
        let deadline = begin.checked_add(timeout).unwrap_or(begin);
        let body = read(request).await?;
        let request = LeaseRequest::read(&body)
            .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        let answer = call::answer(&self.engine, &self.metrics, &request, deadline).await;
        if self.log.has(Level::Debug) {
            let fields = json!({ "keys": answer.keys.len(), "changes": request.changes.len() });
            self.log.write(Level::Debug, "call", fields);
        }
        serde_json::to_vec(&answer)
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
    }

    fn check_token(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let Some(token) = &self.token else {
            return Ok(());
        };
        let sent = request
            .headers()
            .get(AUTHORIZATION)
            .map(HeaderValue::as_bytes);
        let sent = sent.and_then(|value| value.strip_prefix(b"Bearer "));
        // If the lengths are equal, the comparison runs in constant time. If they differ, the timing reveals only that
        // they do.
        if sent.is_some_and(|sent| sent.ct_eq(token.as_bytes()).into()) {
            return Ok(());
        }
        let detail =
            "missing or wrong token; allowed: `authorization: Bearer TOKEN` with the relay's token";
        Err((StatusCode::UNAUTHORIZED, detail.to_owned()))
    }
}

/// Returns the maximum time that a call waits for the engine: half of the caller's timeout, or `most` if shorter.
///
/// If the response arrives after the caller has timed out, all units that it grants are lost. The other half of the
/// timeout is therefore reserved for network delays and busy machines.
fn timeout_of(headers: &HeaderMap, most: Option<Duration>) -> Duration {
    let told = headers.get(PATIENCE_HEADER);
    let told = told.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let half = told
        .filter(|ms| *ms > 0)
        .map(|ms| Duration::from_micros(ms.saturating_mul(500)).min(MAX_TIMEOUT));
    match (half, most) {
        (Some(half), Some(most)) => half.min(most),
        (Some(time), None) | (None, Some(time)) => time,
        (None, None) => DEFAULT_TIMEOUT,
    }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let large = || {
        let detail = format!("the body is too large; allowed: {MAX_LEASE_BODY} bytes");
        (StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > MAX_LEASE_BODY) {
        return Err(large());
    }
    let body = Limited::new(request.into_body(), MAX_LEASE_BODY).collect();
    match timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(large()),
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the body is incomplete".to_owned())),
        Err(_) => {
            let detail = format!("the body did not arrive within {} s", BODY_TIME.as_secs());
            Err((StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

fn with_type(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn problem(status: StatusCode, detail: &str) -> Answer {
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or_default(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut answer = with_type("application/problem+json", body.to_string());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_waits_for_half_of_the_callers_time() {
        let of = |told: Option<&'static str>, most: Option<u64>| {
            let mut headers = HeaderMap::new();
            if let Some(told) = told {
                headers.insert(PATIENCE_HEADER, HeaderValue::from_static(told));
            }
            timeout_of(&headers, most.map(Duration::from_millis)).as_micros()
        };
        assert_eq!(of(Some("30"), None), 15_000);
        assert_eq!(of(Some("1"), None), 500);
        assert_eq!(of(Some("1000"), Some(40)), 40_000);
        assert_eq!(of(Some("30"), Some(40)), 15_000);
        assert_eq!(of(None, Some(40)), 40_000);
        for none in ["0", "-1", "x", ""] {
            assert_eq!(of(Some(none), None), 15_000, "{none}");
        }
        assert_eq!(of(Some("18446744073709551615"), None), 10_000_000);
    }
}
