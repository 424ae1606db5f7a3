//! `loudou replay` on the log of a real Envoy.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::replayed::Folder;
use loudou_tests::upstream::{AS, Upstream};
use loudou_tests::{Config, Envoy, Request, eventually};
use serde_json::{Value, json};

/// Log formats, each with `true` if the replay needs `--log-format`: the defaults of Envoy and
/// Envoy Gateway, and a custom format in Envoy's notation.
const FORMATS: [(&str, bool); 3] = [
    (
        r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%""#,
        false,
    ),
    (
        r#"{"start_time":"%START_TIME%","method":"%REQ(:METHOD)%","x-envoy-origin-path":"%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%","response_code":"%RESPONSE_CODE%","duration":"%DURATION%","x-forwarded-for":"%REQ(X-FORWARDED-FOR)%","user-agent":"%REQ(USER-AGENT)%",":authority":"%REQ(:AUTHORITY)%"}"#,
        false,
    ),
    (
        r"%START_TIME(%s.%3f)% | %REQ(:METHOD)% %REQ(:PATH)% | %REQ(USER-AGENT)% | %RESPONSE_CODE% %DURATION%",
        true,
    ),
];

/// Returns the log once it contains this many requests. Envoy writes it once per second.
fn written(envoy: &Envoy, requests: usize) -> Result<String> {
    eventually(Duration::from_secs(20), "the access log", || {
        let log = envoy.log()?;
        let lines = log.lines().filter(|line| line.contains("/reply/1"));
        Ok((lines.count() == requests).then_some(log))
    })
}

/// A replay must count the same verdicts as the filter in a real Envoy with the same rules.
#[test]
fn what_a_real_envoy_decided() -> Result<()> {
    let limit = json!({ "name": "l", "algorithm": "funnel", "capacity": 40, "rate": "1/d" });
    let rules = json!([{ "name": "r", "key": [{ "header": "user-agent" }], "limits": [limit] }]);
    for (format, is_own) in FORMATS {
        let config = Config::new(rules.clone()).concurrency(2).access_log(format);
        let envoy = Envoy::start(&config)?;
        // Envoy does not escape quotes in a text format. In a text that looks like JSON, quotes
        // would end a string.
        let quoted = if format.starts_with('{') {
            "a b"
        } else {
            r#"x" "y" "z"#
        };
        let agents = ["curl/8.5.0", "Mozilla/5.0 (X11; Linux x86_64)", quoted];
        let counts = envoy.load(300, 8, |number| {
            let agent = usize::try_from(number % 3).ok().and_then(|n| agents.get(n));
            Request::get("/reply/1").header("user-agent", agent.unwrap_or(&""))
        })?;
        ensure!(counts.of(200) == 120 && counts.of(429) == 180, "{counts:?}");
        let log = written(&envoy, 300)?;
        envoy.stop()?;

        let folder = Folder::new(&rules)?;
        folder.write("envoy.log", log.as_bytes())?;
        let mut options = vec!["--output", "json"];
        options.extend(
            is_own
                .then_some(["--log-format", format])
                .into_iter()
                .flatten(),
        );
        let (out, _) = folder.replay(&["envoy.log"], &options)?;
        let summary: Value = serde_json::from_str(&out)?;
        let requests = summary.get("requests").context("requests")?;
        let same = json!({ "total": 300, "admitted": 120, "held": 0, "refused": 180 });
        ensure!(*requests == same, "{format}: {requests}");
    }
    Ok(())
}

/// Log formats with the filter's verdicts: Istio's default, response code details in JSON, filter
/// state in JSON, and filter state in a text.
const WITH_VERDICTS: [(&str, bool); 4] = [
    (
        r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%"#,
        false,
    ),
    (
        r#"{"start_time":"%START_TIME%","method":"%REQ(:METHOD)%","path":"%REQ(:PATH)%","response_code":"%RESPONSE_CODE%","response_code_details":"%RESPONSE_CODE_DETAILS%","user_agent":"%REQ(USER-AGENT)%"}"#,
        false,
    ),
    (
        r#"{"start_time":"%START_TIME%","method":"%REQ(:METHOD)%","path":"%REQ(:PATH)%","response_code":"%RESPONSE_CODE%","loudou":"%FILTER_STATE(wasm.loudou:PLAIN)%","user_agent":"%REQ(USER-AGENT)%"}"#,
        false,
    ),
    (
        "%START_TIME% %REQ(:PATH)% %FILTER_STATE(wasm.loudou:PLAIN)% %RESPONSE_CODE% %REQ(USER-AGENT)%",
        true,
    ),
];

/// Compares a log with a replay. Returns true if the log has verdicts, and the numbers of requests
/// that were refused by both, only in the log, only in the replay, and by neither.
fn agreement(folder: &Folder, options: &[&str]) -> Result<(bool, [u64; 4])> {
    let options = [options, &["--output", "json"]].concat();
    let (out, _) = folder.replay(&["envoy.log"], &options)?;
    let summary: Value = serde_json::from_str(&out)?;
    let beside = summary.get("beside_log").context("refusals in the log")?;
    let names = [
        "both_refused",
        "only_log_refused",
        "only_replay_refused",
        "neither_refused",
    ];
    let mut counts = [0; 4];
    for (name, count) in names.into_iter().zip(&mut counts) {
        *count = beside.get(name).and_then(Value::as_u64).context(name)?;
    }
    Ok((beside.get("has_verdicts") == Some(&json!(true)), counts))
}

/// If the log of a real Envoy contains verdicts, a replay with the same rules must agree on all
/// requests, although the service answers half of the requests with 429 itself. A replay with other
/// rules must not agree.
#[test]
fn the_verdicts_in_the_log_of_a_real_envoy() -> Result<()> {
    let rules = |capacity: u64| {
        let limit =
            json!([{ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/d" }]);
        let explain = json!({ "explain_header": true });
        json!([
            { "name": "r", "key": [{ "header": "user-agent" }], "limits": limit, "respond": explain },
            { "name": "tried", "key": [], "mode": "shadow", "limits": limit, "respond": explain },
        ])
    };
    let [(statuses, _), ..] = FORMATS;
    let formats = WITH_VERDICTS.map(|(format, is_own)| (format, is_own, true));
    for (format, is_own, has_verdicts) in formats.into_iter().chain([(statuses, false, false)]) {
        let upstream = Upstream::start()?;
        let config = Config::new(rules(4)).upstream(upstream.address());
        let envoy = Envoy::start(&config.access_log(format))?;
        let mut http = envoy.data();
        // Four requests of each client pass, and the service answers every second request with 429.
        for number in 0..24 {
            let agent = ["curl/8.5.0", "a-b", "c"].get(number % 3).unwrap_or(&"");
            let answer_as = if number % 2 == 0 { "429" } else { "200" };
            let request = Request::get("/reply/1").header("user-agent", agent);
            let status = http.send(&request.header(AS, answer_as))?.status;
            let is_refused = number >= 12 || number % 2 == 0;
            ensure!((status == 429) == is_refused, "{number}: {status}");
        }
        let log = written(&envoy, 24)?;
        envoy.stop()?;

        let own = if is_own {
            &["--log-format", format][..]
        } else {
            &[]
        };
        let mut found = Vec::new();
        for capacity in [4, 2] {
            let folder = Folder::new(&rules(capacity))?;
            folder.write("envoy.log", log.as_bytes())?;
            found.push(agreement(&folder, own)?);
        }
        let expected = if has_verdicts {
            [(true, [12, 0, 0, 12]), (true, [12, 0, 6, 6])]
        } else {
            [(false, [12, 6, 0, 6]), (false, [15, 3, 3, 3])]
        };
        ensure!(found == expected, "{format}: {found:?}\n{log}");
    }
    Ok(())
}
