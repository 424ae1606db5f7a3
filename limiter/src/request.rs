//! What a rule may ask of a request. The filter answers from Envoy, a replay from a log line.

use alloc::borrow::Cow;
use alloc::string::String;

use crate::time::Nanos;

/// One request. Every value is what the client or the network sent: any bytes, of any length up to
/// the host's own bounds.
pub trait Request {
    /// The method.
    fn method(&mut self) -> Option<Cow<'_, [u8]>>;
    /// The path, with its query if it has one.
    fn path(&mut self) -> Option<Cow<'_, [u8]>>;
    /// The first value of the header `name` (lower case).
    fn header(&mut self, name: &str) -> Option<Cow<'_, [u8]>>;
    /// The trusted client address, without the port.
    fn source(&mut self) -> Option<Cow<'_, [u8]>>;
    /// The name of the route.
    fn route(&mut self) -> Option<Cow<'_, [u8]>>;
    /// Who the client's certificate says it is: its first URI, else its first DNS name.
    fn peer(&mut self) -> Option<Cow<'_, [u8]>> {
        None
    }
    /// A text in the dynamic metadata that filters before this one have set: the name space, then the
    /// keys below it.
    fn metadata(&mut self, _path: &[String]) -> Option<Cow<'_, [u8]>> {
        None
    }
    /// The upstream that the request goes to: the name of Envoy's cluster.
    fn cluster(&mut self) -> Option<Cow<'_, [u8]>> {
        None
    }

    /// What it costs whatever a rule says; `None` for what the rule says.
    fn cost(&mut self) -> Option<u64> {
        None
    }
    /// How long it is ready to wait whatever a limit says; `None` for what the limit says.
    fn max_wait(&mut self) -> Option<Nanos> {
        None
    }
}

/// The path without its query and fragment.
pub(crate) fn without_query(path: &[u8]) -> &[u8] {
    path.split(|b| *b == b'?' || *b == b'#')
        .next()
        .unwrap_or(path)
}
