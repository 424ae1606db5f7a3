//! Undoes bans. If another operator has changed the ban in the meantime, the confirmation question
//! says so.

use loudou_api::{BanAnswer, BanBy, BanView};
use loudou_limiter::Nanos;

use super::ban::{Ban, BanTo};
use super::verb::{Question, undo_reason};
use loudou_words::meaning::{banned, imposed};
use loudou_words::num::whole_seconds;

/// An undo for a ban or unban sent by this program.
#[derive(Clone, Debug, PartialEq)]
pub struct BanUndo {
    pub(super) rule: String,
    pub(super) key: String,
    back: Back,
    /// True if the change was a ban, false if it was an unban.
    bans: bool,
    /// Ban in effect after the change, if known.
    made: Option<Made>,
    /// One-line outcome of the change.
    pub(super) change: String,
}

/// State of the key before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    Free,
    /// Banned until this time, or indefinitely until an operator unbans the key.
    Banned(Option<u64>),
}

/// The ban after a change, if any, and the server time of the change.
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

/// A bucket's ban, as of the last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The bucket has not been read since the change.
    Unknown,
    /// The bucket no longer exists.
    Gone,
    /// The bucket exists. Contains its ban, if any.
    Read(Option<BanView>),
}

impl BanUndo {
    /// Returns an undo for `change`, or `None` if there is nothing to undo.
    pub(super) fn new(change: &Ban, answer: &BanAnswer, outcome: &str) -> Option<Self> {
        if !answer.changed {
            return None;
        }
        let bans = matches!(change.to, BanTo::Banned(_));
        let made = Made::new(answer);
        let (back, made) = if bans {
            let back = answer.before.map(|ban| Back::Banned(ban.until_ns));
            let made = Some(made).filter(|made| made.ban.is_some());
            (back.unwrap_or(Back::Free), made)
        } else {
            (Back::Banned(answer.before?.until_ns), Some(made))
        };
        Some(Self {
            rule: change.rule.clone(),
            key: change.key.clone(),
            back,
            bans,
            made,
            change: outcome.to_owned(),
        })
    }

    /// Returns true if `change` was created by this undo.
    pub(super) fn sends(&self, change: &Ban) -> bool {
        change.rule == self.rule
            && change.key == self.key
            && change.reason == undo_reason(&self.change)
    }

    /// Records that a later change was undone, so the ban that this undo reverts is in effect
    /// again.
    pub(super) fn put_back(&mut self, answer: &BanAnswer) {
        self.made = Some(Made::new(answer));
    }

    /// Returns the server time of the change. Only a later poll can show whether another operator
    /// has changed the ban.
    pub(super) fn made_at_ns(&self) -> Option<u64> {
        self.made.map(|made| made.at_ns)
    }

    /// Describes the ban after the change and the current ban, if the two differ.
    pub(super) fn since(&self, server_ns: u64, seen: Seen) -> Option<String> {
        let (made, now) = self.changed(seen)?;
        let state = |ban| state(ban, server_ns);
        Some(format!("your change: {}; now: {}", state(made), state(now)))
    }

    /// Returns the change that performs the undo, and the confirmation question to ask before
    /// sending it. `server_ns` is the server's clock. A temporary ban is restored for its remaining
    /// time. Returns `None` if there is nothing left to undo.
    pub(super) fn ask(&self, server_ns: u64, seen: Seen) -> Option<(Question, Ban)> {
        if self.is_over(server_ns, seen) {
            return None;
        }
        let mut detail = vec![format!("change: {}", self.change)];
        let title = match self.changed(seen) {
            None => format!("Undo the last change for {}?", self.key),
            Some((made, now)) => {
                let state = |ban| state(ban, server_ns);
                detail.push(format!("your change: {}", state(made)));
                detail.push(format!("now: {}", state(now)));
                let key = &self.key;
                let what = match (made, now) {
                    (_, None) => format!("The ban of {key} has since been lifted"),
                    (None, Some(ban)) => format!("{key} has since been banned {}", imposed(ban.by)),
                    (Some(_), Some(ban)) => {
                        format!(
                            "The ban of {key} has since been changed {}",
                            imposed(ban.by)
                        )
                    }
                };
                format!("{what}. Undo anyway?")
            }
        };
        let question = Question {
            title,
            detail,
            ..Question::default()
        };
        let change = Ban {
            rule: self.rule.clone(),
            key: self.key.clone(),
            to: self.to(server_ns),
            replaces: true,
            if_match: self.if_match(seen),
            reason: undo_reason(&self.change),
        };
        Some((question, change))
    }

    /// Returns true if the ban has expired or been lifted, so there is nothing to undo.
    fn is_over(&self, server_ns: u64, seen: Seen) -> bool {
        let ends = |until: Option<u64>| until.is_some_and(|at| at <= server_ns);
        match (self.back, self.made) {
            (_, Some(made)) if self.bans => {
                let free = seen == Seen::Read(None) && self.back == Back::Free;
                free || made.ban.is_none_or(|ban| ends(ban.until_ns))
            }
            (Back::Banned(until), _) if !self.bans => ends(until),
            _ => false,
        }
    }

    /// Returns the ban after the change and the current ban, if the two differ.
    fn changed(&self, seen: Seen) -> Option<(Option<BanView>, Option<BanView>)> {
        let now = match seen {
            Seen::Unknown => return None,
            Seen::Gone => None,
            Seen::Read(ban) => ban,
        };
        let made = self.made?.ban;
        (made != now).then_some((made, now))
    }

    /// Returns the `ETag` of the ban shown in the question. Returns `None` if an override hides the
    /// ban.
    fn if_match(&self, seen: Seen) -> Option<String> {
        let ban = match seen {
            Seen::Unknown => self.made?.ban,
            Seen::Gone => None,
            Seen::Read(ban) => ban,
        };
        let is_hidden = ban.is_some_and(|ban| ban.by == BanBy::Override);
        (!is_hidden).then(|| BanView::etag(ban))
    }

    fn to(&self, server_ns: u64) -> BanTo {
        match self.back {
            Back::Free => BanTo::Free(None),
            Back::Banned(None) => BanTo::Banned(None),
            Back::Banned(Some(until)) => match whole_seconds(until.saturating_sub(server_ns)) {
                Nanos::ZERO => BanTo::Free(None),
                left => BanTo::Banned(Some(left)),
            },
        }
    }
}

/// Describes a ban, or returns `not banned`.
fn state(ban: Option<BanView>, server_ns: u64) -> String {
    ban.map_or_else(
        || "not banned".to_owned(),
        |ban| banned(&ban, Some(server_ns)),
    )
}
