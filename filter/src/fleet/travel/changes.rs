//! The changes that one Envoy knows, as its workers share them.

use loudou_api::{
    ChangeName, MAX_ALL_CHANGES_BYTES, MAX_ANSWER_CHANGES, MAX_ANSWER_CHANGES_BYTES,
    MAX_CHANGE_BYTES, MAX_CHANGES, TOMBSTONE_S,
};
use loudou_limiter::Nanos;

use super::LocalChange;
use crate::bytes::{put, put_number, take, take_number, take_text};
use crate::formats::CHANGES;

/// Time for which the end of a change is kept, to report it to an engine that has lost it.
const END_RETENTION: Nanos = Nanos::from_secs(TOMBSTONE_S);

/// Delivery state of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The engine has it.
    #[default]
    Known,
    /// It must be reported.
    Unsent,
    /// The engine refused it, so it applies at this Envoy only.
    Refused,
}

/// Local state of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LocalState {
    /// In force.
    #[default]
    InForce,
    /// To be applied.
    ToApply,
    /// Waiting, because the rule here is another version or has no space for it.
    Waiting,
}

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Name, as [`ChangeName`] writes it.
    pub(crate) name: String,
    /// JSON of the change. Empty for an end.
    pub(crate) value: Vec<u8>,
    pub(crate) made_at: Nanos,
    /// Expiry time. [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
    /// Latest expiry of earlier changes with this name, which still apply at Envoys that have not
    /// received this change.
    pub(crate) earlier_until: Nanos,
    /// Instance at which it was made. Empty for this instance.
    pub(crate) by: String,
    /// Generation that the engine assigned. 0 if it has not.
    pub(crate) generation: u64,
    pub(crate) sent: Sent,
    pub(crate) here: LocalState,
    /// Local number that distinguishes it from other changes with its name.
    pub(crate) version: u64,
}

/// Counts and times at the front of the shared value, so that a frequent check need not parse
/// thousands of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Identifies the engine's state. Empty before its first answer.
    pub(crate) epoch: String,
    /// Last known generation of the engine.
    pub(crate) generation: u64,
    /// Number of announced record changes that the last run saw.
    pub(crate) seen: u64,
    /// Number of announced record changes when the record last agreed with all of these changes.
    pub(crate) checked: u64,
    version: u64,
    /// Number of changes at the time of writing.
    pub(crate) count: u64,
    /// Number of changes to apply.
    pub(crate) due: u64,
    /// Number of changes to report.
    pub(crate) unsent: u64,
    /// Time at which the first change expires.
    pub(crate) over_ns: u64,
}

impl Head {
    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        Self::take(&mut bytes)
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        if take_number(bytes)? != CHANGES {
            return None;
        }
        Some(Self {
            epoch: take_text(bytes)?,
            generation: take_number(bytes)?,
            seen: take_number(bytes)?,
            checked: take_number(bytes)?,
            version: take_number(bytes)?,
            count: take_number(bytes)?,
            due: take_number(bytes)?,
            unsent: take_number(bytes)?,
            over_ns: take_number(bytes)?,
        })
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, CHANGES);
        put(bytes, self.epoch.as_bytes());
        for number in [
            self.generation,
            self.seen,
            self.checked,
            self.version,
            self.count,
            self.due,
            self.unsent,
            self.over_ns,
        ] {
            put_number(bytes, number);
        }
    }
}

/// The head and all changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) head: Head,
    pub(crate) all: Vec<Change>,
}

impl Changes {
    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let mut changes = Self {
            head: Head::take(bytes)?,
            all: Vec::new(),
        };
        while !bytes.is_empty() {
            changes.all.push(Change {
                name: take_text(bytes)?,
                value: take(bytes)?.to_vec(),
                by: take_text(bytes)?,
                made_at: Nanos::new(take_number(bytes)?),
                until: Nanos::new(take_number(bytes)?),
                earlier_until: Nanos::new(take_number(bytes)?),
                generation: take_number(bytes)?,
                version: take_number(bytes)?,
                sent: match take_number(bytes)? {
                    0 => Sent::Known,
                    1 => Sent::Unsent,
                    _ => Sent::Refused,
                },
                here: match take_number(bytes)? {
                    0 => LocalState::InForce,
                    1 => LocalState::ToApply,
                    _ => LocalState::Waiting,
                },
            });
        }
        Some(changes)
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.head.count = self.count(|_| true);
        self.head.due = self.count(|change| change.here == LocalState::ToApply);
        self.head.unsent = self.count(|change| change.sent == Sent::Unsent);
        let ends = self.all.iter().map(|change| change.until.get());
        self.head.over_ns = ends.min().unwrap_or(u64::MAX);
        self.head.write(&mut bytes);
        for change in &self.all {
            for text in [change.name.as_bytes(), &change.value, change.by.as_bytes()] {
                put(&mut bytes, text);
            }
            let sent = match change.sent {
                Sent::Known => 0,
                Sent::Unsent => 1,
                Sent::Refused => 2,
            };
            let here = match change.here {
                LocalState::InForce => 0,
                LocalState::ToApply => 1,
                LocalState::Waiting => 2,
            };
            for time in [change.made_at, change.until, change.earlier_until] {
                put_number(&mut bytes, time.get());
            }
            for number in [change.generation, change.version, sent, here] {
                put_number(&mut bytes, number);
            }
        }
        bytes
    }

    /// Drops bans and edits that have expired, and ends that every Envoy has received. If an
    /// earlier change with the same name may still apply elsewhere, the expired change becomes an
    /// end, which is reported.
    pub(super) fn drop_over(&mut self, now: Nanos) {
        for change in &mut self.all {
            // Other Envoys do not know an unsent change, so an earlier one may still apply there.
            let may_outlast = change.earlier_until > now || change.sent == Sent::Unsent;
            if change.until > now || change.value.is_empty() || !may_outlast {
                continue;
            }
            // A call in flight still reports the expired change. The new version makes its response
            // void.
            self.head.version = self.head.version.saturating_add(1);
            change.version = self.head.version;
            change.value = Vec::new();
            change.until = change.until.saturating_add(END_RETENTION);
            if change.sent == Sent::Known {
                change.sent = Sent::Unsent;
            }
            if change.here == LocalState::Waiting {
                change.here = LocalState::InForce;
            }
        }
        self.all.retain(|change| {
            let is_old = change.made_at.saturating_add(END_RETENTION) <= now;
            let is_end = change.value.is_empty() && change.until == Nanos::MAX;
            change.until > now && !(is_end && is_old)
        });
    }

    pub(super) fn find(&mut self, name: &str) -> Option<&mut Change> {
        self.all.iter_mut().find(|change| change.name == name)
    }

    /// Inserts a change in place of an earlier change with its name.
    pub(super) fn put(&mut self, mut change: Change) {
        self.head.version = self.head.version.saturating_add(1);
        change.version = self.head.version;
        match self.find(&change.name) {
            Some(before) => {
                change.earlier_until = before.earlier_until;
                if !before.value.is_empty() {
                    change.earlier_until = change.earlier_until.max(before.until);
                }
                *before = change;
            }
            None => self.all.push(change),
        }
    }

    /// Stores changes that were made here. Returns false if there is no space for all of them. Then
    /// none is stored, and stored changes with these names no longer count as in force here.
    pub(super) fn make(&mut self, made: &[LocalChange], now: Nanos) -> bool {
        let noted = made.iter().flat_map(|made| self.to_note(made, now));
        let noted: Vec<Change> = noted.collect();
        let mut bytes = self.bytes_of_all();
        let (mut fits, mut count) = (true, self.all.len());
        for change in &noted {
            let is_new = self.find(&change.name).is_none();
            count = count.saturating_add(is_new.into());
            // The relay refuses a call with a change that is too long, and with it all other
            // changes of the call.
            fits &= change.value.len() <= MAX_CHANGE_BYTES;
            bytes = bytes.saturating_add(change.value.len());
        }
        fits &= count <= MAX_CHANGES && bytes <= MAX_ALL_CHANGES_BYTES;
        for change in noted {
            if fits {
                let about = change.about();
                self.put(change);
                if let Some(about) = about.filter(|about| about.base().is_some()) {
                    self.end_too_many(&about, now);
                }
            } else if let Some(change) = self.find(&change.name) {
                (change.sent, change.here) = (Sent::Refused, LocalState::InForce);
            }
        }
        fits
    }

    /// Returns the total size of all names, values and makers, in bytes.
    pub(super) fn bytes_of_all(&self) -> usize {
        let bytes = self.all.iter().map(Change::bytes);
        bytes.fold(0, usize::saturating_add)
    }

    /// Returns the changes to report in the next heartbeat. A later heartbeat reports the remaining
    /// ones.
    pub(crate) fn unsent(&self) -> Vec<&Change> {
        let (mut unsent, mut bytes) = (Vec::new(), 0_usize);
        for change in &self.all {
            if change.sent != Sent::Unsent {
                continue;
            }
            bytes = bytes.saturating_add(change.bytes());
            let is_full = unsent.len() >= MAX_ANSWER_CHANGES || bytes > MAX_ANSWER_CHANGES_BYTES;
            if is_full && !unsent.is_empty() {
                break;
            }
            unsent.push(change);
        }
        unsent
    }

    /// Returns the number of changes that satisfy a condition.
    pub(crate) fn count(&self, which: fn(&Change) -> bool) -> u64 {
        let counts = self.all.iter().map(|change| u64::from(which(change)));
        counts.fold(0, u64::saturating_add)
    }

    /// Returns true if a change must be applied.
    pub(crate) fn is_due(&self) -> bool {
        self.all
            .iter()
            .any(|change| change.here == LocalState::ToApply)
    }

    /// Sets the local state of a change, unless another change has replaced it.
    pub(crate) fn settle(&mut self, name: &str, version: u64, here: LocalState) {
        let mut all = self.all.iter_mut();
        let found = all.find(|change| change.version == version && change.name == name);
        if let Some(change) = found {
            change.here = here;
        }
    }
}

impl Change {
    /// Returns the subject of the change. `None` for an unknown kind.
    pub(crate) fn about(&self) -> Option<ChangeName> {
        ChangeName::parse(&self.name)
    }

    fn bytes(&self) -> usize {
        let texts = [self.name.len(), self.value.len(), self.by.len()];
        texts.into_iter().fold(0, usize::saturating_add)
    }
}
