//! The changes that one Envoy knows, as its workers share them.

use loudou_api::{
    ChangeName, MAX_ALL_CHANGES_BYTES, MAX_ANSWER_CHANGES, MAX_ANSWER_CHANGES_BYTES,
    MAX_CHANGE_BYTES, MAX_CHANGES, TOMBSTONE_S,
};
use loudou_limiter::Nanos;

use super::Made;
use crate::bytes::{put, put_number, take, take_number, take_text};
use crate::formats::CHANGES;

/// For how long the end of a change is told to an engine that has lost it.
const ENDS_KEPT: Nanos = Nanos::from_secs(TOMBSTONE_S);

/// Whether the engine has a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It has it.
    #[default]
    Known,
    /// It is to be told.
    Unsent,
    /// It refused it: the change holds at this Envoy only.
    Refused,
}

/// Whether a change holds here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Here {
    /// It does.
    #[default]
    InForce,
    /// It is to be put in force.
    ToApply,
    /// The rule here is another than the one that it was made for, or has no room for it.
    Waiting,
}

/// One change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its name, as a [`ChangeName`] writes it.
    pub(crate) name: String,
    /// Its JSON; empty if it is an end.
    pub(crate) value: Vec<u8>,
    pub(crate) made_at: Nanos,
    /// When it ends by itself; [`Nanos::MAX`] for never.
    pub(crate) until: Nanos,
    /// Until when an earlier one of its name lasts, where this one has not arrived.
    pub(crate) earlier_until: Nanos,
    /// The instance at which it was made; empty for this one.
    pub(crate) by: String,
    /// The engine's number of it; 0 for none yet.
    pub(crate) generation: u64,
    pub(crate) sent: Sent,
    pub(crate) here: Here,
    /// Tells it from earlier and later ones of its name in this Envoy.
    pub(crate) version: u64,
}

/// A summary of the changes, so that a look need not read thousands of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The engine's epoch; empty before its first answer.
    pub(crate) epoch: String,
    /// The engine's generation that is known here.
    pub(crate) generation: u64,
    /// The number of announced changes of the record at the last look.
    pub(crate) seen: u64,
    /// The same when the record was last found to agree with all of these.
    pub(crate) checked: u64,
    version: u64,
    /// How many changes there are, as it was written.
    pub(crate) count: u64,
    /// How many of them are to be put in force.
    pub(crate) due: u64,
    /// How many of them are to be told.
    pub(crate) unsent: u64,
    /// When the first of them ends by itself.
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

/// The changes.
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
                    0 => Here::InForce,
                    1 => Here::ToApply,
                    _ => Here::Waiting,
                },
            });
        }
        Some(changes)
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.head.count = self.count(|_| true);
        self.head.due = self.count(|change| change.here == Here::ToApply);
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
                Here::InForce => 0,
                Here::ToApply => 1,
                Here::Waiting => 2,
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

    /// Forgets what is over: bans and edits at their ends, and ends of which every Envoy has heard. Where an
    /// earlier change may last longer, whoever did not hear of the later one is told that it is over, too.
    pub(super) fn drop_over(&mut self, now: Nanos) {
        for change in &mut self.all {
            // Of one that is unsent, nobody knows what there is elsewhere.
            let may_outlast = change.earlier_until > now || change.sent == Sent::Unsent;
            if change.until > now || change.value.is_empty() || !may_outlast {
                continue;
            }
            // A call on its way tells the change, not its end.
            self.head.version = self.head.version.saturating_add(1);
            change.version = self.head.version;
            change.value = Vec::new();
            change.until = change.until.saturating_add(ENDS_KEPT);
            if change.sent == Sent::Known {
                change.sent = Sent::Unsent;
            }
            if change.here == Here::Waiting {
                change.here = Here::InForce;
            }
        }
        self.all.retain(|change| {
            let is_old = change.made_at.saturating_add(ENDS_KEPT) <= now;
            let is_end = change.value.is_empty() && change.until == Nanos::MAX;
            change.until > now && !(is_end && is_old)
        });
    }

    pub(super) fn find(&mut self, name: &str) -> Option<&mut Change> {
        self.all.iter_mut().find(|change| change.name == name)
    }

    /// Puts a change in the place of the one of its name.
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

    /// Notes changes that were made here; false if there is no room. Then none is noted, and what was known of
    /// the same names does not hold here any more.
    pub(super) fn make(&mut self, made: &[Made], now: Nanos) -> bool {
        let noted = made.iter().flat_map(|made| self.to_note(made, now));
        let noted: Vec<Change> = noted.collect();
        let mut bytes = self.bytes_of_all();
        let (mut fits, mut count) = (true, self.all.len());
        for change in &noted {
            let is_new = self.find(&change.name).is_none();
            count = count.saturating_add(is_new.into());
            // A call that is longer than a relay reads would fail, with all that it carries.
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
                (change.sent, change.here) = (Sent::Refused, Here::InForce);
            }
        }
        fits
    }

    /// The bytes of all names, values and makers.
    pub(super) fn bytes_of_all(&self) -> usize {
        let bytes = self.all.iter().map(Change::bytes);
        bytes.fold(0, usize::saturating_add)
    }

    /// The changes that the next call tells the engine; a later one tells the others.
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

    /// How many changes there are that satisfy a condition.
    pub(crate) fn count(&self, which: fn(&Change) -> bool) -> u64 {
        let counts = self.all.iter().map(|change| u64::from(which(change)));
        counts.fold(0, u64::saturating_add)
    }

    /// Whether one is to be put in force.
    pub(crate) fn is_due(&self) -> bool {
        self.all.iter().any(|change| change.here == Here::ToApply)
    }

    /// Notes whether a change holds, unless another has taken its place.
    pub(crate) fn settle(&mut self, name: &str, version: u64, here: Here) {
        let mut all = self.all.iter_mut();
        let found = all.find(|change| change.version == version && change.name == name);
        if let Some(change) = found {
            change.here = here;
        }
    }
}

impl Change {
    /// Its subject; `None` for a kind that is not known here.
    pub(crate) fn about(&self) -> Option<ChangeName> {
        ChangeName::parse(&self.name)
    }

    fn bytes(&self) -> usize {
        let texts = [self.name.len(), self.value.len(), self.by.len()];
        texts.into_iter().fold(0, usize::saturating_add)
    }
}
