//! The formats of traces and logs, and how they are recognised.

use super::record::LogLine;
use super::{access, envoy_json, trace};

/// The format of a trace or log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// JSON Lines with `at_ns`.
    Trace,
    /// Envoy's default access log, or Istio's.
    Envoy,
    /// Envoy's access log as JSON.
    EnvoyJson,
    /// NGINX's `combined` or `main`.
    Nginx,
}

impl LogFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Trace, Self::Envoy, Self::EnvoyJson, Self::Nginx];

    /// The name in options and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Envoy => "envoy",
            Self::EnvoyJson => "envoy-json",
            Self::Nginx => "nginx",
        }
    }

    /// The name within a sentence.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Trace => "a trace",
            Self::Envoy => "an Envoy log",
            Self::EnvoyJson => "an Envoy JSON log",
            Self::Nginx => "an NGINX log",
        }
    }

    /// The format that a line looks like, whether or not it parses.
    pub(crate) fn of(line: &[u8]) -> Option<Self> {
        match line.trim_ascii_start() {
            [b'{', ..] if memchr::memmem::find(line, b"\"at_ns\"").is_some() => Some(Self::Trace),
            [b'{', ..] if envoy_json::parse(line).is_ok() => Some(Self::EnvoyJson),
            [b'[', b'0'..=b'9', ..] => Some(Self::Envoy),
            _ => access::nginx(line).is_ok().then_some(Self::Nginx),
        }
    }

    /// Parses a line that is not empty.
    pub(crate) fn parse(self, line: &[u8]) -> Result<LogLine<'_>, String> {
        match self {
            Self::Trace => trace::parse(line),
            Self::Envoy => access::envoy(line).map(LogLine::Request),
            Self::EnvoyJson => envoy_json::parse(line).map(LogLine::Request),
            Self::Nginx => access::nginx(line).map(LogLine::Request),
        }
    }

    /// Whether a request in this format can have the header `name`.
    pub(crate) fn has_header(self, name: &str) -> bool {
        let pseudo = matches!(name, ":method" | ":path");
        match self {
            Self::Trace | Self::EnvoyJson => true,
            Self::Envoy => {
                let names = [
                    ":authority",
                    "host",
                    "user-agent",
                    "x-forwarded-for",
                    "x-request-id",
                ];
                pseudo || names.contains(&name)
            }
            Self::Nginx => pseudo || ["user-agent", "referer", "x-forwarded-for"].contains(&name),
        }
    }

    /// Whether a request in this format can have a route name.
    pub(crate) const fn has_route(self) -> bool {
        !matches!(self, Self::Nginx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised() {
        for (line, form) in [
            (r#"{"at_ns":"wrong"}"#, Some(LogFormat::Trace)),
            (
                r#" {"path":"/","start_time":"2020-11-25T21:26:18Z"}"#,
                Some(LogFormat::EnvoyJson),
            ),
            (
                r#"[2016-04-15T20:17:00.310Z] "POST"#,
                Some(LogFormat::Envoy),
            ),
            (
                r#"::1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 1 "-" "-""#,
                Some(LogFormat::Nginx),
            ),
            ("[warn] starting", None),
            ("starting", None),
            (r#"{"message":"starting"}"#, None),
        ] {
            assert_eq!(LogFormat::of(line.as_bytes()), form, "{line}");
        }
    }
}
