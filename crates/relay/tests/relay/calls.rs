//! Lease calls: grants, size limits, the token, hostile keys and logs.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use anyhow::Result;
use loudou_api::{
    KeyAnswer, LEASE_PATH, Lease, LeaseError, LeaseKey, LeaseLimit, LeaseRequest, MAX_LEASE_BODY,
    MAX_LEASE_KEYS,
};
use loudou_tests::{Relay, Request, TempDir, Valkey};
use serde_json::{Value, json};

use crate::support::{
    PATIENCE, TWO, ask, call, daily, granted, metric, post, send, start, start_with, wants,
    with_keys,
};

#[test]
fn envoys_share_one_limit() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    assert_eq!(granted(&relay, wants("nina", 60, daily(100)))?, 60);
    let other = LeaseRequest {
        instance: TWO.to_owned(),
        ..with_keys(vec![LeaseKey {
            need: 1,
            ..wants("nina", 60, daily(100))
        }])
    };
    let answer = call(&relay, &other)?;
    let KeyAnswer::Lease(lease) = &answer.keys[0] else {
        panic!("{answer:?}");
    };
    assert_eq!((lease.granted, lease.charged), (40, 0));
    assert_eq!(lease.left, [0]);
    // The next unit returns after a day, minus the time since the first call.
    let day_us = 86_400_000_000;
    assert!((day_us / 2..=day_us).contains(&lease.wait_us), "{lease:?}");
    assert_eq!(answer.envoys, 2);
    // Another key, another rule and another namespace each have a separate bucket.
    assert_eq!(granted(&relay, wants("olga", 60, daily(100)))?, 60);
    let rule = LeaseKey {
        rule: "s".to_owned(),
        ..wants("nina", 60, daily(100))
    };
    assert_eq!(granted(&relay, rule)?, 60);
    let elsewhere = LeaseRequest {
        namespace: "other".to_owned(),
        ..with_keys(vec![wants("nina", 60, daily(100))])
    };
    let answer = call(&relay, &elsewhere)?;
    assert_eq!(answer.envoys, 1);
    assert!(matches!(
        answer.keys[0],
        KeyAnswer::Lease(Lease { granted: 60, .. })
    ));
    Ok(())
}

#[test]
fn a_debt_is_charged_above_the_limit() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let owes = |debt| LeaseKey {
        debt,
        ..wants("nina", 1, daily(10))
    };
    let lease = ask(&relay, owes(4))?.expect("a lease");
    assert_eq!((lease.granted, lease.charged), (1, 4));
    assert_eq!(lease.left, [5]);
    let lease = ask(&relay, owes(9))?.expect("a lease");
    assert_eq!((lease.granted, lease.charged), (0, 9));
    assert_eq!(lease.left, [0]);
    let days = 86_400_000_000;
    assert!((4 * days..=5 * days).contains(&lease.wait_us), "{lease:?}");
    Ok(())
}

#[test]
fn every_limit_grants_or_none_does() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let window = LeaseLimit::Window {
        capacity: 5,
        window_ns: 366 * 86_400_000_000_000,
    };
    let both = |want| LeaseKey {
        limits: vec![window, daily(100)],
        ..wants("nina", want, daily(100))
    };
    let lease = ask(&relay, both(8))?.expect("a lease");
    assert_eq!(lease.granted, 5);
    assert_eq!(lease.left, [0, 95]);
    assert_eq!(lease.wait_us, lease.ends_us);
    // The second limit was charged only the five granted units.
    assert_eq!(granted(&relay, wants("nina", 100, daily(100)))?, 95);
    Ok(())
}

#[test]
fn a_call_has_as_many_keys_as_it_may() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let keys = (0..MAX_LEASE_KEYS).map(|key| wants(&key.to_string(), 3, daily(2)));
    let request = with_keys(keys.collect());
    for granted in [2, 0] {
        let answer = call(&relay, &request)?;
        assert_eq!(answer.keys.len(), MAX_LEASE_KEYS);
        let same = |key: &KeyAnswer| matches!(key, KeyAnswer::Lease(l) if l.granted == granted);
        assert!(answer.keys.iter().all(same), "{answer:?}");
    }
    assert_eq!(metric(&relay, "keys_total{outcome=\"partly\"}")?, 512);
    assert_eq!(metric(&relay, "keys_total{outcome=\"denied\"}")?, 512);
    assert_eq!(metric(&relay, "units_granted_total")?, 1_024);
    assert_eq!(metric(&relay, "calls_total{status=\"200\"}")?, 2);
    Ok(())
}

/// A key that occurs twice in a call is granted once. An equal key of another rule is a different key.
#[test]
fn a_key_is_granted_once_in_a_call() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let twice = LeaseKey {
        debt: 1,
        ..wants("nina", 2, daily(10))
    };
    let of_other_rule = LeaseKey {
        rule: "s".to_owned(),
        ..twice.clone()
    };
    let keys = vec![twice.clone(), of_other_rule, twice];
    let answer = call(&relay, &with_keys(keys))?;
    let taken = |key: &KeyAnswer| match key {
        KeyAnswer::Lease(lease) => Ok((lease.granted, lease.charged)),
        KeyAnswer::Failed(error) => Err(*error),
    };
    let taken: Vec<_> = answer.keys.iter().map(taken).collect();
    assert_eq!(taken, [Ok((2, 1)), Ok((2, 1)), Err(LeaseError::Refused)]);
    let lease = ask(&relay, wants("nina", 0, daily(10)))?.expect("a lease");
    assert_eq!(lease.left, [7]);
    Ok(())
}

#[test]
fn what_is_no_call_is_refused() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start(&valkey)?;
    let refused = |request: &Request| -> Result<(u16, String)> {
        let response = send(&relay, request)?;
        let problem = response.json()?;
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(problem["status"], json!(response.status));
        let detail = problem["detail"].as_str().unwrap_or_default();
        Ok((response.status, detail.to_owned()))
    };
    let body = |body: &[u8]| Request::post(LEASE_PATH).body(body);
    let (status, detail) = refused(&body(b"{"))?;
    assert_eq!(
        (status, detail.as_str()),
        (400, "line 1, column 1: the text ends too early")
    );
    let many = with_keys(vec![wants("nina", 1, daily(1)); MAX_LEASE_KEYS + 1]);
    let (status, detail) = refused(&post(&many)?)?;
    assert_eq!(
        (status, detail.as_str()),
        (400, "keys: 513; allowed: 0 to 512")
    );
    let mut wrong = serde_json::to_value(with_keys(vec![wants("nina", 1, daily(1))]))?;
    for value in [
        json!(-1),
        json!(1.5),
        json!("nina"),
        json!(1_u64 << 40),
        Value::Null,
    ] {
        wrong["keys"][0]["want"] = value;
        let (status, detail) = refused(&body(wrong.to_string().as_bytes()))?;
        assert!(
            status == 400 && !detail.contains("nina"),
            "{status} {detail}"
        );
    }
    let large = vec![b' '; MAX_LEASE_BODY + 1];
    let detail = "the body is too large; allowed: 524288 bytes".to_owned();
    assert_eq!(refused(&body(&large))?, (413, detail.clone()));
    assert_eq!(refused(&body(&large).chunked(4_096))?, (413, detail));
    assert_eq!(length_only(&relay)?, "HTTP/1.1 413 Payload Too Large");
    assert_eq!(refused(&Request::get("/v1/lease"))?.0, 404);
    let get = send(&relay, &Request::get(LEASE_PATH))?;
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
    assert_eq!(metric(&relay, "calls_total{status=\"400\"}")?, 7);
    assert_eq!(metric(&relay, "calls_total{status=\"413\"}")?, 3);
    assert_eq!(valkey.run(&["DBSIZE"])?.number()?, 0, "something was taken");
    Ok(())
}

/// Sends the head of a call that is too large, without a body. Returns the status line of the answer.
fn length_only(relay: &Relay) -> Result<String> {
    let mut stream = TcpStream::connect(relay.address())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = MAX_LEASE_BODY + 1;
    let head = format!("POST {LEASE_PATH} HTTP/1.1\r\nhost: r\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

#[test]
fn a_call_needs_the_token() -> Result<()> {
    let valkey = Valkey::start()?;
    let dir = TempDir::new("token")?;
    let file = dir
        .write("token", "a-secret-of-relays\n")?
        .display()
        .to_string();
    let relay = start_with(&valkey, &["--token-file", &file])?;
    let request = post(&with_keys(vec![wants("nina", 1, daily(1))]))?;
    let status = |request: &Request| send(&relay, request).map(|response| response.status);
    assert_eq!(status(&request)?, 401);
    for wrong in [
        "",
        "a-secret-of-relay",
        "a-secret-of-relays2",
        "A-secret-of-relays",
    ] {
        assert_eq!(status(&request.clone().token(wrong))?, 401, "{wrong}");
    }
    let basic = request
        .clone()
        .header("authorization", "a-secret-of-relays");
    assert_eq!(status(&basic)?, 401);
    assert_eq!(valkey.run(&["DBSIZE"])?.number()?, 0, "something was taken");
    assert_eq!(status(&request.token("a-secret-of-relays"))?, 200);
    assert_eq!(status(&Request::get("/healthz"))?, 200);
    assert_eq!(metric(&relay, "calls_total{status=\"401\"}")?, 6);
    assert!(
        !relay.log()?.contains("a-secret-of"),
        "the token is in the log"
    );
    Ok(())
}

/// A key from a request never acts as a command, a pattern, a hash tag or a separator.
#[test]
fn a_hostile_key_is_only_a_key() -> Result<()> {
    let valkey = Valkey::start()?;
    let relay = start_with(&valkey, &["--log-level", "debug"])?;
    let long = "x".repeat(8_192);
    let hostile = [
        "a\r\n*1\r\n$8\r\nFLUSHALL\r\n",
        "{slot}",
        "}{",
        "%7Bslot%7D",
        "a:b",
        "a%3Ab",
        "\0",
        "",
        " ",
        "*",
        "'] redis.call('FLUSHALL') --",
        "ä€😀\u{202e}",
        &long,
    ];
    valkey.run(&["SET", "witness", "1"])?;
    for key in hostile {
        assert_eq!(granted(&relay, wants(key, 2, daily(1)))?, 1, "{key:?}");
    }
    for key in hostile {
        let of_rule = LeaseKey {
            rule: format!("{}-", key.get(..200).unwrap_or(key)),
            ..wants(key, 2, daily(1))
        };
        assert_eq!(granted(&relay, wants(key, 2, daily(1)))?, 0, "{key:?}");
        assert_eq!(granted(&relay, of_rule)?, 1, "{key:?} as a rule");
    }
    let names = valkey.run(&["KEYS", "loudou:lease:*"])?.texts()?;
    let names: BTreeSet<String> = names.into_iter().collect();
    assert_eq!(names.len(), 2 * hostile.len());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:%".contains(&byte);
    assert!(
        names.iter().all(|name| name.bytes().all(plain)),
        "{names:?}"
    );
    assert!(
        names.iter().all(|name| name.matches(':').count() == 4),
        "{names:?}"
    );
    assert_eq!(valkey.run(&["GET", "witness"])?.number()?, 1);
    Ok(())
}

#[test]
fn no_key_is_in_the_log() -> Result<()> {
    let mut valkey = Valkey::start()?;
    let relay = start_with(&valkey, &["--log-level", "debug"])?;
    let secret = LeaseKey {
        rule: "rule-of-nina".to_owned(),
        ..wants("nina-secret", 1, daily(1))
    };
    let name = "loudou:lease:test:rule-of-nina:nina-secret";
    granted(&relay, secret.clone())?;
    valkey.run(&["DEL", name])?;
    valkey.run(&["LPUSH", name, "1"])?;
    assert!(ask(&relay, secret.clone())?.is_err());
    // Without `EVALSHA`, the server's error repeats the command with its key.
    let odd = Valkey::start_with(&["--rename-command", "EVALSHA", ""])?;
    let odd_relay = start_with(&odd, &["--log-level", "debug"])?;
    assert!(ask(&odd_relay, secret.clone())?.is_err());
    let mut wrong = serde_json::to_value(with_keys(vec![secret.clone()]))?;
    wrong["keys"][0]["want"] = json!("nina-secret");
    let wrong = Request::post(LEASE_PATH).body(wrong.to_string());
    assert_eq!(send(&relay, &wrong)?.status, 400);
    valkey.kill();
    assert!(ask(&relay, secret)?.is_err());
    let log = relay.log()?;
    for log in [&log, &odd_relay.log()?] {
        assert!(!log.contains("nina"), "{log}");
    }
    assert!(odd_relay.logged("the engine refused a script")?.is_some());
    for message in [
        "listening",
        "connected to the engine",
        "call",
        "call refused",
        "lost the connection to the engine",
    ] {
        assert!(relay.logged(message)?.is_some(), "no {message:?} in {log}");
    }
    Ok(())
}
