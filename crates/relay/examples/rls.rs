//! A rate limit service (`envoy.service.ratelimit.v3.RateLimitService`) for Envoy's built-in rate limit filter, which
//! calls it once per request. `cargo xtask bench fleet` compares leases to it.
//!
//! To make the comparison fair, the service does as little work as possible. Each call runs one script in the engine
//! over a shared connection, and messages are parsed without a protobuf library. The command-line options are the same
//! as the relay's. If a domain is a JSON limit, such as `{"capacity":30,"window_ns":60000000000}`, that limit applies
//! to its keys.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser as _;
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use loudou_api::{LeaseKey, LeaseLimit};
use loudou_relay::engine::{Engine, Target, Which};
use loudou_relay::log::{Level, Log};
use loudou_relay::metrics::Metrics;
use loudou_relay::options::Options;
use loudou_relay::script;
use redis::Value;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Limit for every key in any other domain. It matches the limit in the benchmark's rules.
const LIMIT: LeaseLimit = LeaseLimit::Leak {
    capacity: 1_000_000,
    amount: 1_000_000,
    period_ns: 1_000_000_000,
};
const MAX_BODY: usize = 64 * 1024;
/// `RateLimitResponse.overall_code`.
const OK: u8 = 1;
const OVER_LIMIT: u8 = 2;
/// gRPC status codes: `OK`, `INVALID_ARGUMENT` and `UNAVAILABLE`.
const DONE: &str = "0";
const BAD: &str = "3";
const UNAVAILABLE: &str = "14";

type Trailers = Ready<Option<Result<HeaderMap, Infallible>>>;
type Answer = Response<WithTrailers<Full<Bytes>, Trailers>>;

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(|error| format!("cannot start threads: {error}"))
        .and_then(|runtime| runtime.block_on(run(&options)));
    let Err(error) = done;
    drop(writeln!(std::io::stderr(), "error: {error}"));
    ExitCode::FAILURE
}

/// Serves calls until the process is killed.
async fn run(options: &Options) -> Result<Infallible, String> {
    let log = Log::new(options.log_level);
    let target = Target::new(options)?;
    let engine = Arc::new(Engine::new(target, Arc::new(Metrics::default()), log));
    let keeper = Arc::clone(&engine);
    tokio::spawn(async move { keeper.keep().await });
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|error| format!("--listen {}: {error}", options.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let fields = json!({ "address": address.to_string() });
    log.write(Level::Info, "listening", fields);
    let longest = Duration::from_millis(options.timeout_ms.unwrap_or(15));
    loop {
        let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        drop(stream.set_nodelay(true));
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let engine = Arc::clone(&engine);
                async move { Ok::<_, Infallible>(respond(&engine, request, longest).await) }
            });
            let builder = Builder::new(TokioExecutor::new());
            // An error only means that the client has closed or dropped the connection.
            drop(builder.serve_connection(TokioIo::new(stream), answer).await);
        });
    }
}

async fn respond(engine: &Engine, request: Request<Incoming>, longest: Duration) -> Answer {
    if request.uri().path() == "/healthz" {
        let status = if engine.is_reached() {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        let mut answer = Response::new(Full::default().with_trailers(ready(None)));
        *answer.status_mut() = status;
        return answer;
    }
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let asked = body.ok().and_then(|body| question(&body.to_bytes()));
    let Some((domain, key)) = asked else {
        return grpc(Bytes::new(), BAD);
    };
    let deadline = Instant::now().checked_add(longest);
    let call = script::lease(&domain, &key);
    let reply = engine.call(Which::Lease, &call, deadline.unwrap_or_else(Instant::now));
    let Ok(Value::Array(numbers)) = reply.await else {
        return grpc(Bytes::new(), UNAVAILABLE);
    };
    let code = match numbers.first() {
        Some(Value::Int(1)) => OK,
        _ => OVER_LIMIT,
    };
    // An uncompressed gRPC frame whose message has two bytes: field 1 as a varint.
    let frame = [0, 0, 0, 0, 2, 0x08, code];
    grpc(Bytes::copy_from_slice(&frame), DONE)
}

fn grpc(frame: Bytes, status: &'static str) -> Answer {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(status));
    let body = Full::new(frame).with_trailers(ready(Some(Ok(trailers))));
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Parses the gRPC frame of a `RateLimitRequest`. Returns the domain, and a lease request for one unit of the key. The
/// rule and key are the name and value of the first entry in the first descriptor.
fn question(frame: &[u8]) -> Option<(String, LeaseKey)> {
    let (_, message) = frame.split_at_checked(5)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let entry = field(field(message, 2)?, 1)?;
    let (rule, key) = (text(field(entry, 1)?)?, text(field(entry, 2)?)?);
    let domain = text(field(message, 1)?)?;
    let limit = serde_json::from_str(&domain).unwrap_or(LIMIT);
    let key = LeaseKey {
        want: 1,
        need: 1,
        ..LeaseKey::new(&rule, &key, vec![limit])
    };
    Some((domain, key))
}

/// Returns the contents of a protobuf message's first length-delimited field with the number `wanted`.
fn field(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    loop {
        let tag = varint(&mut message)?;
        let value = varint(&mut message)?;
        match tag & 7 {
            0 => {}
            2 => {
                let (bytes, rest) = message.split_at_checked(usize::try_from(value).ok()?)?;
                if tag >> 3 == wanted {
                    return Some(bytes);
                }
                message = rest;
            }
            _ => return None,
        }
    }
}

/// Reads a varint from the beginning of `bytes` and advances `bytes` past it.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first < 0x80 {
            return Some(number);
        }
    }
    None
}
