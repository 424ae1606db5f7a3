//! A control plane that delivers extension configurations over delta ADS, as istiod does, and
//! records if Envoy accepted them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use loudou_tests::{Update, eventually};
use tokio::sync::{mpsc, oneshot};
use tonic::codegen::tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// Timeout of an update, in which Envoy compiles a module on a busy machine.
const UPDATE: Duration = Duration::from_mins(1);

type Answer = Result<DeltaDiscoveryResponse, Status>;

/// A running control plane.
#[derive(Debug)]
pub(super) struct Ads {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Resources with their versions, by name.
    resources: BTreeMap<String, (u64, Any)>,
    envoys: Vec<Subscriber>,
    nonce: u64,
    /// Envoy's error for each response, by nonce. `None` if Envoy accepted the response.
    verdicts: BTreeMap<String, Option<String>>,
}

#[derive(Debug)]
struct Subscriber {
    number: u64,
    names: BTreeSet<String>,
    answers: mpsc::UnboundedSender<Answer>,
}

impl Ads {
    /// Starts a control plane without resources.
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::<Mutex<State>>::default();
        let (stop, stopped) = oneshot::channel();
        let service = Service(Arc::clone(&state));
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().context("no runtime")?;
        let thread = thread::spawn(move || {
            let served = runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let service = AggregatedDiscoveryServiceServer::new(service);
                let incoming = TcpListenerStream::new(listener);
                let stopped = async {
                    // This future also ends when the sender is dropped.
                    let _stop = stopped.await;
                };
                let server = Server::builder().add_service(service);
                server
                    .serve_with_incoming_shutdown(incoming, stopped)
                    .await?;
                anyhow::Ok(())
            });
            drop(served);
        });
        Ok(Self {
            state,
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stores a resource, which Envoys receive when they next subscribe to it.
    pub(super) fn offer(&self, resource: TypedExtensionConfig) {
        self.with(|state| {
            let name = resource.name.clone();
            let version = state
                .resources
                .get(&name)
                .map_or(1, |(version, _)| version + 1);
            state.resources.insert(name, (version, pack_any(resource)));
        });
    }

    /// Sends a resource to all subscribers and waits until Envoy accepts or rejects it.
    pub(super) fn push(&self, resource: TypedExtensionConfig) -> Result<Update> {
        let name = resource.name.clone();
        self.offer(resource);
        let nonce = self.with(|state| state.send_all(&name));
        let nonce = nonce.with_context(|| format!("no Envoy asks for {name}"))?;
        let verdict = eventually(UPDATE, "a verdict on an extension", || {
            Ok(self.with(|state| state.verdicts.get(&nonce).cloned()))
        })?;
        Ok(verdict.map_or(Update::Accepted, |_| Update::Rejected))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the connections of the Envoys and stops the thread.
    pub(super) fn stop(mut self) -> Result<()> {
        self.with(|state| state.envoys.clear());
        drop(self.stop.take());
        let thread = self.thread.take().context("stopped before")?;
        thread
            .join()
            .map_err(|panic| anyhow!("the control plane panicked: {panic:?}"))
    }
}

impl State {
    /// Sends a resource to all subscribers. Returns the nonce of the last response.
    fn send_all(&mut self, name: &str) -> Option<String> {
        let asking = self
            .envoys
            .iter()
            .filter(|envoy| envoy.names.contains(name));
        let numbers: Vec<u64> = asking.map(|envoy| envoy.number).collect();
        let mut sent = None;
        for number in numbers {
            sent = self.send(number, &[name.to_owned()]).or(sent);
        }
        sent
    }

    /// Sends the resources that exist to one Envoy. Returns the nonce of the response.
    fn send(&mut self, to: u64, names: &[String]) -> Option<String> {
        let found = names.iter().filter_map(|name| {
            let (version, resource) = self.resources.get(name)?;
            Some(Resource {
                name: name.clone(),
                version: version.to_string(),
                resource: Some(resource.clone()),
                ..Resource::default()
            })
        });
        let resources: Vec<Resource> = found.collect();
        let type_url = resources.first()?.resource.as_ref()?.type_url.clone();
        self.nonce += 1;
        let nonce = self.nonce.to_string();
        let answer = DeltaDiscoveryResponse {
            resources,
            type_url,
            nonce: nonce.clone(),
            ..DeltaDiscoveryResponse::default()
        };
        let envoy = self.envoys.iter().find(|envoy| envoy.number == to)?;
        envoy.answers.send(Ok(answer)).ok()?;
        Some(nonce)
    }

    fn heard(&mut self, from: u64, request: DeltaDiscoveryRequest) {
        if !request.response_nonce.is_empty() {
            let why = request.error_detail.map(|error| error.message);
            self.verdicts.insert(request.response_nonce, why);
        }
        let Some(envoy) = self.envoys.iter_mut().find(|envoy| envoy.number == from) else {
            return;
        };
        for name in &request.resource_names_unsubscribe {
            envoy.names.remove(name);
        }
        let new = request.resource_names_subscribe;
        envoy.names.extend(new.iter().cloned());
        self.send(from, &new);
    }
}

struct Service(Arc<Mutex<State>>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream =
        UnboundedReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = UnboundedReceiverStream<Answer>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("delta only, like istiod's default"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (answers, stream) = mpsc::unbounded_channel();
        let state = Arc::clone(&self.0);
        let locked = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = {
            let mut state = locked();
            state.nonce += 1;
            let number = state.nonce;
            state.envoys.push(Subscriber {
                number,
                names: BTreeSet::new(),
                answers,
            });
            number
        };
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut requests = request.into_inner();
            while let Ok(Some(request)) = requests.message().await {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.heard(number, request);
            }
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.envoys.retain(|envoy| envoy.number != number);
        });
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
}
