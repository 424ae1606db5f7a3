//! The parts of a key as they stand in a rule file.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::cidr::SourcePrefix;

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// The first value of this header, whose name is in lower case.
    Header(String),
    /// The first value of this query parameter, decoded.
    Query(String),
    /// The first value of this cookie, without quotes around it.
    Cookie(String),
    /// A fixed text.
    Literal(String),
    /// A text in Envoy's dynamic metadata: the name space, and the keys below it.
    Metadata(Vec<String>),
    /// The trusted client address, as Envoy sees it, without the port: its network.
    Source(SourcePrefix),
    /// The path without its query.
    Path {
        /// Only as many segments, from the first.
        segments: Option<u8>,
    },
    /// The name of Envoy's route.
    Route,
    /// The method.
    Method,
    /// The host without its port, in lower case.
    Host,
    /// Who the client's certificate says it is: its first URI, else its first DNS name.
    Peer,
}

impl Serialize for KeyPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = match self {
            Self::Header(name) => json!({ "header": name }),
            Self::Query(name) => json!({ "query": name }),
            Self::Cookie(name) => json!({ "cookie": name }),
            Self::Literal(text) => json!({ "literal": text }),
            Self::Metadata(path) => json!({ "metadata": path }),
            Self::Source(prefix) if *prefix == SourcePrefix::default() => Value::from("source"),
            Self::Source(SourcePrefix { v4, v6 }) => {
                json!({ "source": { "v4_prefix": v4, "v6_prefix": v6 } })
            }
            Self::Path { segments: None } => Value::from("path"),
            Self::Path { segments } => json!({ "path": { "segments": segments } }),
            Self::Route => Value::from("route"),
            Self::Method => Value::from("method"),
            Self::Host => Value::from("host"),
            Self::Peer => Value::from("peer"),
        };
        value.serialize(serializer)
    }
}
