//! Taking own bans and overrides back, but not what somebody else has made of them since.

use loudou_api::{BanAnswer, BanView, RuleView};
use loudou_limiter::Nanos;
use serde_json::Value;

use super::of_key::{KeyAnswer, KeyChange, What};
use super::rows::BucketName;
use super::undo::{Action, Pending};
use crate::meaning::{banned, imposed};

/// How an own change for a key is taken back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyUndo {
    pub(crate) id: BucketName,
    back: Back,
    /// Whether it was a ban.
    bans: bool,
    /// What it left in force, as far as that is known and about bans.
    made: Option<Made>,
    /// What it did, in one line.
    pub(crate) change: String,
}

/// What was before.
#[derive(Clone, Debug, PartialEq)]
enum Back {
    Free,
    /// Banned until then, or without an end.
    Banned(Option<u64>),
    /// The edited override, with its end; `None` if it was not edited. The rule as it is after.
    Own(Option<(Value, Option<u64>)>, Box<RuleView>),
}

/// The ban after a change, if there was one, and when that was on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    ban: Option<BanView>,
    at_ns: u64,
}

impl Made {
    fn new(answer: &BanAnswer) -> Self {
        Self {
            ban: answer.bucket.as_ref().and_then(|bucket| bucket.ban),
            at_ns: answer.now_ns,
        }
    }
}

/// What the last poll knows of the ban of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Nothing, or nothing new enough.
    Unknown,
    /// There is no such bucket any more.
    Gone,
    /// The bucket was read, and that is its ban.
    Read(Option<BanView>),
}

impl KeyUndo {
    /// Remembers how to undo `change`, if there is anything to undo.
    pub(crate) fn new(change: &KeyChange, answer: &KeyAnswer, told: &str) -> Option<Self> {
        let bans = matches!(change.what, What::Ban(_));
        let (back, made) = match (answer, &change.what) {
            (KeyAnswer::Ban(answer), What::Ban(_)) => {
                let before = answer.before;
                let back = before.map_or(Back::Free, |ban| Back::Banned(ban.until_ns));
                let made = Made::new(answer);
                (back, Some(made).filter(|made| made.ban.is_some()))
            }
            (KeyAnswer::Ban(answer), _) => {
                let back = Back::Banned(answer.before?.until_ns);
                (back, Some(Made::new(answer)))
            }
            (KeyAnswer::Override(answer), What::Override { seen, .. }) => {
                if answer.change.is_empty() {
                    return None;
                }
                let key = &change.id.key;
                let own = seen.rule.get("overrides").and_then(|all| all.get(key));
                let edited = seen.overrides.iter().find(|edited| edited.key == *key);
                let earlier = edited.zip(own);
                let earlier = earlier.map(|(edited, own)| (own.clone(), edited.edit.expires_at_ns));
                (Back::Own(earlier, Box::new(answer.after.clone())), None)
            }
            (KeyAnswer::Override(_), _) => return None,
        };
        Some(Self {
            id: change.id.clone(),
            back,
            bans,
            made,
            change: told.to_owned(),
        })
    }

    /// Whether `change` is what this asked for.
    pub(crate) fn asked_for(&self, change: &KeyChange) -> bool {
        change.is_undo && change.id == self.id && change.reason == self.reason()
    }

    /// A later own change was taken back: what this made is in force again, as far as it still lasts.
    pub(crate) fn put_back(&mut self, answer: &BanAnswer) {
        if !matches!(self.back, Back::Own(..)) {
            self.made = Some(Made::new(answer));
        }
    }

    /// Since when the server is to be asked what became of the ban that this made or lifted.
    pub(crate) fn made_at_ns(&self) -> Option<u64> {
        self.made.map(|made| made.at_ns)
    }

    /// The question before it is undone, by the server's clock: what was for a time is put back for the
    /// rest of that. `None` when nothing is left to undo.
    pub(crate) fn ask(&self, server_ns: u64, seen: Seen) -> Option<Pending> {
        if self.is_over(server_ns, seen) {
            return None;
        }
        let mut detail = vec![format!("it was: {}", self.change)];
        let question = match self.changed(seen) {
            None => format!("Undo the last change for {}?", self.id.key),
            Some((made, now)) => {
                let state = |ban: Option<BanView>| match ban {
                    Some(ban) => banned(&ban, Some(server_ns)),
                    None => "not banned".to_owned(),
                };
                detail.push(format!("yours: {}", state(made)));
                detail.push(format!("now: {}", state(now)));
                let key = &self.id.key;
                let what = match (made, now) {
                    (_, None) => format!("The ban of {key} was lifted since"),
                    (None, Some(ban)) => format!("{key} was banned since, {}", imposed(ban.by)),
                    (Some(_), Some(ban)) => {
                        format!("The ban of {key} was changed since, {}", imposed(ban.by))
                    }
                };
                format!("{what}. Undo all the same?")
            }
        };
        Some(Pending {
            question,
            detail,
            action: Action::OfKey(Box::new(KeyChange {
                id: self.id.clone(),
                what: self.what(server_ns),
                reason: self.reason(),
                is_undo: true,
                retries: 0,
            })),
        })
    }

    fn reason(&self) -> String {
        let reason = format!("undo of: {}", self.change);
        reason.chars().take(120).collect()
    }

    /// Whether time or somebody else has done what undoing would do.
    fn is_over(&self, server_ns: u64, seen: Seen) -> bool {
        let ends = |until: Option<u64>| until.is_some_and(|at| at <= server_ns);
        match (&self.back, self.made) {
            (Back::Free | Back::Banned(_), Some(made)) if self.bans => {
                let free = seen == Seen::Read(None) && self.back == Back::Free;
                free || made.ban.is_none_or(|ban| ends(ban.until_ns))
            }
            (Back::Banned(until), _) if !self.bans => ends(*until),
            _ => false,
        }
    }

    /// The ban that this left in force and the one that is now, if that is another one.
    fn changed(&self, seen: Seen) -> Option<(Option<BanView>, Option<BanView>)> {
        let now = match seen {
            Seen::Unknown => return None,
            Seen::Gone => None,
            Seen::Read(ban) => ban,
        };
        let made = self.made?.ban;
        (made != now).then_some((made, now))
    }

    fn what(&self, server_ns: u64) -> What {
        let left = |until: u64| {
            let left = Nanos::new(until.saturating_sub(server_ns)).millis_ceil();
            Some(Nanos::from_millis(left)).filter(|left| *left > Nanos::ZERO)
        };
        match &self.back {
            Back::Free => What::Unban,
            Back::Banned(None) => What::Ban(None),
            Back::Banned(Some(until)) => match left(*until) {
                None => What::Unban,
                rest => What::Ban(rest),
            },
            Back::Own(earlier, seen) => {
                let over =
                    |(_, until): &&(Value, Option<u64>)| until.is_some_and(|at| at <= server_ns);
                let earlier = earlier.as_ref().filter(|earlier| !over(earlier));
                What::Override {
                    body: earlier.map(|(own, _)| own.clone()),
                    expires_after: earlier.and_then(|(_, until)| left((*until)?)),
                    seen: seen.clone(),
                }
            }
        }
    }
}
