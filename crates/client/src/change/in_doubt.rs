//! Handles in-doubt changes. A change is in doubt if the client has received no response showing
//! whether it was made. A later poll shows whether the change is in effect, and the change can then
//! be undone.

use loudou_api::{BanAnswer, BanBy, BanView, BucketView, EditAnswer, EditView, RuleView};

use super::ban::BanTo;
use super::ban_undo::Seen;
use super::edit::Edit;
use super::key_override::Override;
use super::verb::Answer;
use super::{Change, Undo};
use loudou_words::meaning::banned;

/// Result of an attempt to undo an in-doubt change.
#[derive(Clone, Debug, PartialEq)]
pub enum DoubtUndo {
    /// The change was not made, so there is nothing to undo.
    NotMade,
    /// The change is or may be in effect, and this undo reverts it.
    Undo(Undo),
    /// This kind of change cannot be undone.
    Endless,
}

/// The server's state before and after the change, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct ServerState<'a> {
    /// The key's ban before the change.
    pub before: Option<BanView>,
    /// The key's ban after the change, or [`Seen::Unknown`] if it has not been read since.
    pub ban: Seen,
    /// The rule as of the last read.
    pub rule: Option<&'a RuleView>,
    /// True if `rule` was read after the change.
    pub is_read: bool,
    /// The server's clock.
    pub now_ns: u64,
}

impl Change {
    /// Returns the edit, of the rule or of the key's override, that this change would replace.
    fn edit_in<'a>(&self, rule: &'a RuleView) -> Option<&'a EditView> {
        match self {
            Self::Edit(_) => rule.edit.as_ref(),
            Self::Override(change) => {
                let mut all = rule.overrides.iter();
                let edited = all.find(|edited| edited.key == change.key);
                edited.map(|edited| &edited.edit)
            }
            Self::Ban(_) | Self::BanAll(_) | Self::Reset(_) => None,
        }
    }

    /// Returns an undo for this in-doubt change.
    pub fn doubt(&self, server: &ServerState<'_>) -> DoubtUndo {
        let answer = match self {
            Self::Edit(Edit { seen, reason, .. })
            | Self::Override(Override { seen, reason, .. }) => {
                server.edited(seen, |now| {
                    let (before, now) = (self.edit_in(seen), self.edit_in(now));
                    // An edit with a different reason must have been made by another operator.
                    before != now && now.is_none_or(|now| now.reason == *reason)
                })
            }
            Self::Ban(ban) => server.banned(matches!(ban.to, BanTo::Banned(_))),
            // The bans of a `BanAll` are handled separately, and a reset cannot be undone.
            Self::BanAll(_) | Self::Reset(_) => return DoubtUndo::Endless,
        };
        let undo = answer.and_then(|answer| self.undo(&answer));
        undo.map_or(DoubtUndo::NotMade, |mut undo| {
            undo.rename(self.name());
            DoubtUndo::Undo(undo)
        })
    }
}

impl ServerState<'_> {
    /// Describes the current state of the rule or key affected by `change`. `None` if that state
    /// has not been read since the change.
    pub fn words(&self, change: &Change) -> Option<String> {
        let edited = |edit: Option<&EditView>| match edit {
            None => "no edit".to_owned(),
            Some(edit) if edit.reason.is_empty() => format!("edited by {}", edit.by),
            Some(edit) => format!("edited by {}: {}", edit.by, edit.reason),
        };
        match (change, self.ban) {
            (Change::Edit(_) | Change::Override(_), _) => {
                let rule = self.rule.filter(|_| self.is_read)?;
                Some(edited(change.edit_in(rule)))
            }
            (_, Seen::Unknown) => None,
            (_, Seen::Read(Some(ban))) => Some(banned(&ban, Some(self.now_ns))),
            (_, Seen::Read(None) | Seen::Gone) => Some("not banned".to_owned()),
        }
    }

    /// Reconstructs the response to a change to the rule `seen`. Returns `None` if the change was
    /// not made: the rule was read after the change, and `own` returns false for it.
    fn edited(&self, seen: &RuleView, own: impl Fn(&RuleView) -> bool) -> Option<Answer> {
        let after = self.rule?;
        (!self.is_read || own(after)).then(|| {
            Answer::Edit(Box::new(EditAnswer {
                before: seen.rule.clone(),
                after: after.clone(),
                change: "in doubt".to_owned(),
                changed: true,
                ..EditAnswer::default()
            }))
        })
    }

    /// Reconstructs the response to a ban or unban. Returns `None` if the key's ban was read after
    /// the change and shows that the change is not in effect.
    fn banned(&self, bans: bool) -> Option<Answer> {
        let ban = match self.ban {
            Seen::Read(ban) => ban,
            Seen::Gone | Seen::Unknown => None,
        };
        let is_own = match self.ban {
            Seen::Unknown => true,
            _ if bans => ban.is_some_and(|ban| ban.by == BanBy::Operator),
            _ => ban.is_none(),
        };
        is_own.then(|| {
            Answer::Ban(Box::new(BanAnswer {
                now_ns: self.now_ns,
                before: self.before.filter(|ban| ban.by != BanBy::Override),
                bucket: ban.map(|ban| BucketView {
                    ban: Some(ban),
                    ..BucketView::default()
                }),
                changed: true,
                fleet: None,
            }))
        })
    }
}
