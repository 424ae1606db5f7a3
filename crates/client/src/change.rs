//! A change of live rules, keys or buckets: its question, preview, sending, outcome and undo, and
//! the common rule for conflicts. The command line prints a change as lines, and the screen shows
//! it as form, question and message. `import` sends changes too, but after a conflict it previews
//! again, replaces the edits of others, and reports that.
//!
//! Each kind of change has a file here that implements [`Verb`]. This file lists the kinds.

use loudou_api::{BanAnswer, EditAnswer, RuleView};
use loudou_rules::rule::tried;

use crate::{Client, ClientError};

pub mod ban;
pub mod ban_all;
pub mod ban_undo;
pub mod edit;
pub mod form;
pub mod in_doubt;
pub mod key_override;
pub mod reset;
#[cfg(test)]
mod tests;
pub mod verb;

use ban::{Ban, BanTo};
use ban_all::{BanAll, BanAllUndo};
use ban_undo::{BanUndo, Seen};
use edit::{Edit, EditTo, EditUndo};
use form::{Asked, KeyPlace, Typed, Wrong};
use key_override::{Override, OverrideUndo};
use reset::Reset;
use verb::{Answer, Question, Verb};

/// Maximum number of times that a change is sent again because only the generation had changed.
const MAX_RESENDS: u8 = 16;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An edit of the limits or the mode of a rule.
    Edit(Edit),
    /// An override of the limits of one key.
    Override(Override),
    /// A ban of one key, or the end of the ban.
    Ban(Ban),
    /// A ban of one key in all rules, or its end.
    BanAll(BanAll),
    /// A reset, which gives the key its whole capacity again.
    Reset(Reset),
}

impl Change {
    /// Returns the change as its kind implements it.
    pub fn verb(&self) -> &dyn Verb {
        match self {
            Self::Edit(edit) => edit,
            Self::Override(change) => change,
            Self::Ban(ban) => ban,
            Self::BanAll(all) => all,
            Self::Reset(reset) => reset,
        }
    }

    /// Returns the rule that the operator saw when deciding on the change. `None` if the change
    /// does not depend on the rule.
    pub fn seen(&self) -> Option<&RuleView> {
        match self {
            Self::Edit(edit) => Some(&edit.seen),
            Self::Override(change) => Some(&change.seen),
            Self::Ban(_) | Self::BanAll(_) | Self::Reset(_) => None,
        }
    }

    /// Replaces the rule that the change is based on with the current rule.
    pub fn see(&mut self, now: RuleView) {
        match self {
            Self::Edit(edit) => *edit.seen = now,
            Self::Override(change) => *change.seen = now,
            Self::Ban(_) | Self::BanAll(_) | Self::Reset(_) => {}
        }
    }

    /// Returns this change for another Envoy with these rules, by that server's clock, or the
    /// reason why it is impossible.
    pub fn at_another(&self, rules: &[RuleView], now_ns: u64) -> Result<Self, String> {
        let name = self.verb().rule();
        let named = |name: &str| rules.iter().find(|rule| rule.name == name).cloned();
        let rule = || named(name).ok_or_else(|| format!("there is no rule {name}"));
        match self {
            Self::BanAll(all) => all.at_another(rules).map(Self::BanAll),
            Self::Edit(edit) => {
                // An edit of a trial that does not run at this Envoy starts the trial there.
                let begins = matches!(edit.to, EditTo::Put { .. }) && named(name).is_none();
                let tried = tried(name).filter(|_| begins).and_then(named);
                edit.at_another(tried.map_or_else(rule, Ok)?, now_ns)
                    .map(Self::Edit)
            }
            // The operator saw the ban of another Envoy, so no precondition is sent.
            Self::Ban(ban) => rule().map(|_| {
                Self::Ban(Ban {
                    if_match: None,
                    ..ban.clone()
                })
            }),
            Self::Override(_) | Self::Reset(_) => {
                let mut change = self.clone();
                change.see(rule()?);
                Ok(change)
            }
        }
    }

    /// Returns the state before and after, if a preview is possible.
    pub fn preview(&mut self, client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        self.resend(|change| change.verb().preview(client))
    }

    /// Sends the change, or its dry run.
    pub fn send(&mut self, client: &Client, dry_run: bool) -> Result<Answer, ClientError> {
        self.resend(|change| change.verb().send(client, dry_run))
    }

    /// The common rule for conflicts (HTTP 412). If only the generation has changed, and nothing on
    /// which the change was decided, the change is still valid and is sent again with the new
    /// generation. Otherwise the operator must decide again.
    fn resend<T>(
        &mut self,
        send: impl Fn(&Self) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        for _ in 0..MAX_RESENDS {
            let error = match send(self) {
                Err(error) if error.status() == Some(412) => error,
                answer => return answer,
            };
            match error.current() {
                Some(now) if self.is_as_seen(now) => {
                    self.see(now.clone());
                }
                _ => return Err(error),
            }
        }
        send(self)
    }

    /// Returns true if the operator's decision still fits: the process is the same, and the state
    /// that the operator saw is unchanged. For an edit this is the rule with its edit, for an
    /// override the rule's limits and the override of that key.
    fn is_as_seen(&self, now: &RuleView) -> bool {
        let is_same = |seen: &RuleView| seen.instance == now.instance;
        match self {
            Self::Edit(Edit { seen, .. }) => {
                is_same(seen) && seen.rule == now.rule && seen.edit == now.edit
            }
            Self::Override(Override { seen, key, .. }) => {
                let of = |view: &RuleView| {
                    let edited = view.overrides.iter().find(|edited| edited.key == *key);
                    let gives = view.rule.get("overrides").and_then(|all| all.get(key));
                    let limits = view.rule.get("limits");
                    (limits.cloned(), gives.cloned(), edited.cloned())
                };
                is_same(seen) && of(seen) == of(now)
            }
            Self::Ban(_) | Self::BanAll(_) | Self::Reset(_) => false,
        }
    }

    /// Returns the name of the change in a sentence: `the ban of alice`.
    pub fn name(&self) -> String {
        match self {
            Self::Edit(Edit {
                to: EditTo::Put { .. },
                rule,
                ..
            }) => format!("the edit of {rule}"),
            Self::Edit(Edit { rule, .. }) => format!("the drop of the edit of {rule}"),
            Self::Override(change) => format!("the override of {}", change.key),
            Self::Ban(Ban {
                to: BanTo::Banned(_),
                key,
                ..
            }) => format!("the ban of {key}"),
            Self::Ban(Ban { key, .. }) => format!("the unban of {key}"),
            Self::BanAll(BanAll { of, .. }) => match of.to {
                BanTo::Banned(_) => format!("the ban of {} in all rules", of.key),
                BanTo::Free(_) => format!("the unban of {} in all rules", of.key),
            },
            Self::Reset(reset) => format!("the reset of {}", reset.key),
        }
    }

    /// Returns the affected buckets, by rule and key. Empty if the change affects all keys.
    pub fn buckets(&self) -> Vec<(&str, &str)> {
        if let Self::BanAll(all) = self {
            let bans = all.bans.iter();
            return bans.map(|ban| (&*ban.rule, &*ban.key)).collect();
        }
        let (rule, key) = (self.verb().rule(), self.verb().key());
        key.map(|key| (rule, key)).into_iter().collect()
    }

    /// Returns the bans that this change has set or lifted, with their answers. Empty for other
    /// kinds of changes.
    fn bans<'a>(&'a self, answer: &'a Answer) -> Vec<(&'a Ban, &'a BanAnswer)> {
        match (self, answer) {
            (Self::Ban(ban), Answer::Ban(answer)) => vec![(ban, answer)],
            (Self::BanAll(all), Answer::BanAll(results)) => all.made(results).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the undo, if the change had an effect that can be undone.
    pub fn undo(&self, answer: &Answer) -> Option<Undo> {
        let outcome = self.verb().outcome(answer).toast;
        match self {
            Self::Edit(edit) => EditUndo::new(edit, answer).map(Box::new).map(Undo::Edit),
            Self::Override(change) => {
                OverrideUndo::new(change, answer, &outcome).map(Undo::Override)
            }
            Self::Ban(ban) => match answer {
                Answer::Ban(answer) => BanUndo::new(ban, answer, &outcome).map(Undo::Ban),
                _ => None,
            },
            Self::BanAll(all) => match answer {
                Answer::BanAll(results) => {
                    BanAllUndo::new(all, results, &outcome).map(Undo::BanAll)
                }
                _ => None,
            },
            Self::Reset(_) => None,
        }
    }
}

/// Undo of a change that this program made.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// The undo of an edit of a rule.
    Edit(Box<EditUndo>),
    /// The undo of an override of a key.
    Override(OverrideUndo),
    /// Undo of a ban or unban.
    Ban(BanUndo),
    /// The undo of a ban in all rules, or of its end.
    BanAll(BanAllUndo),
}

impl Undo {
    /// Returns the outcome of the undone change, in one line.
    pub fn change(&self) -> &str {
        match self {
            Self::Edit(undo) => &undo.change,
            Self::Override(undo) => &undo.change,
            Self::Ban(undo) => &undo.change,
            Self::BanAll(undo) => &undo.change,
        }
    }

    /// Replaces the outcome of the change with its name, because it is unknown if the change was
    /// made.
    fn rename(&mut self, name: String) {
        match self {
            Self::Edit(undo) => undo.change = name,
            Self::Override(undo) => undo.change = name,
            Self::Ban(undo) => undo.change = name,
            Self::BanAll(undo) => undo.change = name,
        }
    }

    /// Returns the rule, which is empty for several rules, and the key if the change was for one
    /// key.
    pub fn of(&self) -> (&str, Option<&str>) {
        match self {
            Self::Edit(undo) => (&undo.after.name, None),
            Self::Override(undo) => (&undo.rule, Some(&undo.key)),
            Self::Ban(undo) => (&undo.rule, Some(&undo.key)),
            Self::BanAll(undo) => ("", Some(&undo.key)),
        }
    }

    /// Returns the question before the undo, and the change that performs it. `server_ns` is the
    /// server's clock. `seen` returns the ban of a rule and key that a poll after a given time has
    /// read. Returns `None` if there is nothing to undo any more.
    pub fn ask(
        &self,
        server_ns: u64,
        seen: impl Fn(&str, &str, u64) -> Seen,
    ) -> Option<(Question, Change)> {
        let seen = |undo: &BanUndo| {
            let after_ns = undo.made_at_ns();
            after_ns.map_or(Seen::Unknown, |at| seen(&undo.rule, &undo.key, at))
        };
        Some(match self {
            Self::Edit(undo) => {
                let (question, edit) = undo.ask(server_ns);
                (question, Change::Edit(edit))
            }
            Self::Override(undo) => {
                let (question, change) = undo.ask(server_ns);
                (question, Change::Override(change))
            }
            Self::Ban(undo) => {
                let (question, ban) = undo.ask(server_ns, seen(undo))?;
                (question, Change::Ban(ban))
            }
            Self::BanAll(undo) => {
                let (question, all) = undo.ask(server_ns, &seen)?;
                (question, Change::BanAll(all))
            }
        })
    }

    /// Returns true if this undo sends `change`.
    pub fn sends(&self, change: &Change) -> bool {
        match (self, change) {
            (Self::Edit(undo), Change::Edit(edit)) => undo.after.name == edit.rule,
            (Self::Override(undo), Change::Override(change)) => undo.sends(change),
            (Self::Ban(undo), Change::Ban(ban)) => undo.sends(ban),
            (Self::BanAll(undo), Change::BanAll(all)) => undo.sends(all),
            _ => false,
        }
    }

    /// Removes the parts that `change` has undone. Returns true if no part remains.
    pub fn is_over(&mut self, change: &Change, answer: &Answer) -> bool {
        let Self::BanAll(undo) = self else {
            return true;
        };
        let undone = change.bans(answer);
        let is_undone = |part: &BanUndo| undone.iter().any(|(ban, _)| part.sends(ban));
        undo.undos.retain(|part| !is_undone(part));
        undo.undos.is_empty()
    }

    /// Records that a later ban of the same key was undone, so that this undo's ban is in effect
    /// again. Returns false for a ban of another rule or key.
    fn put_back(&mut self, (ban, answer): (&Ban, &BanAnswer)) -> bool {
        let parts = match self {
            Self::Ban(undo) => std::slice::from_mut(undo),
            Self::BanAll(undo) => undo.undos.as_mut_slice(),
            Self::Edit(_) | Self::Override(_) => &mut [],
        };
        let is_it = |part: &&mut BanUndo| part.rule == ban.rule && part.key == ban.key;
        let part = parts.iter_mut().find(is_it);
        part.map(|part| part.put_back(answer)).is_some()
    }
}

/// Records that `change` has undone a change, so that the earlier bans of the same keys are in
/// effect again. If several of `undos` concern a key, the ban belongs to the last one.
pub fn put_back<'a>(
    undos: impl DoubleEndedIterator<Item = &'a mut Undo>,
    change: &Change,
    answer: &Answer,
) {
    let mut bans = change.bans(answer);
    for undo in undos.rev() {
        bans.retain(|ban| !undo.put_back(*ban));
    }
}

/// A change for one key that the screen can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Gives the key its whole capacity again.
    Reset,
    /// Bans the key, or ends its ban.
    Ban,
    /// Overrides the rule for this key.
    Override,
}

/// The first step of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum FirstStep {
    /// Shows only the question before the change.
    Confirm(Change),
    /// Shows a form, because something must be typed.
    Form(Vec<Asked>),
}

impl Start {
    /// Returns the title of the form, to which the key is added.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Ban => "ban",
            Self::Override => "override of",
        }
    }

    /// Returns true if the change needs the name of the key.
    pub const fn needs_name(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Returns true if the change needs the rule.
    pub const fn needs_rule(self) -> bool {
        matches!(self, Self::Override)
    }

    /// Begins the change for this key, with a form if something must be typed.
    pub fn begin(self, place: &KeyPlace) -> FirstStep {
        match self {
            Self::Reset => FirstStep::Confirm(Change::Reset(reset::at(place))),
            Self::Ban => match ban::lift(place) {
                Some(ban) => FirstStep::Confirm(Change::Ban(ban)),
                None => FirstStep::Form(ban::fields()),
            },
            Self::Override => FirstStep::Form(key_override::fields(place)),
        }
    }

    /// Returns the problem with a combination of values that are each valid.
    pub fn wrong(self, place: &KeyPlace, typed: &Typed) -> Option<Wrong> {
        match self {
            Self::Override => key_override::wrong(place, typed),
            Self::Reset | Self::Ban => None,
        }
    }

    /// Returns the end that the form describes, if it differs from the end of the replaced
    /// override.
    pub fn other_end(self, place: &KeyPlace, typed: &Typed) -> Option<String> {
        match self {
            Self::Override => key_override::other_end(place, typed),
            Self::Reset | Self::Ban => None,
        }
    }

    /// Returns the change that the form describes.
    pub fn of_form(self, place: &KeyPlace, typed: &Typed) -> Option<Change> {
        match self {
            Self::Reset => Some(Change::Reset(reset::at(place))),
            Self::Ban => Some(Change::Ban(ban::of_form(place, typed))),
            Self::Override => key_override::of_form(place, typed).map(Change::Override),
        }
    }
}
