//! The server: connections within their bound, and an end that lets calls finish.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::engine::{Engine, Target};
use crate::files;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::service::{Service, VERSION};
use crate::tls;

/// The longest time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The longest time between two requests of a connection of HTTP/1.
const IDLE: Duration = Duration::from_mins(10);
/// The most calls at a time in one connection of HTTP/2.
const STREAMS: u32 = 1_024;

/// Answers until a signal (TERM, INT) ends it. An error is one of the options, or of the port.
pub async fn run(options: Options) -> Result<(), String> {
    let log = Log::new(options.log_level);
    let token = match &options.token_file {
        Some(path) => Some(files::secret("--token-file", path)?),
        None => options.token.clone(),
    };
    let acceptor = tls::acceptor(&options)?;
    let target = Target::new(&options)?;
    let metrics = Arc::new(Metrics::default());
    let engine = Arc::new(Engine::new(Arc::clone(&metrics), log));
    let keeper = Arc::clone(&engine);
    tokio::spawn(async move { keeper.keep(target).await });
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|error| format!("--listen {}: {error}", options.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let is_open = token.is_none() && options.client_ca.is_none();
    if is_open && !address.ip().is_loopback() {
        let advice = "set --token-file or --client-ca";
        let fields = json!({ "advice": advice });
        log.write(
            Level::Warn,
            "everybody who reaches the port may call",
            fields,
        );
    }
    let calls = usize::try_from(options.max_calls).unwrap_or(usize::MAX);
    let service = Arc::new(Service {
        engine,
        metrics,
        log,
        token,
        timeout: Duration::from_millis(options.timeout_ms),
        max_calls: calls,
        calls: Semaphore::new(calls),
    });
    let fields = json!({ "address": address.to_string(), "version": VERSION });
    let stop = Stop::new().map_err(|error| format!("no signals: {error}"))?;
    log.write(Level::Info, "listening", fields);
    Server {
        service,
        acceptor,
        listener,
    }
    .serve(&options, stop)
    .await;
    Ok(())
}

/// The signals that end the relay.
struct Stop {
    term: Signal,
    int: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn called(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

struct Server {
    service: Arc<Service>,
    acceptor: Option<TlsAcceptor>,
    listener: TcpListener,
}

impl Server {
    async fn serve(self, options: &Options, mut stop: Stop) {
        let log = self.service.log;
        let most = usize::try_from(options.max_connections).unwrap_or(usize::MAX);
        let connections = Arc::new(Semaphore::new(most));
        let graceful = GracefulShutdown::new();
        loop {
            let stream = tokio::select! {
                () = stop.called() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Most often there are too many open files: some close meanwhile.
                        let fields = json!({ "error": error.to_string() });
                        log.write(Level::Warn, "a connection could not be accepted", fields);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
                self.service.metrics.connections_refused.add(1);
                tokio::spawn(refuse(stream));
                continue;
            };
            let open = most.saturating_sub(connections.available_permits());
            self.note_open(open);
            let (service, acceptor) = (Arc::clone(&self.service), self.acceptor.clone());
            let (watcher, all) = (graceful.watcher(), Arc::clone(&connections));
            tokio::spawn(async move {
                connection(stream, &service, acceptor, watcher).await;
                drop(permit);
                let open = most.saturating_sub(all.available_permits());
                service
                    .metrics
                    .connections
                    .set(u64::try_from(open).unwrap_or(u64::MAX));
            });
        }
        drop(self.listener);
        log.write(
            Level::Info,
            "stopping",
            json!({ "drain_s": options.drain_s }),
        );
        let drain = Duration::from_secs(options.drain_s);
        let drained = timeout(drain, graceful.shutdown()).await.is_ok();
        log.write(Level::Info, "stopped", json!({ "drained": drained }));
    }

    fn note_open(&self, open: usize) {
        let open = u64::try_from(open).unwrap_or(u64::MAX);
        self.service.metrics.connections.set(open);
    }
}

async fn connection(
    stream: TcpStream,
    service: &Arc<Service>,
    acceptor: Option<TlsAcceptor>,
    watcher: Watcher,
) {
    // Without it, the answer may wait for an acknowledgement.
    drop(stream.set_nodelay(true));
    let Some(acceptor) = acceptor else {
        return requests(stream, service, watcher).await;
    };
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, service, watcher).await,
        Ok(Err(error)) => {
            let fields = json!({ "error": error.to_string() });
            service.log.write(Level::Debug, "no TLS handshake", fields);
        }
        Err(_) => service
            .log
            .write(Level::Debug, "no TLS handshake in time", json!({})),
    }
}

/// HTTP/1 or HTTP/2, as the client begins.
async fn requests<S>(stream: S, service: &Arc<Service>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS);
    let answer = service_fn(move |request| {
        let service = Arc::clone(service);
        async move { Ok::<_, Infallible>(service.respond(request).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    // A client that breaks off is the client's affair.
    drop(watcher.watch(connection).await);
}

/// For a client of HTTP/1; one of HTTP/2 sees that the connection ends.
async fn refuse(mut stream: TcpStream) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nx-loudou-relay: {VERSION}\r\nretry-after: 1\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    let sent = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    };
    drop(timeout(HANDSHAKE, sent).await);
}
