//! Detects the format of a trace or log, and parses its lines.

use super::pattern::{self, Misfit, Pattern};
use super::record::{LogLine, LoggedRequest, OtherLine, Unread};
use super::{caddy, envoy_json, trace};

/// Format of a trace or log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogFormat {
    /// Loudou's own trace format: JSON Lines with `at_ns`.
    Trace,
    /// Default access log of Envoy or Istio.
    Envoy,
    /// JSON access log of Envoy, Istio or Envoy Gateway.
    EnvoyJson,
    /// Apache's `common` and `combined`, and NGINX's `combined` and `main`.
    Combined,
    /// Apache's `vhost_combined`: the virtual host, with or without a port, then `combined`.
    VhostCombined,
    /// Default access log of ingress-nginx.
    IngressNginx,
    /// Caddy's JSON access log.
    Caddy,
    /// Access log of an AWS Application Load Balancer.
    Alb,
    /// A custom format specified by the user.
    Custom,
}

/// Columns after the client address.
const USER: &str =
    r#" $client_ident $client_user [$time_local] "$request" $status $body_bytes_sent"#;
const CLIENT: &str = "$client";
const VHOST_PORT: &str = "$host:$port_of_host $known_client";
const VHOST: &str = "$virtual_host $client_address";
const REFERER: &str = r#" "$http_referer" "$http_user_agent""#;
const FORWARDED: &str = r#" "$http_x_forwarded_for""#;
const INGRESS: &str = " $request_length $request_time [$proxy_upstream_name] $upstreams";
/// A line contains two timestamps. The first, `$answered`, is the time of the response;
/// `$time_iso8601` is the time of the request.
const ALB: &str = r#"$type $answered $elb $remote_addr $target $request_time $request_time $request_time $status $target_status $received $sent "$request" "$http_user_agent" $cipher $protocol $group "$trace" "$domain" "$certificate" $priority $time_iso8601 "$rest"#;
const ENVOY: &str = r#"[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% "#;
const ISTIO: &str = r#"%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" "#;
const ENVOY_TAIL: &str = r#"%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %UPSTREAM_SERVICE_TIME% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%""#;
const ISTIO_TAIL: &str = " %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%";

impl LogFormat {
    /// All formats that can be selected by name.
    pub const ALL: [Self; 8] = [
        Self::Trace,
        Self::Envoy,
        Self::EnvoyJson,
        Self::Combined,
        Self::VhostCombined,
        Self::IngressNginx,
        Self::Caddy,
        Self::Alb,
    ];

    /// Returns the name used in command-line options and in the JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Envoy => "envoy",
            Self::EnvoyJson => "envoy-json",
            Self::Combined => "combined",
            Self::VhostCombined => "vhost-combined",
            Self::IngressNginx => "ingress-nginx",
            Self::Caddy => "caddy",
            Self::Alb => "alb",
            Self::Custom => "custom",
        }
    }

    /// Returns the patterns of a text format. Formats based on JSON have none.
    fn patterns(self) -> Vec<Result<Pattern, String>> {
        let at_start = |parts: &[&str]| pattern::built_in(&parts.concat(), false);
        match self {
            Self::Trace | Self::EnvoyJson | Self::Caddy | Self::Custom => Vec::new(),
            Self::Envoy => vec![
                pattern::envoy(&[ENVOY, ENVOY_TAIL].concat()),
                pattern::envoy(&[ENVOY, ISTIO, ENVOY_TAIL, ISTIO_TAIL].concat()),
            ],
            Self::Combined => vec![
                at_start(&[CLIENT, USER, REFERER]),
                at_start(&[CLIENT, USER]),
                at_start(&[CLIENT, USER, REFERER, FORWARDED]),
            ],
            Self::VhostCombined => vec![
                at_start(&[VHOST_PORT, USER, REFERER]),
                at_start(&[VHOST_PORT, USER]),
                at_start(&[VHOST, USER, REFERER]),
                at_start(&[VHOST, USER]),
                at_start(&[VHOST, USER, REFERER, FORWARDED]),
            ],
            Self::IngressNginx => vec![pattern::built_in(
                &[CLIENT, USER, REFERER, INGRESS].concat(),
                true,
            )],
            Self::Alb => vec![at_start(&[ALB])],
        }
    }
}

/// Parses the lines of one input. Detects their format, and remembers the pattern that matched the
/// last line.
#[derive(Debug)]
pub(crate) struct LineParser {
    /// Format of the input, or `None` until a line has been recognised.
    pub(crate) form: Option<LogFormat>,
    patterns: Vec<(LogFormat, Pattern)>,
    /// Index of the pattern that matched the last line.
    last: usize,
}

impl LineParser {
    /// Creates a parser for a `custom` pattern or the format `form`. Without either, the parser
    /// detects the format from the lines.
    pub(crate) fn new(form: Option<LogFormat>, custom: Option<&Pattern>) -> Self {
        // A line with a virtual host could be mistaken for a line whose user name contains spaces,
        // so patterns with a virtual host come first.
        let text = [
            LogFormat::Envoy,
            LogFormat::VhostCombined,
            LogFormat::Combined,
            LogFormat::IngressNginx,
            LogFormat::Alb,
        ];
        let built_in = text.into_iter().flat_map(|form| {
            // A test ensures that all of these patterns are valid.
            let patterns = form.patterns().into_iter().flatten();
            patterns.map(move |pattern| (form, pattern))
        });
        match custom {
            Some(pattern) => Self {
                form: Some(LogFormat::Custom),
                patterns: vec![(LogFormat::Custom, pattern.clone())],
                last: 0,
            },
            None => Self {
                form,
                patterns: built_in.collect(),
                last: 0,
            },
        }
    }

    /// Parses a non-empty line.
    pub(crate) fn parse<'a>(&'a mut self, line: &'a [u8]) -> Result<LogLine<'a>, Unread> {
        match self.form {
            Some(LogFormat::Trace) => trace::parse(line),
            Some(LogFormat::EnvoyJson) => envoy_json::parse(line).map(LogLine::Request),
            Some(LogFormat::Caddy) => caddy::parse(line).map(LogLine::Request),
            Some(form) => self.text(line, Some(form)).map(LogLine::Request),
            None => self.first(line),
        }
    }

    /// Parses a line before the format is known, and detects the format.
    fn first<'a>(&'a mut self, line: &'a [u8]) -> Result<LogLine<'a>, Unread> {
        if line.trim_ascii_start().first() != Some(&b'{') {
            return self.text(line, None).map(LogLine::Request);
        }
        if memchr::memmem::find(line, b"\"at_ns\"").is_some() {
            self.form = Some(LogFormat::Trace);
            return trace::parse(line);
        }
        let form = match caddy::parse(line) {
            Ok(_) => LogFormat::Caddy,
            Err(Unread::Other(OtherLine::Message)) => {
                return Err(Unread::Other(OtherLine::Message));
            }
            Err(_) => LogFormat::EnvoyJson,
        };
        let read = if form == LogFormat::Caddy {
            caddy::parse(line)
        } else {
            envoy_json::parse(line)
        };
        if read.is_ok() {
            self.form = Some(form);
        }
        read.map(LogLine::Request)
            .map_err(|wrong| nearest(wrong, form))
    }

    /// Parses a line in the text format `form` or, if `form` is `None`, in any text format.
    fn text<'a>(
        &'a mut self,
        line: &'a [u8],
        form: Option<LogFormat>,
    ) -> Result<LoggedRequest<'a>, Unread> {
        let Self {
            patterns,
            last,
            form: known,
        } = self;
        let mut best: Option<(usize, Misfit)> = None;
        let order = [*last].into_iter().chain(0..patterns.len());
        for (round, index) in order.enumerate() {
            let Some((own, pattern)) = patterns.get(index) else {
                continue;
            };
            if form.is_some_and(|form| form != *own) || (round > 0 && index == *last) {
                continue;
            }
            match pattern.read(line, form.is_some()) {
                Ok(request) => {
                    *last = index;
                    *known = Some(*own);
                    return Ok(request);
                }
                Err(misfit) if misfit.is_other() => return Err(pattern.unread(misfit)),
                Err(misfit) if best.is_none_or(|(_, best)| misfit.reach > best.reach) => {
                    best = Some((index, misfit));
                }
                Err(_) => {}
            }
        }
        let found = best.and_then(|(index, misfit)| Some((patterns.get(index)?, misfit)));
        let Some(((own, pattern), misfit)) = found else {
            return Err(Unread::bad("not a line of text"));
        };
        let wrong = pattern.unread(misfit);
        Err(match form {
            Some(_) => wrong,
            None => nearest(wrong, *own),
        })
    }
}

/// Converts the error for the closest format to the error for a line in no known format.
fn nearest(wrong: Unread, form: LogFormat) -> Unread {
    match wrong {
        Unread::Bad {
            message,
            at,
            untimed: _,
        } => Unread::Bad {
            message: format!("in no known format; nearest is {}: {message}", form.name()),
            at,
            untimed: false,
        },
        other @ Unread::Other(_) => other,
    }
}

#[cfg(test)]
mod tests;
