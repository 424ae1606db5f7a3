//! Limits the number of connections in total and per address, and how long a connection may be idle.
//!
//! A caller is a *stranger* until it has sent a valid token or a client certificate. Strangers have a short idle
//! timeout, and strangers from one address cannot occupy all connections. When a limit has been reached, the relay
//! still accepts a small number of *reserve* connections, which serve one request each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::log::{Level, Log};
use crate::metrics::Metrics;

/// Timeout for receiving the head of the first request.
const FIRST: Duration = Duration::from_secs(5);
/// Idle timeout between a stranger's requests.
const STRANGER: Duration = Duration::from_secs(30);
/// Idle timeout between an authenticated caller's requests.
const KNOWN: Duration = Duration::from_mins(10);
/// Maximum number of reserve connections, which serve one request each. They allow an Envoy that cannot obtain a
/// regular connection to report its debts from time to time.
const RESERVE: usize = 64;
/// Maximum number of reserve connections that accept lease calls. The others serve only `/healthz` and `/metrics`.
const RESERVE_FOR_CALLS: usize = 32;
/// Maximum number of reserve connections for strangers from one address.
const RESERVE_OF_PEER: usize = 8;

/// Connection counts and limits.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    of_peer: usize,
    counts: Mutex<Counts>,
    metrics: Arc<Metrics>,
    log: Log,
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    reserve: usize,
    strangers: BTreeMap<IpAddr, usize>,
    /// True if the relay has logged a warning that it is running out of connections.
    is_warned: bool,
}

/// The slot of an admitted connection. Dropping this value releases the slot.
#[derive(Debug)]
pub struct Seat {
    all: Arc<Connections>,
    peer: IpAddr,
    /// True for a reserve connection.
    is_reserve: bool,
    may_call: bool,
    activity: Mutex<Activity>,
}

#[derive(Clone, Copy, Debug)]
struct Activity {
    is_known: bool,
    requests: u64,
    running: u64,
    since: Instant,
}

impl Connections {
    /// Creates limits of `most` connections in total and `of_peer` connections from strangers per address.
    pub(crate) fn new(most: usize, of_peer: usize, metrics: Arc<Metrics>, log: Log) -> Arc<Self> {
        metrics.connections_max.set(number(most));
        Arc::new(Self {
            most,
            of_peer: of_peer.min(most),
            counts: Mutex::default(),
            metrics,
            log,
        })
    }

    /// Admits a connection from the given address. Returns `None` if there are no reserve connections available either.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let peer = network(address);
        let mut counts = self.counts();
        let strangers = counts.strangers.get(&peer).copied().unwrap_or(0);
        let is_reserve = counts.open >= self.most || strangers >= self.of_peer;
        let may_call = !is_reserve || counts.reserve < RESERVE_FOR_CALLS;
        if is_reserve {
            self.metrics.connections_refused.inc();
            let most = self.of_peer.saturating_add(RESERVE_OF_PEER);
            if counts.reserve >= RESERVE || strangers >= most {
                return None;
            }
            counts.reserve = counts.reserve.saturating_add(1);
        } else {
            counts.open = counts.open.saturating_add(1);
        }
        counts.strangers.insert(peer, strangers.saturating_add(1));
        self.note(counts);
        Some(Seat {
            all: Arc::clone(self),
            peer,
            is_reserve,
            may_call,
            activity: Mutex::new(Activity {
                is_known: false,
                requests: 0,
                running: 0,
                since: Instant::now(),
            }),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the connection count metric. Logs a warning when 80 % of the connections are in use.
    fn note(&self, mut counts: MutexGuard<'_, Counts>) {
        let (open, most) = (counts.open, self.most);
        let is_near = open.saturating_mul(5) >= most.saturating_mul(4);
        let warns = is_near && !counts.is_warned;
        // The warning can be logged again only once the number has dropped below 60 %. Otherwise, a number fluctuating
        // around 80 % would trigger the warning repeatedly.
        counts.is_warned =
            is_near || (counts.is_warned && open.saturating_mul(5) >= most.saturating_mul(3));
        drop(counts);
        self.metrics.connections.set(number(open));
        if warns {
            let advice = "raise --max-connections; with HTTP/2, an Envoy with N workers opens N + 1 connections to each \
                          relay";
            let fields = json!({ "open": open, "max": most, "advice": advice });
            let message = "connections near --max-connections";
            self.log.write(Level::Warn, message, fields);
        }
    }

    fn no_stranger(counts: &mut Counts, peer: IpAddr) {
        let left = counts.strangers.get(&peer).copied().unwrap_or(0);
        match left.checked_sub(1) {
            None | Some(0) => counts.strangers.remove(&peer),
            Some(left) => counts.strangers.insert(peer, left),
        };
    }
}

impl Seat {
    /// Returns true if this connection serves only one request.
    pub(crate) const fn is_reserve(&self) -> bool {
        self.is_reserve
    }

    /// Returns true if this connection accepts lease calls. Other connections serve only `/healthz` and `/metrics`.
    pub(crate) const fn may_call(&self) -> bool {
        self.may_call
    }

    /// Marks the caller as authenticated by a token or a client certificate.
    pub(crate) fn mark_known(&self) {
        let was = {
            let mut activity = self.activity();
            std::mem::replace(&mut activity.is_known, true)
        };
        if !was {
            Connections::no_stranger(&mut self.all.counts(), self.peer);
        }
    }

    /// Marks a request as in flight until the returned guard is dropped.
    pub(crate) fn begin(&self) -> Running<'_> {
        let mut activity = self.activity();
        activity.requests = activity.requests.saturating_add(1);
        activity.running = activity.running.saturating_add(1);
        Running(self)
    }

    /// Waits for the connection's idle timeout to expire.
    pub(crate) async fn silence(&self) {
        loop {
            let until = self.activity().until(self.is_reserve, Instant::now());
            if until <= Instant::now() {
                self.all.metrics.connections_silent.inc();
                return;
            }
            sleep_until(until).await;
        }
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    /// Returns the time at which the connection will be closed unless a request arrives first.
    fn until(&self, is_reserve: bool, now: Instant) -> Instant {
        let (from, time) = match self {
            // A request in flight has its own timeouts, so the connection does not count as idle.
            Self { running: 1.., .. } => (now, FIRST),
            Self { requests: 0, .. } => (self.since, FIRST),
            _ if is_reserve => (self.since, FIRST),
            Self { is_known: true, .. } => (self.since, KNOWN),
            _ => (self.since, STRANGER),
        };
        from.checked_add(time).unwrap_or(now)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let is_known = self.activity().is_known;
        let mut counts = self.all.counts();
        if !is_known {
            Connections::no_stranger(&mut counts, self.peer);
        }
        if self.is_reserve {
            counts.reserve = counts.reserve.saturating_sub(1);
        } else {
            counts.open = counts.open.saturating_sub(1);
        }
        self.all.note(counts);
    }
}

/// Guard for a request in flight.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Seat);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut activity = self.0.activity();
        activity.running = activity.running.saturating_sub(1);
        activity.since = Instant::now();
    }
}

/// Returns the address under which a client's connections are counted. For IPv6, this is the /64, because a host can
/// use any address in its /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address @ IpAddr::V4(_) => address,
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn bounds(most: usize, of_peer: usize) -> Arc<Connections> {
        let log = Log::new(Level::Error);
        Connections::new(most, of_peer, Arc::default(), log)
    }

    fn is_full(all: &Arc<Connections>, peer: IpAddr) -> bool {
        all.admit(peer).is_none_or(|seat| seat.is_reserve())
    }

    #[test]
    fn strangers_of_one_address_leave_places_for_others() {
        let all = bounds(4, 2);
        let first = all.admit(ONE).expect("a place");
        let second = all.admit(ONE).expect("a place");
        assert!(is_full(&all, ONE) && !is_full(&all, TWO));
        // An authenticated connection does not count as a stranger.
        first.mark_known();
        first.mark_known();
        assert!(!is_full(&all, ONE));
        let third = all.admit(ONE).expect("a place");
        assert!(is_full(&all, ONE));
        drop((first, third));
        assert!(!is_full(&all, ONE));
        drop(second);
        let counts = all.counts();
        assert_eq!(
            (counts.open, counts.reserve, counts.strangers.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn the_reserve_has_a_bound_too() {
        let all = bounds(1, 1);
        let _only = all.admit(ONE).expect("a place");
        let of_one: Vec<_> = (0..100).filter_map(|_| all.admit(ONE)).collect();
        assert_eq!(of_one.len(), RESERVE_OF_PEER);
        assert!(of_one.iter().all(Seat::is_reserve));
        assert!(all.admit(TWO).expect("a place").is_reserve());
        let peers = (0..100_u8).map(|n| IpAddr::from([10, 0, 1, n]));
        let others: Vec<_> = peers.filter_map(|peer| all.admit(peer)).collect();
        assert_eq!(others.len() + of_one.len(), RESERVE);
        let calling = of_one.iter().chain(&others).filter(|seat| seat.may_call());
        assert_eq!(calling.count(), RESERVE_FOR_CALLS);
    }

    #[test]
    fn an_address_of_ipv6_is_its_network() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), ONE);
    }

    #[test]
    fn silence_ends_a_connection() {
        let now = Instant::now();
        let at = |is_known, requests, running| Activity {
            is_known,
            requests,
            running,
            since: now,
        };
        let ends = |activity: Activity, reserve| activity.until(reserve, now) - now;
        assert_eq!(ends(at(false, 0, 0), false), FIRST);
        assert_eq!(ends(at(true, 0, 0), false), FIRST);
        assert_eq!(ends(at(false, 1, 0), false), STRANGER);
        assert_eq!(ends(at(true, 1, 0), false), KNOWN);
        assert_eq!(ends(at(true, 1, 0), true), FIRST);
        let later = now + KNOWN + KNOWN;
        assert!(at(false, 1, 1).until(false, later) > later);
    }
}
