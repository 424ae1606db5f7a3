//! More than the relay may do at a time, and its end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use anyhow::{Context as _, Result};
use loudou_api::LEASE_PATH;
use loudou_tests::{Relay, Valkey, eventually};

use crate::support::{
    PATIENCE, SOON, call, daily, granted, metric, post, start_with, wants, with_keys,
};

/// A call that runs until the paused engine continues, or is given up.
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
    // Its body never comes: it is refused before that is awaited.
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

#[test]
fn a_connection_too_many_is_closed() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &["--max-connections", "1"])?;
    let mut first = relay.http();
    // The connections of the start may not be closed yet.
    eventually(SOON, "a free connection", || {
        Ok((first.get("/healthz")?.status == 200 && first.is_open()).then_some(()))
    })?;
    let mut second = String::new();
    let mut stream = TcpStream::connect(relay.address())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.read_to_string(&mut second)?;
    assert!(second.starts_with("HTTP/1.1 503 "), "{second}");
    assert!(second.contains("retry-after: 1\r\n"), "{second}");
    assert_eq!(first.get("/healthz")?.status, 200);
    first.close();
    eventually(SOON, "the connection to be free", || {
        Ok((relay.http().get("/healthz")?.status == 200).then_some(()))
    })?;
    // This connection may be refused, too, until the one before is closed.
    let refused = eventually(SOON, "the metrics", || {
        Ok(metric(&relay, "connections_refused_total").ok())
    })?;
    assert!(refused >= 1);
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
