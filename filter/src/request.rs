//! Provides the rules with access to the current request. Each value is read from the host on first
//! use and then cached.

use std::borrow::Cow;

use loudou_limiter::Nanos;
use loudou_rules::fleet::FleetView;
use loudou_rules::metadata::each_text;
use loudou_rules::request::{Request, bare_address, first_filled};
use smallvec::SmallVec;

use crate::header_lines::HeaderLines;
use crate::host::Host;
use crate::upstream;
use crate::waiting::Room;

/// The current request. Values are read lazily, because reading a value from Envoy requires a host
/// call.
pub(crate) struct HostRequest<'a> {
    host: &'a dyn Host,
    /// Remaining room for held requests, and true if the request has a body. `None` if the request
    /// may always be held.
    room: Option<(Room, bool)>,
    held_bytes: u64,
    fleet: Option<FleetView>,
    /// How long the request has already been held.
    waited: Nanos,
    /// All request headers, if they have been read.
    lines: Option<HeaderLines>,
    /// The request's dynamic metadata, if any has been read.
    metadata: Option<Box<Metadata>>,
    known: Vec<Known>,
}

/// A request's dynamic metadata.
struct Metadata {
    /// Result of the last read, encoded as protobuf. The result is cached because some hosts return
    /// all metadata regardless of the path.
    read: Option<Vec<u8>>,
    /// The values at each path read so far. They are cached because many rules may test the same
    /// path, and searching a token with thousands of claims is slow.
    known: Vec<(Vec<String>, Values)>,
}

/// The values at a path in the metadata. There are several values if the path points to a list.
type Values = SmallVec<[Vec<u8>; 1]>;

/// A value that has been read.
struct Known {
    /// Header name or, for other values, a name that no header can have.
    name: SmallVec<[u8; 32]>,
    value: Option<Vec<u8>>,
    /// True if the header is known to have no other lines.
    is_whole: bool,
}

const SOURCE: &str = "(source)";
const ROUTE: &str = "(route)";
const CLUSTER: &str = "(cluster)";
const PEER: &str = "(peer)";

impl<'a> HostRequest<'a> {
    pub(crate) fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            room: None,
            held_bytes: 0,
            fleet: None,
            waited: Nanos::ZERO,
            lines: None,
            metadata: None,
            // A capacity of two values is enough for most rules. A vector that starts out empty
            // would grow to a capacity of four.
            known: Vec::with_capacity(2),
        }
    }

    /// Sets the remaining room for held requests. If the request does not fit, it is refused
    /// instead of held.
    pub(crate) const fn held_in(mut self, room: Room, has_body: bool) -> Self {
        self.room = Some((room, has_body));
        self
    }

    /// Sets how long the request has already been held.
    pub(crate) const fn after(mut self, waited: Nanos) -> Self {
        self.waited = waited;
        self
    }

    /// Sets the fleet state, which determines how fleet-wide limits use leases.
    pub(crate) const fn leased(mut self, fleet: Option<FleetView>) -> Self {
        self.fleet = fleet;
        self
    }

    /// Returns the request's estimated memory usage while it is held, in bytes. 0 if no rule has
    /// tried to hold the request.
    pub(crate) const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Returns the value of the request's `content-length` header.
    fn content_length(&mut self) -> Option<u64> {
        let text = self.header("content-length")?;
        std::str::from_utf8(&text).ok()?.parse().ok()
    }

    fn value(
        &mut self,
        name: &str,
        read: &dyn Fn(&dyn Host) -> Option<Vec<u8>>,
    ) -> Option<Cow<'_, [u8]>> {
        let index = self.index_of(name);
        let index = index.unwrap_or_else(|| self.keep(name, read(self.host), true));
        self.known.get(index)?.value.as_deref().map(Cow::Borrowed)
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        let name = name.as_bytes();
        self.known.iter().position(|known| *known.name == *name)
    }

    fn keep(&mut self, name: &str, value: Option<Vec<u8>>, is_whole: bool) -> usize {
        self.known.push(Known {
            name: SmallVec::from_slice(name.as_bytes()),
            value,
            is_whole,
        });
        self.known.len().saturating_sub(1)
    }

    /// Returns the values at a path in the metadata. The host is only called on first use.
    fn claims(&mut self, path: &[String]) -> &[Vec<u8>] {
        let host = self.host;
        let Metadata { read, known } = &mut **self.metadata.get_or_insert_with(|| {
            Box::new(Metadata {
                read: None,
                known: Vec::new(),
            })
        });
        let index = known.iter().position(|(own, _)| own == path);
        let index = index.unwrap_or_else(|| {
            if read.is_none() || !host.reads_all_metadata() {
                *read = Some(host.metadata(path));
            }
            let mut values = Values::new();
            let read = read.as_deref().unwrap_or_default();
            each_text(read, path, &mut |value| values.push(value.to_vec()));
            known.push((path.to_vec(), values));
            known.len().saturating_sub(1)
        });
        known.get(index).map_or(&[], |(_, values)| values)
    }

    /// Returns all headers. The host is only called on first use.
    fn lines(&mut self) -> &HeaderLines {
        let host = self.host;
        self.lines
            .get_or_insert_with(|| host.request_headers().unwrap_or_default())
    }

    /// Reads the first non-empty line of a header. Only reads all headers if the first line is
    /// empty.
    fn read_header(&mut self, name: &str) -> Option<Vec<u8>> {
        if self.lines.is_none() {
            let first = self.host.request_header(name);
            if first.as_ref().is_none_or(|line| !line.is_empty()) {
                return first;
            }
        }
        first_filled(self.lines().of(name)).map(<[u8]>::to_vec)
    }
}

impl Request for HostRequest<'_> {
    fn method(&mut self) -> Option<Cow<'_, [u8]>> {
        self.header(":method")
    }

    fn path(&mut self) -> Option<Cow<'_, [u8]>> {
        self.header(":path")
    }

    fn header(&mut self, name: &str) -> Option<Cow<'_, [u8]>> {
        let index = self.index_of(name).unwrap_or_else(|| {
            let value = self.read_header(name);
            let is_missing = value.is_none();
            self.keep(name, value, is_missing)
        });
        self.known.get(index)?.value.as_deref().map(Cow::Borrowed)
    }

    /// Calls `see` for each line of a header. First reads a property in which Envoy has joined all
    /// lines with commas. If the property's value contains no comma, the header has only one line.
    /// Otherwise, all headers are read to separate the lines.
    fn each_line(&mut self, name: &str, see: &mut dyn FnMut(&[u8])) {
        if self.lines.is_none() && self.index_of(name).is_none() {
            let joined = self.host.property(&format!("request\0headers\0{name}"));
            let is_whole = joined.as_ref().is_none_or(|joined| !joined.contains(&b','));
            if is_whole {
                self.keep(name, joined, true);
            }
        }
        let known = self.index_of(name).and_then(|index| self.known.get(index));
        match known {
            Some(known) if known.is_whole => known.value.as_deref().into_iter().for_each(see),
            _ => self.lines().of(name).for_each(see),
        }
    }

    fn source(&mut self) -> Option<Cow<'_, [u8]>> {
        self.value(SOURCE, &|host| {
            host.property("source\0address")
                .map(|address| bare_address(&address).to_vec())
        })
    }

    fn route(&mut self) -> Option<Cow<'_, [u8]>> {
        self.value(ROUTE, &|host| host.property("xds\0route_name"))
    }

    fn cluster(&mut self) -> Option<Cow<'_, [u8]>> {
        self.value(CLUSTER, &upstream::cluster)
    }

    fn client_cert(&mut self) -> Option<Cow<'_, [u8]>> {
        self.value(PEER, &|host| {
            let name = |path| host.property(path).filter(|name| !name.is_empty());
            name("connection\0uri_san_peer_certificate")
                .or_else(|| name("connection\0dns_san_peer_certificate"))
        })
    }

    fn metadata(&mut self, path: &[String]) -> Option<Cow<'_, [u8]>> {
        first_filled(self.claims(path).iter().map(|value| &**value)).map(Cow::Borrowed)
    }

    fn each_metadata(&mut self, path: &[String], see: &mut dyn FnMut(&[u8])) {
        self.claims(path).iter().for_each(|value| see(value));
    }

    fn fleet(&mut self) -> Option<FleetView> {
        self.fleet
    }

    fn waited(&self) -> Nanos {
        self.waited
    }

    fn may_wait(&mut self) -> bool {
        let Some((room, has_body)) = self.room else {
            return true;
        };
        let headers = self.host.request_headers_size();
        let body = if has_body {
            room.body(self.content_length())
        } else {
            0
        };
        let takes = room.takes(headers, body);
        self.held_bytes = takes.unwrap_or(0);
        takes.is_some()
    }
}

#[cfg(test)]
mod tests;
