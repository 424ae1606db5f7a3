//! The fleet's changes that an Envoy knows about, as stored in shared data.

use loudou_api::{
    ChangeName, MAX_ALL_CHANGES_BYTES, MAX_ANSWER_CHANGES, MAX_ANSWER_CHANGES_BYTES,
    MAX_CHANGE_BYTES, MAX_CHANGES, TOMBSTONE_S,
};
use loudou_limiter::Nanos;

use super::LocalChange;
use crate::bytes::{put, put_number, take, take_number, take_text};
use crate::formats::CHANGES;

/// Time for which a change's removal is stored, so that it can be reported again to an engine that
/// has lost it.
const END_RETENTION: Nanos = Nanos::from_secs(TOMBSTONE_S);

/// Delivery state of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The engine has the change.
    #[default]
    Known,
    /// The change must be reported to the engine.
    Unsent,
    /// The engine refused the change, so it applies only on this Envoy.
    Refused,
}

/// Local state of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LocalState {
    /// The change is in force.
    #[default]
    InForce,
    /// The change must be applied.
    ToApply,
    /// The change cannot be applied yet, for example because this Envoy has a different version of
    /// the rule or because the record is full.
    Waiting,
}

/// A change to a rule's edit, a key's override or a key's ban.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Name of the change, in the format of [`ChangeName`].
    pub(crate) name: String,
    /// JSON of the change. Empty for a removal.
    pub(crate) value: Vec<u8>,
    pub(crate) made_at: Nanos,
    /// Expiry time, or [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
    /// Latest expiry time of earlier changes with this name. Envoys that have not received this
    /// change are still applying them.
    pub(crate) earlier_until: Nanos,
    /// ID of the Envoy process on which the change was made. Empty for this process.
    pub(crate) by: String,
    /// Generation that the engine assigned to the change, or 0 if it has not assigned one.
    pub(crate) generation: u64,
    pub(crate) sent: Sent,
    pub(crate) here: LocalState,
    /// Local number that distinguishes this change from earlier and later ones with the same name.
    pub(crate) version: u64,
}

/// Counts and times at the start of the shared data value, which spare frequent checks from having
/// to parse thousands of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Identifies the engine's data set; it changes if the engine loses its data. Empty before the
    /// engine's first answer.
    pub(crate) epoch: String,
    /// Last known generation of the engine's changes.
    pub(crate) generation: u64,
    /// Number of announced record changes as of the last run.
    pub(crate) seen: u64,
    /// Number of announced record changes when the record was last compared with all of the fleet's
    /// changes.
    pub(crate) checked: u64,
    version: u64,
    /// Number of changes in the value.
    pub(crate) count: u64,
    /// Number of changes that must be applied.
    pub(crate) due: u64,
    /// Number of changes that must be reported.
    pub(crate) unsent: u64,
    /// Earliest expiry time of any change.
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

    /// Drops expired changes, and removals old enough to have been received by every Envoy. If an
    /// earlier change with the same name may still apply on another Envoy, the expired change is
    /// replaced by a removal, which is then reported.
    pub(super) fn drop_over(&mut self, now: Nanos) {
        for change in &mut self.all {
            // Other Envoys do not have an unsent change, so they may still be applying an earlier
            // one.
            let may_outlast = change.earlier_until > now || change.sent == Sent::Unsent;
            if change.until > now || change.value.is_empty() || !may_outlast {
                continue;
            }
            // A call in flight may still be reporting the expired change. Because of the new
            // version, that call's response will not mark the removal as reported.
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

    /// Inserts a change. Replaces any earlier change with the same name.
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

    /// Stores changes made on this Envoy. If there is not enough room for all of them, stores none
    /// and returns false. In that case, existing changes with the same names are no longer reported
    /// or applied again.
    pub(super) fn make(&mut self, made: &[LocalChange], now: Nanos) -> bool {
        let noted = made.iter().flat_map(|made| self.to_note(made, now));
        let noted: Vec<Change> = noted.collect();
        let mut bytes = self.bytes_of_all();
        let (mut fits, mut count) = (true, self.all.len());
        for change in &noted {
            let is_new = self.find(&change.name).is_none();
            count = count.saturating_add(is_new.into());
            // If a change is too long, the relay rejects the whole call, including all other
            // changes.
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

    /// Returns the total size of the strings in all changes, in bytes.
    pub(super) fn bytes_of_all(&self) -> usize {
        let bytes = self.all.iter().map(Change::bytes);
        bytes.fold(0, usize::saturating_add)
    }

    /// Returns the changes to report in the next heartbeat. If they do not all fit, later
    /// heartbeats report the rest.
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

    /// Returns the number of changes for which `which` returns true.
    pub(crate) fn count(&self, which: fn(&Change) -> bool) -> u64 {
        let counts = self.all.iter().map(|change| u64::from(which(change)));
        counts.fold(0, u64::saturating_add)
    }

    /// Returns true if any change must be applied.
    pub(crate) fn is_due(&self) -> bool {
        self.all
            .iter()
            .any(|change| change.here == LocalState::ToApply)
    }

    /// Sets the local state of a change, unless a newer change has replaced it.
    pub(crate) fn settle(&mut self, name: &str, version: u64, here: LocalState) {
        let mut all = self.all.iter_mut();
        let found = all.find(|change| change.version == version && change.name == name);
        if let Some(change) = found {
            change.here = here;
        }
    }
}

impl Change {
    /// Returns the change's parsed name. `None` for an unknown kind.
    pub(crate) fn about(&self) -> Option<ChangeName> {
        ChangeName::parse(&self.name)
    }

    fn bytes(&self) -> usize {
        let texts = [self.name.len(), self.value.len(), self.by.len()];
        texts.into_iter().fold(0, usize::saturating_add)
    }
}
