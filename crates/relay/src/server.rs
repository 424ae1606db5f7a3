//! The TCP and HTTP server, with connection limits and graceful shutdown.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connections::{Connections, Seat};
use crate::engine::{Engine, Target};
use crate::files;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::service::{Service, VERSION};
use crate::tls;

/// TLS handshake timeout.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Interval between HTTP/2 pings, and the timeout for each ping.
const PING: Duration = Duration::from_secs(10);
/// Number of file descriptors the process needs besides its connections.
const OTHER_FILES: u64 = 128;
/// Maximum number of concurrent streams per HTTP/2 connection.
const STREAMS: u32 = 1_024;

/// Serves calls until SIGTERM or SIGINT. Returns an error if an option is invalid or the port cannot be opened.
pub async fn run(options: Options) -> Result<(), String> {
    let log = Log::new(options.log_level);
    let token = match &options.token_file {
        Some(path) => Some(files::secret("--token-file", path)?),
        None => options.token.clone(),
    };
    let acceptor = tls::acceptor(&options)?;
    let target = Target::new(&options)?;
    let metrics = Arc::new(Metrics::default());
    let engine = Arc::new(Engine::new(target, Arc::clone(&metrics), log));
    let keeper = Arc::clone(&engine);
    tokio::spawn(async move { keeper.keep().await });
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|error| format!("--listen {}: {error}", options.listen))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let is_open = token.is_none() && options.client_ca.is_none();
    if is_open && !address.ip().is_loopback() {
        let advice = "set --token-file or --client-ca";
        let fields = json!({ "advice": advice });
        log.write(
            Level::Warn,
            "anyone who can connect may call: no token or client CA is set",
            fields,
        );
    }
    let calls = usize::try_from(options.max_calls).unwrap_or(usize::MAX);
    let service = Arc::new(Service {
        engine,
        metrics,
        log,
        token,
        timeout: options.timeout_ms.map(Duration::from_millis),
        max_calls: calls,
        calls: Semaphore::new(calls),
    });
    let fields = json!({ "address": address.to_string(), "version": VERSION });
    let stop = Stop::new().map_err(|error| format!("cannot handle signals: {error}"))?;
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

/// Waits for a signal to stop the relay.
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
        let connections = self.connections(options);
        let graceful = GracefulShutdown::new();
        loop {
            let (stream, peer) = tokio::select! {
                () = stop.called() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // A common cause is too many open files. Some of them may be closed during the pause.
                        let fields = json!({ "error": error.to_string() });
                        log.write(Level::Warn, "cannot accept a connection", fields);
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let Some(seat) = connections.admit(peer.ip()) else {
                tokio::spawn(refuse(stream));
                continue;
            };
            let (service, acceptor) = (Arc::clone(&self.service), self.acceptor.clone());
            let watcher = graceful.watcher();
            let shows_certificate = options.client_ca.is_some();
            tokio::spawn(async move {
                // Disable Nagle's algorithm, which could delay the response until the client acknowledges earlier data.
                drop(stream.set_nodelay(true));
                let seat = Arc::new(seat);
                let Some(acceptor) = acceptor else {
                    return requests(stream, &service, &seat, watcher).await;
                };
                if let Some(stream) = handshake(stream, &acceptor, log).await {
                    if shows_certificate {
                        seat.mark_known();
                    }
                    requests(stream, &service, &seat, watcher).await;
                }
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

    /// Returns the connection limits from the options, reduced if the system does not allow enough open files.
    fn connections(&self, options: &Options) -> Arc<Connections> {
        let asked = u64::from(options.max_connections);
        let most = within_files(asked, raise_file_limit());
        if most < asked {
            let advice = "raise the limit of open files (`ulimit -n`, LimitNOFILE=), or lower --max-connections";
            let fields = json!({ "max_connections": most, "advice": advice });
            let message = "the limit of open files is too low for --max-connections";
            self.service.log.write(Level::Warn, message, fields);
        }
        let of_peer = options
            .max_peer_connections
            .map_or_else(|| most.div_ceil(4), u64::from);
        let [most, of_peer] =
            [most, of_peer].map(|count| usize::try_from(count).unwrap_or(usize::MAX));
        let metrics = Arc::clone(&self.service.metrics);
        Connections::new(most, of_peer, metrics, self.service.log)
    }
}

/// Raises the soft limit on open files to the hard limit. Returns the limit, or `None` if there is no limit.
fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Returns `asked`, capped at the number of connections that the open file limit permits, but at least 1.
fn within_files(asked: u64, files: Option<u64>) -> u64 {
    let most = files.map_or(asked, |files| files.saturating_sub(OTHER_FILES));
    asked.min(most).max(1)
}

async fn handshake(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    log: Log,
) -> Option<TlsStream<TcpStream>> {
    match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            let fields = json!({ "error": error.to_string() });
            log.write(Level::Debug, "TLS handshake failed", fields);
            None
        }
        Err(_) => {
            log.write(Level::Debug, "TLS handshake timed out", json!({}));
            None
        }
    }
}

/// Serves HTTP/1 or HTTP/2, depending on the first bytes sent by the client.
async fn requests<S>(stream: S, service: &Arc<Service>, seat: &Arc<Seat>, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    // `Seat::silence` closes idle connections, so hyper's header timeout is not needed.
    builder.http1().header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS);
    let answer = service_fn(|request| {
        let (service, seat) = (Arc::clone(service), Arc::clone(seat));
        async move { Ok::<_, Infallible>(service.respond(request, &seat).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        // An error only means that the client has closed or dropped the connection.
        ended = watcher.watch(connection) => drop(ended),
        () = seat.silence() => {}
    }
}

/// Sends an HTTP/1 response with status 503 and closes the connection. An HTTP/2 client just sees the connection close.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_need_files() {
        assert_eq!(within_files(8_192, None), 8_192);
        assert_eq!(within_files(8_192, Some(20_000)), 8_192);
        assert_eq!(within_files(8_192, Some(1_024)), 896);
        assert_eq!(within_files(8_192, Some(10)), 1);
    }
}
