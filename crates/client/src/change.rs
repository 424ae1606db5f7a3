//! Changes to live rules, keys and buckets: confirmation question, preview, sending, outcome, undo,
//! and shared conflict handling. The command line prints a change as plain text. The terminal app
//! presents it as a form, a confirmation question and an outcome message. `import` sends changes
//! too, but after a conflict it previews the change again, overwrites other operators' edits, and
//! reports that it did so.
//!
//! Each kind of change is defined in its own submodule and implements [`Verb`]. The [`Change`] enum
//! has one variant per kind.

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

/// Maximum number of retries after conflicts in which only the generation has changed.
const MAX_RESENDS: u8 = 16;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Edits the limits or the mode of a rule.
    Edit(Edit),
    /// Overrides the limits of one key.
    Override(Override),
    /// Bans or unbans a key in one rule.
    Ban(Ban),
    /// Bans or unbans a key in all rules.
    BanAll(BanAll),
    /// Resets a bucket, which restores the key's full capacity.
    Reset(Reset),
}

impl Change {
    /// Returns the change as a trait object.
    pub fn verb(&self) -> &dyn Verb {
        match self {
            Self::Edit(edit) => edit,
            Self::Override(change) => change,
            Self::Ban(ban) => ban,
            Self::BanAll(all) => all,
            Self::Reset(reset) => reset,
        }
    }

    /// Returns the rule as the operator saw it when deciding to make the change. `None` if the
    /// change does not depend on the rule's state.
    pub fn seen(&self) -> Option<&RuleView> {
        match self {
            Self::Edit(edit) => Some(&edit.seen),
            Self::Override(change) => Some(&change.seen),
            Self::Ban(_) | Self::BanAll(_) | Self::Reset(_) => None,
        }
    }

    /// Replaces the rule state on which the change is based with the current state.
    pub fn see(&mut self, now: RuleView) {
        match self {
            Self::Edit(edit) => *edit.seen = now,
            Self::Override(change) => *change.seen = now,
            Self::Ban(_) | Self::BanAll(_) | Self::Reset(_) => {}
        }
    }

    /// Adapts this change to another Envoy, which runs these rules. `now_ns` is that Envoy's clock.
    /// Returns the reason if the change cannot be made there.
    pub fn at_another(&self, rules: &[RuleView], now_ns: u64) -> Result<Self, String> {
        let name = self.verb().rule();
        let named = |name: &str| rules.iter().find(|rule| rule.name == name).cloned();
        let rule = || named(name).ok_or_else(|| format!("there is no rule {name}"));
        match self {
            Self::BanAll(all) => all.at_another(rules).map(Self::BanAll),
            Self::Edit(edit) => {
                // If the other Envoy does not run the trial, editing the trial starts it there.
                let begins = matches!(edit.to, EditTo::Put { .. }) && named(name).is_none();
                let tried = tried(name).filter(|_| begins).and_then(named);
                edit.at_another(tried.map_or_else(rule, Ok)?, now_ns)
                    .map(Self::Edit)
            }
            // The operator saw the ban on a different Envoy, so the request has no precondition.
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

    /// Returns the rule before and after the change, or `None` if this kind of change cannot be
    /// previewed.
    pub fn preview(&mut self, client: &Client) -> Result<Option<EditAnswer>, ClientError> {
        self.resend(|change| change.verb().preview(client))
    }

    /// Sends the change. If `dry_run` is set, the server validates the change without applying it.
    pub fn send(&mut self, client: &Client, dry_run: bool) -> Result<Answer, ClientError> {
        self.resend(|change| change.verb().send(client, dry_run))
    }

    /// Sends the request for any kind of change, and handles conflicts (HTTP 412). If the
    /// generation has changed, but nothing the operator's decision depends on has, the change is
    /// sent again with the new generation. Otherwise, the operator must decide again.
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

    /// Returns true if the operator's decision is still valid: Envoy has not restarted, and the
    /// state that the operator saw is unchanged. For an edit, that state consists of the rule and
    /// its current edit. For an override, it consists of the rule's limits and the key's current
    /// override.
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

    /// Returns a noun phrase for the change, for use in a sentence: `the ban of alice`.
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

    /// Returns the affected buckets as (rule, key) pairs. Empty if the change affects all keys of a
    /// rule.
    pub fn buckets(&self) -> Vec<(&str, &str)> {
        if let Self::BanAll(all) = self {
            let bans = all.bans.iter();
            return bans.map(|ban| (&*ban.rule, &*ban.key)).collect();
        }
        let (rule, key) = (self.verb().rule(), self.verb().key());
        key.map(|key| (rule, key)).into_iter().collect()
    }

    /// Returns the successful bans and unbans in this change, each with the server's response.
    /// Empty for other kinds of change.
    fn bans<'a>(&'a self, answer: &'a Answer) -> Vec<(&'a Ban, &'a BanAnswer)> {
        match (self, answer) {
            (Self::Ban(ban), Answer::Ban(answer)) => vec![(ban, answer)],
            (Self::BanAll(all), Answer::BanAll(results)) => all.made(results).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns an undo, if the change had an effect that can be undone.
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

/// An undo for a change made by this program.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// Undoes an edit of a rule.
    Edit(Box<EditUndo>),
    /// Undoes an override of a key.
    Override(OverrideUndo),
    /// Undoes a ban or unban in one rule.
    Ban(BanUndo),
    /// Undoes a ban or unban in all rules.
    BanAll(BanAllUndo),
}

impl Undo {
    /// Returns the one-line outcome of the change to be undone.
    pub fn change(&self) -> &str {
        match self {
            Self::Edit(undo) => &undo.change,
            Self::Override(undo) => &undo.change,
            Self::Ban(undo) => &undo.change,
            Self::BanAll(undo) => &undo.change,
        }
    }

    /// Replaces the outcome of the change with its name, because it is unknown whether the change
    /// was applied.
    fn rename(&mut self, name: String) {
        match self {
            Self::Edit(undo) => undo.change = name,
            Self::Override(undo) => undo.change = name,
            Self::Ban(undo) => undo.change = name,
            Self::BanAll(undo) => undo.change = name,
        }
    }

    /// Returns the rule and the key of the change. The rule is empty if the change affected several
    /// rules. The key is `None` if the change affected all keys.
    pub fn of(&self) -> (&str, Option<&str>) {
        match self {
            Self::Edit(undo) => (&undo.after.name, None),
            Self::Override(undo) => (&undo.rule, Some(&undo.key)),
            Self::Ban(undo) => (&undo.rule, Some(&undo.key)),
            Self::BanAll(undo) => ("", Some(&undo.key)),
        }
    }

    /// Returns the change that performs the undo, and the confirmation question to ask before
    /// sending it. `server_ns` is the server's clock. `seen` takes a rule, a key and a time, and
    /// returns the key's ban as seen by a poll after that time. Returns `None` if there is nothing
    /// left to undo.
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

    /// Returns true if `change` was created by this undo.
    pub fn sends(&self, change: &Change) -> bool {
        match (self, change) {
            (Self::Edit(undo), Change::Edit(edit)) => undo.after.name == edit.rule,
            (Self::Override(undo), Change::Override(change)) => undo.sends(change),
            (Self::Ban(undo), Change::Ban(ban)) => undo.sends(ban),
            (Self::BanAll(undo), Change::BanAll(all)) => undo.sends(all),
            _ => false,
        }
    }

    /// Removes the parts of this undo that `change` has already performed. Returns true if no parts
    /// remain.
    pub fn is_over(&mut self, change: &Change, answer: &Answer) -> bool {
        let Self::BanAll(undo) = self else {
            return true;
        };
        let undone = change.bans(answer);
        let is_undone = |part: &BanUndo| undone.iter().any(|(ban, _)| part.sends(ban));
        undo.undos.retain(|part| !is_undone(part));
        undo.undos.is_empty()
    }

    /// Records that a later change to the same key was undone, so the ban that this undo reverts is
    /// in effect again. Returns false if the later change affected another rule or key.
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

/// Records that `change` has undone another change, so earlier bans of the same keys are in effect
/// again. If several `undos` affect the same key, the restored ban is assigned to the last one.
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

/// A change to one key that a user can start in the terminal app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Restores the key's full capacity.
    Reset,
    /// Bans the key, or lifts its ban.
    Ban,
    /// Overrides the rule's limits for this key.
    Override,
}

/// The first step of a change in the terminal app.
#[derive(Clone, Debug, PartialEq)]
pub enum FirstStep {
    /// Asks for confirmation. No further input is needed.
    Confirm(Change),
    /// Shows a form, because the change needs input.
    Form(Vec<Asked>),
}

impl Start {
    /// Returns the title of the form. The caller appends the key.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Ban => "ban",
            Self::Override => "override of",
        }
    }

    /// Returns true if the change requires the key's name to be known.
    pub const fn needs_name(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Returns true if the change requires the rule to be known.
    pub const fn needs_rule(self) -> bool {
        matches!(self, Self::Override)
    }

    /// Starts the change for this key, showing a form if the change needs input.
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

    /// Returns an error if the values are valid individually but not when combined.
    pub fn wrong(self, place: &KeyPlace, typed: &Typed) -> Option<Wrong> {
        match self {
            Self::Override => key_override::wrong(place, typed),
            Self::Reset | Self::Ban => None,
        }
    }

    /// Describes how the expiry in the form differs from the expiry of the override being replaced,
    /// if it does.
    pub fn other_end(self, place: &KeyPlace, typed: &Typed) -> Option<String> {
        match self {
            Self::Override => key_override::other_end(place, typed),
            Self::Reset | Self::Ban => None,
        }
    }

    /// Creates the change from the values in the form.
    pub fn of_form(self, place: &KeyPlace, typed: &Typed) -> Option<Change> {
        match self {
            Self::Reset => Some(Change::Reset(reset::at(place))),
            Self::Ban => Some(Change::Ban(ban::of_form(place, typed))),
            Self::Override => key_override::of_form(place, typed).map(Change::Override),
        }
    }
}
