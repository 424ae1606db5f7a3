//! Heartbeat state in shared data, used by all workers of an Envoy: the time of the last heartbeat,
//! and the engine's last answer.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{LeaseSettings, Phase};
use loudou_rules::fleet::FleetView;
use loudou_rules::rule::{FleetSettings, OnOutage};
use loudou_store::swap::{Swapped, swap};

use crate::bytes::{put_number, take_number};
use crate::host::{Host, HostStore};

/// Minimum interval between two of this Envoy's heartbeats. A change is reported to the engine by one heartbeat, and
/// fetched by a heartbeat from each of the other Envoys. Together with [`TURN_CHECK_INTERVAL`], this takes less than a
/// second in total.
pub(crate) const INTERVAL: Nanos = Nanos::from_millis(350);
/// Interval at which each worker checks whether a heartbeat is due.
pub(super) const TURN_CHECK_INTERVAL: Nanos = Nanos::from_millis(200);

/// Time without any relay responses after which all workers treat the engine as down. The timeout
/// also applies to workers that are not sending any calls because the engine has denied tokens for
/// all their keys.
const ENGINE_TIMEOUT: Nanos = Nanos::from_secs(3);

/// Time without a heartbeat after which no fleet is assumed to be configured any more.
const GONE: Nanos = Nanos::from_secs(60);

/// Time after a heartbeat during which this Envoy's knowledge of the changes is considered current.
/// A change takes effect on all Envoys in a fleet within this time.
const CURRENT: Nanos = Nanos::from_secs(1);

/// The heartbeat state in shared data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Time of the last heartbeat sent by any worker.
    called_at: Nanos,
    /// Time of the engine's last answer. Zero if never.
    pub(crate) answered_at: Nanos,
    /// Number of Envoys last reported by the engine, or 0 if the engine has not reported one.
    pub(crate) envoys: u64,
    /// 1 if the last fleet event reported an outage, 0 otherwise.
    is_down: u64,
    /// Configured behaviour during an outage.
    on_outage: OnOutage,
    /// Time of the last relay response that contained no answer from the engine. Zero if never.
    reached_at: Nanos,
    /// Last time at which all of the engine's changes were in force on this Envoy. Zero if never.
    current_at: Nanos,
    /// Number of Envoys assumed in the settings until the engine reports one.
    assumed: u64,
}

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":fleet"].concat()
}

impl Heartbeat {
    fn read(mut bytes: &[u8]) -> Self {
        let mut number = || take_number(&mut bytes).unwrap_or(0);
        Self {
            called_at: Nanos::new(number()),
            answered_at: Nanos::new(number()),
            envoys: number(),
            is_down: number(),
            on_outage: match number() {
                1 => OnOutage::Admit,
                2 => OnOutage::Refuse,
                _ => OnOutage::Local,
            },
            reached_at: Nanos::new(number()),
            current_at: Nanos::new(number()),
            assumed: number(),
        }
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let times = [self.called_at.get(), self.answered_at.get()];
        let on_outage = match self.on_outage {
            OnOutage::Local => 0,
            OnOutage::Admit => 1,
            OnOutage::Refuse => 2,
        };
        let reached_at = self.reached_at.get();
        let current_at = self.current_at.get();
        let numbers = [self.envoys, self.is_down, on_outage];
        let others = [reached_at, current_at, self.assumed];
        for number in times.into_iter().chain(numbers).chain(others) {
            put_number(&mut bytes, number);
        }
        bytes
    }

    /// Returns true if relay calls have received no response for [`ENGINE_TIMEOUT`]. `answered_at`
    /// is the time at which the calling worker last received a response. A relay response that
    /// contains no answer from the engine also counts, because each lease handles missing answers
    /// on its own.
    pub(super) fn is_silent(self, answered_at: Nanos) -> bool {
        let answered_at = self.answered_at.max(self.reached_at).max(answered_at);
        !answered_at.is_zero() && self.called_at.since(answered_at) >= ENGINE_TIMEOUT
    }

    /// Returns true if the last fleet event reported an outage.
    pub(super) const fn is_down(self) -> bool {
        self.is_down > 0
    }

    /// Returns the fleet state for deciding a sample request, which never waits and requests no
    /// tokens.
    pub(crate) fn view(self) -> FleetView {
        FleetView {
            lease: LeaseSettings {
                lease: Nanos::ZERO,
                timeout: Nanos::ZERO,
                credit: u64::MAX,
            },
            on_outage: self.on_outage,
            phase: Phase::First,
            is_down: self.is_down > 0 || self.is_silent(Nanos::ZERO),
            envoys: self.known_envoys(),
        }
    }

    /// Returns the number of Envoys in the fleet, as last reported by the engine, or else as
    /// assumed in the settings. At least 1.
    pub(super) fn known_envoys(self) -> u32 {
        let envoys = match self.envoys {
            0 => self.assumed,
            envoys => envoys,
        };
        u32::try_from(envoys).unwrap_or(u32::MAX).max(1)
    }

    /// Returns true if all of the engine's changes were recently in force on this Envoy.
    pub(crate) fn is_current(self, now: Nanos) -> bool {
        !self.current_at.is_zero() && now.since(self.current_at) < CURRENT
    }

    /// Returns true if any worker has recently sent or attempted to send a heartbeat. If none has,
    /// no fleet is configured any more.
    pub(crate) fn is_alive(self, now: Nanos) -> bool {
        now.since(self.called_at) < GONE
    }

    /// Reads the heartbeat state. `None` if no worker has ever been configured with a fleet.
    pub(crate) fn find(host: &dyn Host, share: &str) -> Option<Self> {
        let mut bytes = Vec::new();
        let found = host.shared_get(&key(share), &mut bytes).ok()?;
        found.map(|_| Self::read(&bytes))
    }
}

/// Returns the heartbeat state, and whether this worker must send the next heartbeat.
pub(super) fn claim_turn(
    host: &dyn Host,
    share: &str,
    settings: &FleetSettings,
    now: Nanos,
) -> (Heartbeat, bool) {
    let mut heartbeat = Heartbeat::default();
    let swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        heartbeat = Heartbeat::read(found.unwrap_or_default());
        let is_due = heartbeat.called_at.is_zero() || now.since(heartbeat.called_at) >= INTERVAL;
        let called = Heartbeat {
            called_at: now,
            on_outage: settings.on_outage,
            assumed: settings.envoys.into(),
            ..heartbeat
        };
        is_due.then(|| called.bytes())
    });
    (heartbeat, swapped == Ok(Swapped::Done))
}

/// Claims the right to report that the engine has become unavailable or available again. Returns
/// true on exactly one worker, which must then add the event.
pub(super) fn claims_outage_event(host: &dyn Host, share: &str, is_down: bool) -> bool {
    let swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let heartbeat = Heartbeat::read(found.unwrap_or_default());
        let turned = Heartbeat {
            is_down: is_down.into(),
            ..heartbeat
        };
        (heartbeat != turned).then(|| turned.bytes())
    });
    swapped == Ok(Swapped::Done)
}

/// Records a relay response that contained no answer from the engine.
pub(super) fn mark_reached(host: &dyn Host, share: &str, now: Nanos) {
    // If the write fails, it is repeated on the next response.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let heartbeat = Heartbeat {
            reached_at: now,
            ..Heartbeat::read(found.unwrap_or_default())
        };
        Some(heartbeat.bytes())
    });
}

/// Records that all of the engine's changes are in force on this Envoy.
pub(super) fn mark_current(host: &dyn Host, share: &str, now: Nanos) {
    // If the write fails, it is repeated on the next response.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let heartbeat = Heartbeat {
            current_at: now,
            ..Heartbeat::read(found.unwrap_or_default())
        };
        Some(heartbeat.bytes())
    });
}

/// Records an answer from the engine. `envoys` is `None` if the call was not a heartbeat. Returns
/// true if the last fleet event reported an outage.
pub(super) fn answered(host: &dyn Host, share: &str, envoys: Option<u64>, now: Nanos) -> bool {
    let mut was_down = false;
    // If the write fails, it is repeated on the next response.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let before = Heartbeat::read(found.unwrap_or_default());
        was_down = before.is_down > 0;
        let heartbeat = Heartbeat {
            answered_at: now,
            envoys: envoys.unwrap_or(before.envoys),
            ..before
        };
        Some(heartbeat.bytes())
    });
    was_down
}

/// Marks the changes as in force for the duration of a test.
#[cfg(test)]
pub(crate) fn know_changes(host: &dyn Host, share: &str) {
    mark_current(host, share, Nanos::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn one_worker_reports_each_turn() {
        let host = FakeHost::default();
        assert!(!claims_outage_event(&host, "s", false));
        assert!(claims_outage_event(&host, "s", true));
        assert!(!claims_outage_event(&host, "s", true));
        answered(&host, "s", Some(3), Nanos::from_secs(1));
        assert!(claims_outage_event(&host, "s", false));
        assert!(!claims_outage_event(&host, "s", false));
    }

    #[test]
    fn one_worker_calls_at_a_time() {
        let host = FakeHost::default();
        let at = Nanos::from_millis;
        assert_eq!(Heartbeat::find(&host, "s"), None);
        let settings = FleetSettings {
            cluster: "relay".to_owned(),
            lease: at(200),
            timeout: at(30),
            credit: 0,
            on_outage: OnOutage::Admit,
            envoys: 4,
            token: None,
        };
        let claims = |now| claim_turn(&host, "s", &settings, at(now));
        let calls = |now| claims(now).1;
        assert!(calls(5));
        assert!(!calls(5) && !calls(354));
        assert!(calls(1_005));
        answered(&host, "s", Some(3), at(1_006));
        let (heartbeat, is_due) = claims(1_007);
        assert!(!is_due);
        assert_eq!((heartbeat.envoys, heartbeat.answered_at), (3, at(1_006)));
        assert_eq!(Heartbeat::find(&host, "s"), Some(heartbeat));
        assert!(calls(2_005));
        // Relay calls have received no response for three seconds, except on a worker that received
        // one later.
        let heartbeat = || claims(0).0;
        assert!(calls(3_005) && !heartbeat().is_silent(Nanos::ZERO));
        assert!(calls(4_010) && heartbeat().is_silent(Nanos::ZERO));
        assert!(!heartbeat().is_silent(at(1_100)));
        assert!(!Heartbeat::default().is_silent(Nanos::ZERO));
        assert!(heartbeat().is_alive(at(64_009)) && !heartbeat().is_alive(at(64_010)));
    }
}
