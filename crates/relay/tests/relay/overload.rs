//! Overload and shutdown of the relay.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use anyhow::{Context as _, Result};
use loudou_api::LEASE_PATH;
use loudou_tests::{Relay, Request, Valkey, eventually};

use crate::support::{
    PATIENCE, SOON, call, daily, granted, metric, post, start_with, wants, with_keys,
};

/// Starts a call that runs until the paused engine continues or its timeout expires.
fn long_call(relay: &Relay) -> Result<thread::JoinHandle<Result<u16>>> {
    let (mut http, request) = (
        relay.http(),
        post(&with_keys(vec![wants("k", 1, daily(9))]))?,
    );
    let running = thread::spawn(move || Ok(http.send(&request)?.status));
    eventually(SOON, "the call to run", || {
        Ok((metric(relay, "calls_running")? == 1).then_some(()))
    })?;
    Ok(running)
}

#[test]
fn a_call_too_many_is_told_to_come_again() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &["--max-calls", "1"])?;
    valkey.pause()?;
    let running = long_call(&relay)?;
    // The body is never sent, because the relay must refuse the call before it reads the body.
    let mut stream = TcpStream::connect(relay.address())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!("POST {LEASE_PATH} HTTP/1.1\r\nhost: r\r\ncontent-length: 1000\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = [0; 512];
    let read = stream.read(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    valkey.resume()?;
    assert_eq!(running.join().expect("a status")?, 200);
    call(&relay, &with_keys(Vec::new()))?;
    assert!(metric(&relay, "calls_total{status=\"503\"}")? >= 1);
    Ok(())
}

/// When all connections are in use, each further connection serves one request. Lease calls are served, too, so that
/// an Envoy without a regular connection can still report its debts.
#[test]
fn a_connection_too_many_is_for_one_request() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &["--max-connections", "1"])?;
    let request = post(&with_keys(Vec::new()))?;
    let mut first = relay.http();
    // The connections that waited for the start may still be open.
    eventually(SOON, "a free connection", || {
        let answer = first.send(&request)?;
        Ok((answer.status == 200 && first.is_open()).then_some(()))
    })?;
    for _ in 0..20 {
        for request in [&request, &Request::get("/healthz")] {
            let mut other = relay.http();
            assert_eq!(other.send(request)?.status, 200);
            assert!(!other.is_open(), "it keeps its place");
        }
    }
    assert!(metric(&relay, "connections_refused_total")? >= 40);
    assert_eq!(metric(&relay, "connections_max")?, 1);
    assert_eq!(first.send(&request)?.status, 200);
    assert!(first.is_open());
    Ok(())
}

/// The relay closes connections without a complete request, even if they have sent a part of a head.
#[test]
fn a_silent_connection_ends() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &[])?;
    let mut used = relay.http();
    assert_eq!(used.send(&post(&with_keys(Vec::new()))?)?.status, 200);
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let sent = [
        b"".as_slice(),
        b"POST /v1/leases HTTP/1.1\r\nhost: r\r\n",
        preface,
    ];
    let streams = sent.map(|bytes| -> Result<TcpStream> {
        let mut stream = TcpStream::connect(relay.address())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        Ok(stream)
    });
    for stream in streams {
        let mut answer = Vec::new();
        stream?.read_to_end(&mut answer)?;
    }
    assert_eq!(metric(&relay, "connections_silent_total")?, 3);
    assert!(used.is_open());
    assert_eq!(used.send(&post(&with_keys(Vec::new()))?)?.status, 200);
    Ok(())
}

#[test]
fn few_free_connections_are_a_warning() -> Result<()> {
    const WARNING: &str = "connections near --max-connections";
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &["--max-connections", "20"])?;
    let request = post(&with_keys(Vec::new()))?;
    let open = |count| -> Result<Vec<_>> {
        let clients = (0..count).map(|_| {
            let mut client = relay.http();
            client.send(&request)?;
            Ok(client)
        });
        clients.collect()
    };
    let some = open(10)?;
    assert_eq!(relay.logged(WARNING)?, None);
    let more = open(6)?;
    let warning = eventually(SOON, "a warning", || relay.logged(WARNING))?;
    let advice = warning["advice"].as_str().context("no advice")?;
    assert!(advice.contains("workers"), "{warning}");
    drop((some, more));
    Ok(())
}

/// The relay raises its soft limit of open files to the hard limit.
#[test]
fn the_file_limit_is_raised() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &[])?;
    let pid = relay.pid().context("it runs")?;
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = files.context("no limit")?.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{limits}");
    Ok(())
}

#[test]
fn a_stop_lets_calls_finish() -> Result<()> {
    let valkey = Valkey::start()?;
    let mut relay = start_with(&valkey, &["--max-calls", "1"])?;
    assert_eq!(granted(&relay, wants("before", 1, daily(9)))?, 1);
    valkey.pause()?;
    let running = long_call(&relay)?;
    relay.terminate()?;
    eventually(SOON, "new connections to be refused", || {
        Ok(TcpStream::connect(relay.address()).is_err().then_some(()))
    })?;
    assert!(relay.ended()?.is_none(), "it has ended under a call");
    valkey.resume()?;
    assert_eq!(running.join().expect("a status")?, 200);
    let ended = eventually(SOON, "the relay to end", || relay.ended())?;
    assert!(ended.success(), "{ended}");
    let stopped = relay.logged("stopped")?.context("no last line")?;
    assert_eq!(stopped["drained"], true);
    Ok(())
}

#[test]
fn a_stop_does_not_wait_for_ever() -> Result<()> {
    let valkey = Valkey::start()?;
    let options = ["--max-calls", "1", "--drain-s", "0"];
    let mut relay = start_with(&valkey, &options)?;
    valkey.pause()?;
    let running = long_call(&relay)?;
    relay.terminate()?;
    let ended = eventually(SOON, "the relay to end", || relay.ended())?;
    assert!(ended.success(), "{ended}");
    let stopped = relay.logged("stopped")?.context("no last line")?;
    assert_eq!(stopped["drained"], false);
    let cut = running.join().expect("an outcome");
    assert!(cut.is_err(), "{cut:?}");
    Ok(())
}
