//! Traces and access logs, as `loudou replay` reads them.

use loudou::cli::fuzzing::{loudou, unsafe_character};

use super::{Bounds, Target};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/rules.json");
/// More options, of which one byte chooses.
const OPTIONS: [&[&str]; 14] = [
    &[],
    &["--format", "trace"],
    &["--format", "envoy"],
    &["--format", "envoy-json"],
    &["--format", "combined"],
    &["--format", "vhost-combined"],
    &["--format", "ingress-nginx"],
    &["--format", "caddy"],
    &["--format", "alb"],
    &["--source", "xff:2"],
    &["--source", "header:x-user-id", "--from", "+1s"],
    &["--from", "-1h", "--to", "-0s"],
    &[
        "--log-format",
        r#"$remote_addr [$time_local] "$request" $http_x_user_id"#,
    ],
    &[
        "--log-format",
        "[%START_TIME%] \"%REQ(:METHOD)% %REQ(:PATH)%\" \"%REQ(USER-AGENT)%\" %DURATION%",
    ],
];
const OUTPUTS: [&str; 3] = ["table", "json", "jsonl"];

pub(super) const LOG: Target = Target {
    name: "log",
    about: "traces and access logs; the first byte chooses the format and the output",
    run,
    seeds,
    words: &[
        b"\n",
        b"{\"at_ns\":",
        b"\"headers\":{",
        b"\"x-user-id\":",
        b"\"source\":\"10.0.0.1\"",
        b"\"edit\":",
        b"\"cost\":",
        b"\"path\":\"/reply/1?q=1\"",
        b"[2016-04-15T20:17:00.310Z] ",
        b"\"GET / HTTP/1.1\"",
        b"[10/Oct/2000:13:55:36 -0700]",
        b"\\x22",
        b"\\u0000",
        b"\\u202e",
        b"9999-12-31T23:59:60Z",
        b"0000-01-01T00:00:00Z",
        b"\"-\"",
        b" - ",
        b"+24:00",
        b"\xff",
        b"\x1b[31m",
        b"\"duration\":",
        b"\"start_time\":",
        b"[pod/a/b] ",
        b"2016-04-15T20:17:00.310Z stdout P ",
        b"2016-04-15T20:17:00.310Z stdout F ",
        b"{\"log\":\"",
        b"\\n\",\"stream\":\"stdout\"}",
        b"web-1  | ",
        b"<134>1 2016-10-06T00:17:09Z web nginx 7 - - ",
        b"<190>Oct  6 00:17:09 web nginx[7]: ",
        b"2001:db8::7 - - [",
        b"\"ts\":1646861401.5,\"request\":{\"method\":\"GET\"",
        b"\"- - -\"",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        b"\x28\xb5\x2f\xfd",
        b"example.com:443 ",
        b"{\"a\":",
        b"[[[[[[[[",
    ],
    longest: 64 * 1024,
    bounds: Bounds {
        us: 60_000,
        ns_per_byte: 10_000,
        kib: 32 * 1024,
        bytes_per_byte: 2_000,
    },
};

fn run(input: &[u8]) {
    let (choice, log) = input.split_first().unwrap_or((&0, &[]));
    let choice = usize::from(*choice);
    let options = OPTIONS.iter().cycle().nth(choice % OPTIONS.len()).copied();
    let output = OUTPUTS.iter().cycle().nth(choice / OPTIONS.len()).copied();
    let mut arguments = vec![
        "replay",
        "--config",
        RULES,
        "--output",
        output.unwrap_or("table"),
    ];
    arguments.extend(options.unwrap_or_default());
    let (code, printed) = loudou(&arguments, log);
    assert!(code <= 1, "exit code {code}");
    let bad = unsafe_character(&printed);
    assert!(bad.is_none(), "prints {bad:?}: {printed:?}");
}

fn seeds() -> Vec<Vec<u8>> {
    const TRACE: &str = include_str!("../../../traces/rules.trace.jsonl");
    const EDITS: &str = include_str!("../../../traces/edits.trace.jsonl");
    const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations?x=1 HTTP/2" 204 - 154 0 226 100 "9.9.9.9, 10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
    const NGINX: &str = r#"203.0.113.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a\x22b?c=d HTTP/1.1" 200 2326 "http://example.com/" "Mozilla/5.0 \x22x\x22""#;
    const JSON: &str = r#"{"start_time":"2016-04-15T20:17:00.310Z","method":"GET","path":"/x","duration":5,"authority":"a","downstream_remote_address":"1.2.3.4:5","user_agent":"u"}"#;
    const CRI: &str = r#"2016-10-06T00:17:09.669794202Z stdout P 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700]
2016-10-06T00:17:09.669794202Z stdout F  "GET / HTTP/1.1" 200 2"#;
    const DOCKER: &str = r#"{"log":"h.example:80 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 2\n","stream":"stdout","time":"x"}"#;
    const CADDY: &str = r#"{"ts":1646861401.5,"logger":"http.log.access","request":{"client_ip":"1.2.3.4","method":"GET","uri":"/","headers":{"X-User-Id":["a"]}},"duration":0.5,"status":200}"#;
    const ALB: &str = r#"http 2018-07-02T22:23:00.186641Z app/a/5 1.2.3.4:28 10.0.0.1:80 0.0 0.1 0.0 200 200 34 36 "GET http://e.com:80/ HTTP/1.1" "curl" - - arn:a "Root=1" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-""#;
    const PARTS: &str = r#"{"log":"2016-10-06T00:17:09Z stdout P h.example:80 10.0.0.1 - - [10/Oct/2000:13:55:36","stream":"stdout","time":"x"}
{"log":" -0700] \"GET / HTTP/1.1\"\n","stream":"stdout","time":"x"}
{"log":"2016-10-06T00:17:09Z stdout F  200 2\n","stream":"stdout","time":"x"}"#;
    const COMPOSE: &str = r#"web-1  | 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 429 2
web-1  | 2016-10-06T00:17:09Z host.example - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2"#;
    const SYSLOG: &str = r#"<190>Oct  6 00:17:09 web nginx: h.example:80 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2
<134>1 2016-10-06T00:17:09Z web nginx 7 - [a b="c"] h.example:80 10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2
2016-10-06T00:17:09Z web nginx[7]: [2001:db8::1]:80 2001:db8::7 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 2"#;
    let logs = [
        TRACE, EDITS, ENVOY, JSON, NGINX, CRI, DOCKER, CADDY, ALB, PARTS, COMPOSE, SYSLOG,
    ];
    let mut seeds = Vec::new();
    for log in logs {
        for choice in 0_u8..14 {
            let head: String = log.lines().take(8).flat_map(|line| [line, "\n"]).collect();
            seeds.push([&[choice], head.as_bytes()].concat());
        }
        for output in 1_u8..3 {
            let head: String = log.lines().take(8).flat_map(|line| [line, "\n"]).collect();
            seeds.push([&[output * 14], head.as_bytes()].concat());
        }
    }
    seeds
}
