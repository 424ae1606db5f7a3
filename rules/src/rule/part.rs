//! The parts of a key as in a rule file.

use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

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
    /// A text in Envoy's dynamic metadata: the namespace, and the keys below it.
    Metadata(Vec<String>),
    /// The network of the trusted client address, as Envoy sees it, without the port.
    Source(SourcePrefix),
    /// The path without its query.
    Path {
        /// The number of segments, from the first; `None` for all.
        segments: Option<u8>,
    },
    /// The name of Envoy's route.
    Route,
    /// The method.
    Method,
    /// The host without its port, in lower case.
    Host,
    /// The identity in the client's certificate: its first URI, else its first DNS name.
    ClientCert,
}

impl Serialize for KeyPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, text) = match self {
            Self::Source(prefix) if *prefix == SourcePrefix::default() => {
                return serializer.serialize_str("source");
            }
            Self::Path { segments: None } => return serializer.serialize_str("path"),
            Self::Route => return serializer.serialize_str("route"),
            Self::Method => return serializer.serialize_str("method"),
            Self::Host => return serializer.serialize_str("host"),
            Self::ClientCert => return serializer.serialize_str("client_cert"),
            Self::Source(prefix) => return one(serializer, "source", prefix),
            Self::Path {
                segments: Some(segments),
            } => {
                return one(
                    serializer,
                    "path",
                    &Segments {
                        segments: *segments,
                    },
                );
            }
            Self::Metadata(path) => return one(serializer, "metadata", path),
            Self::Header(name) => ("header", name),
            Self::Query(name) => ("query", name),
            Self::Cookie(name) => ("cookie", name),
            Self::Literal(text) => ("literal", text),
        };
        one(serializer, name, text)
    }
}

#[derive(Serialize)]
struct Segments {
    segments: u8,
}

/// An object of one field.
fn one<S: Serializer>(
    serializer: S,
    name: &'static str,
    value: &(impl Serialize + ?Sized),
) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_map(Some(1))?;
    fields.serialize_entry(name, value)?;
    fields.end()
}
