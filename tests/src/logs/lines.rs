//! Formats a request as a line, in the format of each program that logs requests.

use super::Sent;

/// Format of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Loudou's traces.
    Trace,
    /// Envoy's default.
    Envoy,
    /// Istio's default.
    Istio,
    /// Envoy Gateway's default.
    Gateway,
    /// Apache's `common`.
    Common,
    /// NGINX's `combined`, which has the time at which a request ended.
    Combined,
    /// Apache's `vhost_combined`.
    Vhost,
    /// NGINX's `main`, which also has the time at which a request ended.
    Nginx,
    /// The default of ingress-nginx.
    Ingress,
    /// Caddy's default.
    Caddy,
    /// AWS's application load balancer.
    Alb,
}

/// Date and time in the calendar.
struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    ms: u64,
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn civil(ms: u64) -> Civil {
    let (days, ms_of_day) = (ms / 86_400_000, ms % 86_400_000);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, days);
    loop {
        let length = 365 + u64::from(is_leap(year));
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    Civil {
        year,
        month,
        day: left + 1,
        hour: ms_of_day / 3_600_000,
        minute: ms_of_day / 60_000 % 60,
        second: ms_of_day / 1_000 % 60,
        ms: ms_of_day % 1_000,
    }
}

fn rfc3339(ms: u64) -> String {
    let Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        ms,
    } = civil(ms);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Formats a time in whole seconds, in the time zone of a replica.
fn common(ms: u64, replica: usize) -> String {
    let (offset, local) = match replica % 3 {
        0 => ("+0000", ms),
        1 => ("-0700", ms - 7 * 3_600_000),
        _ => ("+0530", ms + 330 * 60_000),
    };
    let Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
        ..
    } = civil(local);
    let month = usize::try_from(month - 1)
        .ok()
        .and_then(|month| MONTHS.get(month));
    let month = month.unwrap_or(&"Jan");
    format!("{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} {offset}")
}

impl Style {
    /// All formats.
    pub const ALL: [Self; 11] = [
        Self::Trace,
        Self::Envoy,
        Self::Istio,
        Self::Gateway,
        Self::Common,
        Self::Combined,
        Self::Vhost,
        Self::Nginx,
        Self::Ingress,
        Self::Caddy,
        Self::Alb,
    ];

    /// Returns the start of a request that a reader can derive from the log, in milliseconds.
    pub const fn start_ms(self, sent: &Sent) -> u64 {
        let (start, end) = (sent.start_ms, sent.start_ms + sent.duration_ms);
        match self {
            Self::Common | Self::Vhost => start / 1_000 * 1_000,
            Self::Combined | Self::Nginx => end / 1_000 * 1_000,
            Self::Ingress => end / 1_000 * 1_000 - sent.duration_ms,
            Self::Trace | Self::Envoy | Self::Istio | Self::Gateway | Self::Caddy | Self::Alb => {
                start
            }
        }
    }

    /// Formats the line of a request that a replica handled.
    pub fn line(self, sent: &Sent, replica: usize) -> String {
        let (ip, duration, path) = (sent.address(), sent.duration_ms, sent.path);
        let start = rfc3339(sent.start_ms);
        let agent = "Mozilla/5.0 (X11; Linux x86_64)";
        let status = "200";
        match self {
            Self::Trace => format!(
                r#"{{"at_ns":{},"path":"/p/{path}","source":"{ip}","headers":{{"user-agent":"{agent}"}},"duration_ns":{}}}"#,
                sent.start_ms * 1_000_000,
                duration * 1_000_000,
            ),
            Self::Envoy => format!(
                r#"[{start}] "GET /p/{path}?q=a b HTTP/1.1" {status} - 0 12 {duration} 1 "{ip}" "x" "y" "{agent}" "id-{}" "api.example" "10.9.9.9:80""#,
                sent.number
            ),
            Self::Istio => format!(
                r#"[{start}] "GET /p/{path} HTTP/1.1" {status} - via_upstream - "-" 0 12 {duration} 1 "-" "{agent}" "id" "api.example" "10.9.9.9:80" inbound|80|| 127.0.0.6:1 10.8.8.8:80 {ip}:4711 - default"#
            ),
            Self::Gateway => format!(
                r#"{{":authority":"api.example","bytes_received":0,"bytes_sent":12,"connection_termination_details":null,"downstream_local_address":"10.8.8.8:80","downstream_remote_address":"{ip}:4711","duration":{duration},"method":"GET","protocol":"HTTP/1.1","requested_server_name":null,"response_code":{status},"response_flags":"-","route_name":"r","start_time":"{start}","upstream_host":"10.9.9.9:80","user-agent":"{agent}","x-envoy-origin-path":"/p/{path}","x-forwarded-for":"{ip}","x-request-id":"id-{}"}}"#,
                sent.number
            ),
            Self::Common => format!(
                r#"{ip} - - [{}] "GET /p/{path} HTTP/1.1" {status} 12"#,
                common(sent.start_ms, replica)
            ),
            // Escape the quotes in a path, as NGINX does.
            Self::Combined => format!(
                r#"{ip} - - [{}] "GET /p/\x22{path} HTTP/1.1" {status} 12 "-" "{agent}""#,
                common(sent.end_ms(), replica)
            ),
            Self::Vhost => format!(
                r#"v{}.example:443 {ip} - - [{}] "GET /p/\"{path} HTTP/1.1" {status} 12 "-" "{agent}""#,
                path % 3,
                common(sent.start_ms, replica)
            ),
            Self::Nginx => format!(
                r#"{ip} - - [{}] "GET /p/{path} HTTP/2.0" {status} 12 "-" "{agent}" "203.0.113.9, {ip}""#,
                common(sent.end_ms(), replica)
            ),
            Self::Ingress => format!(
                r#"{ip} - - [{}] "GET /p/{path} HTTP/2.0" {status} 12 "-" "{agent}" 43 {}.{:03} [default-web-80] [] 10.9.9.9:80 12 0.001 200 id-{}"#,
                common(sent.end_ms(), replica),
                duration / 1_000,
                duration % 1_000,
                sent.number
            ),
            Self::Caddy => format!(
                r#"{{"level":"info","ts":{}.{:03},"logger":"http.log.access.log0","msg":"handled request","request":{{"remote_ip":"10.7.7.7","remote_port":"1","client_ip":"{ip}","proto":"HTTP/2.0","method":"GET","host":"api.example","uri":"/p/{path}","headers":{{"User-Agent":["{agent}"]}}}},"bytes_read":0,"user_id":"","duration":{}.{:03},"size":12,"status":{status},"resp_headers":{{"Server":["Caddy"]}}}}"#,
                sent.end_ms() / 1_000,
                sent.end_ms() % 1_000,
                duration / 1_000,
                duration % 1_000,
            ),
            Self::Alb => format!(
                r#"http {} app/lb/1 {ip}:4711 10.9.9.9:80 0.000 {}.{:03} 0.000 {status} 200 0 12 "GET http://api.example:80/p/{path} HTTP/1.1" "{agent}" - - arn:aws:tg/1 "Root=1" "-" "-" 0 {start} "forward" "-" "-" "10.9.9.9:80" "200" "-" "-" TID_{}"#,
                rfc3339(sent.end_ms()),
                duration / 1_000,
                duration % 1_000,
                sent.number
            ),
        }
    }

    /// Returns a line that is no request, in the format of this program.
    pub(super) fn junk(self, sent: &Sent) -> Option<String> {
        let start = rfc3339(sent.start_ms);
        match self {
            Self::Istio => Some(format!(
                r#"[{start}] "- - -" 0 - - - "-" 0 135 3 - "-" "-" "-" "-" "10.9.9.9:80" outbound|80||x 10.0.0.2:1 10.0.0.3:80 10.0.0.4:2 - -"#
            )),
            Self::Gateway => Some(format!(
                r#"{{"bytes_received":5,"duration":3,"method":null,"x-envoy-origin-path":null,"start_time":"{start}"}}"#
            )),
            Self::Common | Self::Combined | Self::Vhost | Self::Nginx | Self::Ingress => {
                let line = self.line(sent, 0);
                let (before, rest) = line.split_once('"')?;
                let (_, after) = rest.split_once("\" ")?;
                Some(format!(r#"{before}"-" {after}"#))
            }
            Self::Caddy => {
                Some(r#"{"level":"info","ts":1711843200.5,"logger":"tls","msg":"x"}"#.to_owned())
            }
            Self::Trace | Self::Envoy | Self::Alb => None,
        }
    }
}
