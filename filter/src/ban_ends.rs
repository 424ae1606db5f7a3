//! Stores the expiry times of operator bans, so that an event is added when a ban expires.
//!
//! A ban is stored on its bucket's page, and nothing checks the page when the ban expires. The
//! expiry times of all bans are therefore also stored in one shared data value. The worker that set
//! a ban checks this value when the ban is due to expire, and every worker checks it before
//! returning events. The event is added by the worker that removes the expired ban from the value,
//! so there is exactly one event per ban. If a VM dies, the expiry times remain available to other
//! VMs. The size of the value is bounded: bans beyond a maximum number are only counted.

use loudou_api::{Event, EventKind};
use loudou_limiter::Nanos;
use loudou_rules::humanise::humanise;
use loudou_rules::size::BAN_ENDS;
use loudou_store::{CAS_ABSENT, StoreFailed, Written};

use crate::bytes::{put, put_number, take_number, take_text};
use crate::events;
use crate::formats;
use crate::host::Host;

/// Maximum number of compare-and-swap attempts per change.
const MAX_TRIES: usize = 64;
/// Delay before retrying a failed check.
const RETRY_AFTER: Nanos = Nanos::from_secs(1);

/// A ban and its expiry time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BanEnd {
    pub(crate) rule: String,
    pub(crate) key: String,
    /// Who set the ban.
    pub(crate) by: String,
    pub(crate) until: Nanos,
}

/// Content of the shared data value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ends {
    bans: Vec<BanEnd>,
    /// Number of bans that are counted but not listed because [`BAN_ENDS`] bans are already listed,
    /// and their latest expiry time.
    others: u64,
    others_until: Nanos,
}

/// A change to the expiry time of a key's ban.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// The key was banned until the given expiry time. This ban replaces any earlier ban on the
    /// key.
    Banned(&'a BanEnd),
    /// The given key (second field) of the given rule (first field) no longer has a ban with an
    /// expiry time.
    Gone(&'a str, &'a str),
}

impl Ends {
    fn read(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        if take_number(bytes)? != formats::BAN_ENDS {
            return None;
        }
        let mut ends = Self {
            others: take_number(bytes)?,
            others_until: Nanos::new(take_number(bytes)?),
            bans: Vec::new(),
        };
        while !bytes.is_empty() {
            ends.bans.push(BanEnd {
                until: Nanos::new(take_number(bytes)?),
                rule: take_text(bytes)?,
                key: take_text(bytes)?,
                by: take_text(bytes)?,
            });
        }
        Some(ends)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [formats::BAN_ENDS, self.others, self.others_until.get()] {
            put_number(&mut bytes, number);
        }
        for end in &self.bans {
            put_number(&mut bytes, end.until.get());
            for text in [&end.rule, &end.key, &end.by] {
                put(&mut bytes, text.as_bytes());
            }
        }
        bytes
    }

    /// Returns the earliest expiry time.
    fn next(&self) -> Option<Nanos> {
        let others = (self.others > 0).then_some(self.others_until);
        let ends = self.bans.iter().map(|end| end.until);
        ends.chain(others).min()
    }

    /// Removes the expired bans. Returns them in order of expiry time, along with the number of
    /// expired bans that were only counted.
    fn expire(&mut self, now: Nanos) -> (Vec<BanEnd>, u64) {
        let mut ended: Vec<BanEnd> = Vec::new();
        self.bans.retain(|end| {
            if end.until > now {
                return true;
            }
            let later = ended.iter().rposition(|other| other.until <= end.until);
            ended.insert(later.map_or(0, |at| at.saturating_add(1)), end.clone());
            false
        });
        let mut others = 0;
        if self.others_until <= now {
            others = core::mem::take(&mut self.others);
        }
        (ended, others)
    }

    fn change(&mut self, change: Change<'_>) {
        let (rule, key) = match change {
            Change::Banned(ban) => (ban.rule.as_str(), ban.key.as_str()),
            Change::Gone(rule, key) => (rule, key),
        };
        self.bans.retain(|end| end.rule != rule || end.key != key);
        let Change::Banned(ban) = change else { return };
        if self.bans.len() < BAN_ENDS {
            self.bans.push(ban.clone());
        } else {
            self.others = self.others.saturating_add(1);
            self.others_until = self.others_until.max(ban.until);
        }
    }
}

/// Stores a change to a key's ban, if there is one, and removes the expired bans. Returns events
/// for the removed bans (the caller must set their generation), and the time of the next check.
pub(crate) fn note(
    host: &dyn Host,
    share: &str,
    change: Option<Change<'_>>,
    now: Nanos,
) -> (Vec<Event>, Option<Nanos>) {
    let Ok(Some((ended, others, next))) = swap(host, share, change, now) else {
        return (Vec::new(), Some(now.saturating_add(RETRY_AFTER)));
    };
    let mut all = Vec::new();
    if ended.is_empty() && others == 0 {
        return (all, next);
    }
    let at = host.clock_at(now);
    let event = |until: Nanos, detail: String| Event {
        detail,
        until_ns: Some(until.get()),
        ..events::event(at, EventKind::BanExpired, events::BY_ITSELF, 0)
    };
    for ban in ended {
        let late = match now.since(ban.until).as_millis() / 1_000 {
            0 => String::new(),
            seconds => format!(" {} ago", humanise(Nanos::from_secs(seconds).get())),
        };
        all.push(Event {
            rule: Some(ban.rule),
            key: Some(ban.key),
            ..event(ban.until, format!("the ban by {} ended{late}", ban.by))
        });
    }
    if others > 0 {
        let detail = format!(
            "{others} more bans have ended: the keys of at most {BAN_ENDS} bans at a time are remembered"
        );
        all.push(event(now, detail));
    }
    (all, next)
}

type Swapped = (Vec<BanEnd>, u64, Option<Nanos>);

/// Updates the shared data value. Returns `None` if every attempt failed because of concurrent
/// writes, or if another version of Loudou wrote the value.
fn swap(
    host: &dyn Host,
    share: &str,
    change: Option<Change<'_>>,
    now: Nanos,
) -> Result<Option<Swapped>, StoreFailed> {
    let key = [share.as_bytes(), b":banends"].concat();
    let mut bytes = Vec::new();
    for _ in 0..MAX_TRIES {
        let cas = host.shared_get(&key, &mut bytes)?;
        if cas.is_some() && formats::is_other(&bytes, formats::BAN_ENDS) {
            return Ok(None);
        }
        let mut ends = Ends::read(&bytes).unwrap_or_default();
        let before = ends.clone();
        let (ended, others) = ends.expire(now);
        if let Some(change) = change {
            ends.change(change);
        }
        if ends == before {
            return Ok(Some((ended, others, ends.next())));
        }
        let expected = cas.unwrap_or(CAS_ABSENT);
        if host.shared_set(&key, &ends.bytes(), expected)? == Written::Done {
            return Ok(Some((ended, others, ends.next())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::fake::FakeHost;

    const SECOND: fn(u64) -> Nanos = Nanos::from_secs;

    fn ban(key: &str, until: Nanos) -> BanEnd {
        BanEnd {
            rule: "r".to_owned(),
            key: key.to_owned(),
            by: "ops".to_owned(),
            until,
        }
    }

    fn banned(host: &FakeHost, key: &str, until: u64) -> (Vec<Event>, Option<Nanos>) {
        let ban = ban(key, SECOND(until));
        note(host, "s", Some(Change::Banned(&ban)), host.now())
    }

    #[test]
    fn each_end_is_reported_once_and_in_order() {
        let host = FakeHost::default();
        for (key, until, next) in [
            ("late", 30, 30),
            ("early", 10, 10),
            ("longer", 10, 10),
            ("longer", 90, 10),
            ("lifted", 5, 5),
        ] {
            assert_eq!(banned(&host, key, until), (Vec::new(), Some(SECOND(next))));
        }
        let gone = Change::Gone("r", "lifted");
        let lifted = note(&host, "s", Some(gone), SECOND(1));
        assert_eq!(lifted, (Vec::new(), Some(SECOND(10))));
        let (ended, next) = note(&host, "s", None, SECOND(31));
        assert_eq!(next, Some(SECOND(90)));
        let keys: Vec<_> = ended
            .iter()
            .filter_map(|event| event.key.as_deref())
            .collect();
        assert_eq!(keys, ["early", "late"]);
        assert_eq!(ended[0].detail, "the ban by ops ended 21s ago");
        assert_eq!(ended[0].until_ns, Some(SECOND(10).get()));
        assert_eq!(note(&host, "s", None, SECOND(31)).0, []);
        // The key's previous ban has expired, but no call has reported the expiry yet.
        host.now.set(SECOND(91).get());
        assert_eq!(banned(&host, "longer", 99).0.len(), 1);
    }

    #[test]
    fn the_value_is_bounded_and_what_is_beyond_is_counted() {
        let host = FakeHost::default();
        for n in 0..BAN_ENDS + 7 {
            banned(&host, &format!("{n:0128}"), 10);
        }
        let mut bytes = Vec::new();
        let found = host.shared_get(b"s:banends", &mut bytes);
        assert!(found.is_ok_and(|found| found.is_some()));
        assert!(bytes.len() < BAN_ENDS * (32 + 128 + 10), "{}", bytes.len());
        let ends = Ends::read(&bytes).expect("readable");
        assert_eq!((ends.bans.len(), ends.others), (BAN_ENDS, 7));
        let (ended, next) = note(&host, "s", None, SECOND(10));
        assert_eq!((ended.len(), next), (BAN_ENDS + 1, None));
        let others = &ended[BAN_ENDS].detail;
        assert!(others.starts_with("7 more bans"), "{others}");
    }
}
