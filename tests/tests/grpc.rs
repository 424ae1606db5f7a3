//! Refused gRPC calls, as a gRPC client receives them over HTTP/2.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::{Config, Envoy};
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

const SEND: &str = "/reply.v1.Replies/Send";

/// Codec for messages without fields.
struct Empty;

impl Codec for Empty {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Empty {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Empty {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, _: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        Ok(Some(()))
    }
}

/// Calls a method `count` times in a row and returns the statuses. Without a gRPC server, an
/// admitted call fails with another status than a refused call.
fn call(envoy: &Envoy, method: &str, count: usize) -> Result<Vec<Status>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let address = format!("http://{}", envoy.data_address());
    runtime.block_on(async {
        let mut client = Grpc::new(Endpoint::from_shared(address)?.connect().await?);
        let mut statuses = Vec::new();
        for _ in 0..count {
            client.ready().await?;
            let path = method.parse()?;
            let mut request = Request::new(());
            request.metadata_mut().insert("x-user-id", "alice".parse()?);
            let answer = client.unary(request, path, Empty).await;
            statuses.push(answer.err().context("an answer without a server")?);
        }
        Ok(statuses)
    })
}

fn start(refuse: &Value) -> Result<Envoy> {
    Envoy::start(&Config::new(json!([{
        "name": "r",
        "key": [{ "header": "x-user-id" }],
        "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/h" }],
        "refuse": refuse,
        "respond": { "ratelimit_headers": "both" },
    }])))
}

fn of<'a>(status: &'a Status, name: &str) -> Vec<&'a str> {
    let values = status.metadata().get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).collect()
}

#[test]
fn a_grpc_client_gets_resource_exhausted_and_its_retry_delay() -> Result<()> {
    let envoy = start(&json!({ "headers": { "x-refused-by": "loudou" } }))?;
    let statuses = call(&envoy, SEND, 2)?;
    let [admitted, refused] = statuses.as_slice() else {
        anyhow::bail!("{statuses:?}");
    };
    ensure!(admitted.code() == Code::Unknown, "{admitted:?}");
    ensure!(refused.code() == Code::ResourceExhausted, "{refused:?}");
    let hour = Duration::from_hours(1);
    let nearly = Duration::from_secs(3_500);
    let info = refused.get_details_retry_info().context("no RetryInfo")?;
    let delay = info.retry_delay.context("no delay")?;
    ensure!(delay > nearly && delay <= hour, "{delay:?}");
    let pushback_ms: u64 = of(refused, "grpc-retry-pushback-ms").concat().parse()?;
    let pushback = Duration::from_millis(pushback_ms);
    ensure!(pushback >= delay && pushback <= hour, "{pushback:?}");
    let wait = of(refused, "retry-after").concat();
    let message = format!("over the limit of r.l: try again in {wait} s");
    ensure!(refused.message() == message, "{refused:?}");
    // Each header appears exactly once, even through HTTP/2 and Envoy's local reply.
    for name in [
        "retry-after",
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-limit",
        "x-refused-by",
        "content-type",
    ] {
        ensure!(of(refused, name).len() == 1, "{name}: {refused:?}");
    }
    ensure!(
        of(refused, "content-type") == ["application/grpc"],
        "{refused:?}"
    );
    envoy.stop()
}

#[test]
fn a_grpc_client_gets_unavailable_without_a_message() -> Result<()> {
    let envoy = start(&json!({ "status": 503, "body": "none", "grpc": "unavailable" }))?;
    let statuses = call(&envoy, SEND, 2)?;
    let refused = statuses.last().context("two")?;
    ensure!(refused.code() == Code::Unavailable, "{refused:?}");
    ensure!(refused.message().is_empty(), "{refused:?}");
    ensure!(refused.get_details_retry_info().is_some(), "{refused:?}");
    envoy.stop()
}
