//! The current request as rules read it: each value comes from the host at first use, and only once.

use std::borrow::Cow;

use loudou_rules::joined::joined;
use loudou_rules::request::{Request, bare_address};

use crate::host::Host;
use crate::upstream;
use crate::waiting::Room;

/// A request that is read lazily: every value costs a call into Envoy.
pub(crate) struct HostRequest<'a> {
    host: &'a dyn Host,
    /// Where it can be held, and whether it has a body.
    room: Option<(Room, bool)>,
    held_bytes: u64,
    /// Values by header name; the names of other values are no header names.
    known: Vec<(String, Option<Vec<u8>>)>,
}

const SOURCE: &str = "(source)";
const ROUTE: &str = "(route)";
const CLUSTER: &str = "(cluster)";
const PEER: &str = "(peer)";

impl<'a> HostRequest<'a> {
    pub(crate) const fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            room: None,
            held_bytes: 0,
            known: Vec::new(),
        }
    }

    /// The same request; without room for it, it is refused instead of held.
    pub(crate) const fn held_in(mut self, room: Room, has_body: bool) -> Self {
        self.room = Some((room, has_body));
        self
    }

    /// The memory that it takes while it is held; 0 if no rule would hold it.
    pub(crate) const fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The length that it gives for its body.
    fn content_length(&mut self) -> Option<u64> {
        let text = self.header("content-length")?;
        std::str::from_utf8(&text).ok()?.parse().ok()
    }

    fn value(
        &mut self,
        name: &str,
        read: &dyn Fn(&dyn Host) -> Option<Vec<u8>>,
    ) -> Option<Cow<'_, [u8]>> {
        let known = self.known.iter().position(|(other, _)| other == name);
        let index = known.unwrap_or(self.known.len());
        if known.is_none() {
            self.known.push((name.to_owned(), read(self.host)));
        }
        self.known.get(index)?.1.as_deref().map(Cow::Borrowed)
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
        self.value(name, &|host| host.request_header(name))
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
        let path = format!("metadata\0filter_metadata\0{}", joined(path, "\0"));
        self.value(&path, &|host| host.property(&path))
    }

    fn may_wait(&mut self) -> bool {
        let Some((room, has_body)) = self.room else {
            return true;
        };
        let headers = self.host.request_headers_size();
        let body = has_body.then(|| self.content_length());
        let takes = room.takes(headers, body);
        self.held_bytes = takes.unwrap_or(0);
        takes.is_some()
    }
}
