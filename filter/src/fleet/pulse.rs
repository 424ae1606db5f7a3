//! The knowledge of an Envoy's workers about their fleet: when one of them last called only to be counted, and
//! what the engine answered.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{LeaseSettings, Phase};
use loudou_rules::fleet::FleetView;
use loudou_rules::rule::{FleetSettings, OnOutage};
use loudou_store::swap::{Swapped, swap};

use crate::bytes::{put_number, take_number};
use crate::host::{Host, HostStore};

/// The shortest time between two calls that count this Envoy and carry changes. A change takes one of them to
/// leave, and one to arrive elsewhere: together with [`LOOK`] less than a second.
pub(crate) const EVERY: Nanos = Nanos::from_millis(350);
/// How often each worker looks whether such a call is due.
pub(super) const LOOK: Nanos = Nanos::from_millis(200);

/// For how long calls go without an answer until all workers take the engine for dead: also those that do not
/// call, because it denied everything they had asked for.
const SILENCE: Nanos = Nanos::from_secs(3);

/// The time without a call after which no worker has a fleet any more.
const GONE: Nanos = Nanos::from_secs(60);

/// For how long changes that were received are known: a change holds within this time at all Envoys of a fleet.
const CURRENT: Nanos = Nanos::from_secs(1);

/// The shared state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// When a worker last called.
    called_at: Nanos,
    /// When the engine last answered; zero for never.
    pub(crate) answered_at: Nanos,
    /// The Envoys that it knew of.
    pub(crate) envoys: u64,
    /// 1 while an event says that it does not answer.
    is_down: u64,
    /// Who decides then.
    on_outage: OnOutage,
    /// When a relay last answered, also that its engine does not; zero for never.
    reached_at: Nanos,
    /// When all changes of the engine were last known, and in force here; zero for never.
    current_at: Nanos,
    /// The number of Envoys that the settings assume until the engine reports one.
    assumed: u64,
}

fn key(share: &str) -> Vec<u8> {
    [share.as_bytes(), b":fleet"].concat()
}

impl Pulse {
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

    /// Whether a relay has been called for a while without an answer; `heard_at` is the last one to the
    /// worker that asks. An answer without the engine counts: which keys the engine does not answer is known of
    /// each key.
    pub(super) fn is_silent(self, heard_at: Nanos) -> bool {
        let answered_at = self.answered_at.max(self.reached_at).max(heard_at);
        !answered_at.is_zero() && self.called_at.since(answered_at) >= SILENCE
    }

    /// Whether an event says that the engine does not answer.
    pub(super) const fn is_down(self) -> bool {
        self.is_down > 0
    }

    /// The state of the fleet for a request that is not made: it never waits, and asks for nothing.
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

    /// The Envoys that the engine last knew of, or that the settings assume; at least 1.
    pub(super) fn known_envoys(self) -> u32 {
        let envoys = match self.envoys {
            0 => self.assumed,
            envoys => envoys,
        };
        u32::try_from(envoys).unwrap_or(u32::MAX).max(1)
    }

    /// Returns true if the changes of the engine are known, and in force here.
    pub(crate) fn is_current(self, now: Nanos) -> bool {
        !self.current_at.is_zero() && now.since(self.current_at) < CURRENT
    }

    /// Whether a worker has called lately, or tried to: without one, the configuration has no fleet any more.
    pub(crate) fn is_alive(self, now: Nanos) -> bool {
        now.since(self.called_at) < GONE
    }

    /// The shared state now; `None` where no worker has a fleet.
    pub(crate) fn find(host: &dyn Host, share: &str) -> Option<Self> {
        let mut bytes = Vec::new();
        let found = host.shared_get(&key(share), &mut bytes).ok()?;
        found.map(|_| Self::read(&bytes))
    }
}

/// The shared state, and whether it is this worker's turn to call.
pub(super) fn look(
    host: &dyn Host,
    share: &str,
    settings: &FleetSettings,
    now: Nanos,
) -> (Pulse, bool) {
    let mut pulse = Pulse::default();
    let swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        pulse = Pulse::read(found.unwrap_or_default());
        let is_due = pulse.called_at.is_zero() || now.since(pulse.called_at) >= EVERY;
        let called = Pulse {
            called_at: now,
            on_outage: settings.on_outage,
            assumed: settings.envoys.into(),
            ..pulse
        };
        is_due.then(|| called.bytes())
    });
    (pulse, swapped == Ok(Swapped::Done))
}

/// Whether an event is due, because the engine does not answer, or does again: for one of the workers.
pub(super) fn turns(host: &dyn Host, share: &str, is_down: bool) -> bool {
    let swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let pulse = Pulse::read(found.unwrap_or_default());
        let turned = Pulse {
            is_down: is_down.into(),
            ..pulse
        };
        (pulse != turned).then(|| turned.bytes())
    });
    swapped == Ok(Swapped::Done)
}

/// A relay has answered that its engine does not.
pub(super) fn reached(host: &dyn Host, share: &str, now: Nanos) {
    // If this fails, the next answer follows.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let pulse = Pulse {
            reached_at: now,
            ..Pulse::read(found.unwrap_or_default())
        };
        Some(pulse.bytes())
    });
}

/// All changes of the engine are known, and in force here.
pub(super) fn is_current_at(host: &dyn Host, share: &str, now: Nanos) {
    // If this fails, the next answer follows.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let pulse = Pulse {
            current_at: now,
            ..Pulse::read(found.unwrap_or_default())
        };
        Some(pulse.bytes())
    });
}

/// The engine has answered; to a call of keys only, it does not say how many Envoys there are. Returns whether
/// an event says that it does not answer.
pub(super) fn answered(host: &dyn Host, share: &str, envoys: Option<u64>, now: Nanos) -> bool {
    let mut was_down = false;
    // If this fails, the next answer follows.
    let _swapped = swap(&mut HostStore(host), &key(share), &mut |found| {
        let before = Pulse::read(found.unwrap_or_default());
        was_down = before.is_down > 0;
        let pulse = Pulse {
            answered_at: now,
            envoys: envoys.unwrap_or(before.envoys),
            ..before
        };
        Some(pulse.bytes())
    });
    was_down
}

/// The changes are known for as long as a test takes.
#[cfg(test)]
pub(crate) fn know_changes(host: &dyn Host, share: &str) {
    is_current_at(host, share, Nanos::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    #[test]
    fn one_worker_reports_each_turn() {
        let host = FakeHost::default();
        assert!(!turns(&host, "s", false));
        assert!(turns(&host, "s", true));
        assert!(!turns(&host, "s", true));
        answered(&host, "s", Some(3), Nanos::from_secs(1));
        assert!(turns(&host, "s", false));
        assert!(!turns(&host, "s", false));
    }

    #[test]
    fn one_worker_calls_at_a_time() {
        let host = FakeHost::default();
        let at = Nanos::from_millis;
        assert_eq!(Pulse::find(&host, "s"), None);
        let settings = FleetSettings {
            cluster: "relay".to_owned(),
            lease: at(200),
            timeout: at(30),
            credit: 0,
            on_outage: OnOutage::Admit,
            envoys: 4,
            token: None,
        };
        let looks = |now| look(&host, "s", &settings, at(now));
        let calls = |now| looks(now).1;
        assert!(calls(5));
        assert!(!calls(5) && !calls(354));
        assert!(calls(1_005));
        answered(&host, "s", Some(3), at(1_006));
        let (pulse, is_due) = looks(1_007);
        assert!(!is_due);
        assert_eq!((pulse.envoys, pulse.answered_at), (3, at(1_006)));
        assert_eq!(Pulse::find(&host, "s"), Some(pulse));
        assert!(calls(2_005));
        // The calls of three seconds had no answer, unless another worker knows better.
        let pulse = || looks(0).0;
        assert!(calls(3_005) && !pulse().is_silent(Nanos::ZERO));
        assert!(calls(4_010) && pulse().is_silent(Nanos::ZERO));
        assert!(!pulse().is_silent(at(1_100)));
        assert!(!Pulse::default().is_silent(Nanos::ZERO));
        assert!(pulse().is_alive(at(64_009)) && !pulse().is_alive(at(64_010)));
    }
}
