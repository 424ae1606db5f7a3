//! Bans and unbans of one key in all rules. The client sends one request per rule, one after
//! another, and collects the results.

use loudou_api::{BanAnswer, RuleView};
use loudou_rules::config::parse_rule;
use loudou_rules::rule::{Impossible, Mode, tried};

use super::ban::{Ban, BanTo, how_long};
use super::ban_undo::{BanUndo, Seen};
use super::verb::{Answer, OutcomeText, Question, Verb, reason_line};
use crate::command_line::CommandLine;
use crate::{Client, ClientError};
use loudou_words::num::count;
use loudou_words::text::{counted, escape, humanise};

/// Maximum number of rules that a message lists by name.
const MAX_NAMED: usize = 8;

/// A ban or an unban of a key in several rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanAll {
    /// The ban that the operator requested, with an empty rule name.
    pub of: Ban,
    /// The bans to send, one per rule. There is at least one.
    pub bans: Vec<Ban>,
    /// Rules that are left out because they are not in enforce mode, so a ban would not cause any
    /// requests to be refused.
    pub off: Vec<String>,
    /// True if `bans` covers every rule in which a request can have the key. False for an undo, which covers only the
    /// rules affected by the change.
    pub is_whole: bool,
}

impl BanAll {
    /// Creates a ban in all rules in which a request can have the key. Returns the reason if there
    /// are no such rules. Rules with a single bucket for all requests are left out.
    pub fn new(of: &Ban, rules: &[RuleView]) -> Result<Self, String> {
        let of = Ban {
            rule: String::new(),
            if_match: None,
            ..of.clone()
        };
        let (mut bans, mut off, mut impossible) = (Vec::new(), Vec::new(), None);
        // Trials never refuse requests.
        for view in rules.iter().filter(|rule| tried(&rule.name).is_none()) {
            // If this version cannot parse the rule, send the ban anyway and let the filter accept
            // or reject it.
            if let Ok(rule) = parse_rule(&view.rule) {
                if rule.key.is_empty() {
                    continue;
                }
                if let Err(why) = rule.may_have(&of.key, false) {
                    impossible.get_or_insert((view.name.as_str(), why));
                    continue;
                }
                if rule.mode != Mode::Enforce && matches!(of.to, BanTo::Banned(_)) {
                    off.push(view.name.clone());
                    continue;
                }
            }
            bans.push(Ban {
                rule: view.name.clone(),
                ..of.clone()
            });
        }
        if bans.is_empty() {
            return Err(no_rule(&of.key, &off, impossible));
        }
        Ok(Self {
            of,
            bans,
            off,
            is_whole: true,
        })
    }

    /// Adapts this ban to the rules of another Envoy.
    pub(super) fn at_another(&self, rules: &[RuleView]) -> Result<Self, String> {
        if self.is_whole {
            Self::new(&self.of, rules)
        } else {
            Err("it is not known what to undo there".to_owned())
        }
    }

    /// Returns a note listing the rules that were left out, if any.
    pub fn left_out(&self) -> Option<String> {
        let off: Vec<&str> = self.off.iter().map(String::as_str).collect();
        (!off.is_empty()).then(|| format!("left out, not in mode enforce: {}", listed(&off)))
    }

    /// Describes the affected rules, for example `in all 3 rules`.
    fn places(&self) -> String {
        let rules = counted(count(self.bans.len()), "rule");
        let all = if self.is_whole && self.bans.len() > 1 {
            "all "
        } else {
            ""
        };
        format!("in {all}{rules}")
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.bans.iter().map(|ban| ban.rule.as_str()).collect();
        listed(&names)
    }

    /// Returns the successful bans, each with the server's response.
    pub(super) fn made<'a>(
        &'a self,
        results: &'a [Result<BanAnswer, ClientError>],
    ) -> impl Iterator<Item = (&'a Ban, &'a BanAnswer)> {
        let pairs = self.bans.iter().zip(results);
        pairs.filter_map(|(ban, result)| Some((ban, result.as_ref().ok()?)))
    }

    /// Describes the outcome when the requests for all rules have succeeded.
    fn done(&self, answers: &[&BanAnswer]) -> String {
        let (key, places) = (&self.of.key, self.places());
        let unchanged = answers.iter().filter(|answer| !answer.changed).count();
        let is_mixed = self.bans.iter().any(|ban| {
            matches!(ban.to, BanTo::Banned(_)) != matches!(self.of.to, BanTo::Banned(_))
        });
        match self.of.to {
            _ if is_mixed => format!("the bans of {key} are as before {places}"),
            BanTo::Banned(_) if unchanged == answers.len() => {
                format!("{key} is already banned {places}; nothing was changed")
            }
            BanTo::Banned(span) => {
                let span = span.map(|span| format!(" for {}", humanise(span.get())));
                let longer = match unchanged {
                    0 => String::new(),
                    some => format!(", in {some} already for longer"),
                };
                format!(
                    "{key} is banned {places}{}{longer}",
                    span.unwrap_or_default()
                )
            }
            BanTo::Free(_) if answers.iter().all(|answer| answer.before.is_none()) => {
                format!("{key} was not banned {places}")
            }
            BanTo::Free(_) => format!("{key} is no longer banned {places}"),
        }
    }
}

/// Explains why the key cannot be banned in any rule.
fn no_rule(key: &str, off: &[String], impossible: Option<(&str, Impossible)>) -> String {
    let key = escape(key);
    if !off.is_empty() {
        let off: Vec<&str> = off.iter().map(String::as_str).collect();
        return format!(
            "a ban of {key} would have no effect: no rule with this key is in mode enforce ({}); set the mode of one",
            escape(&listed(&off))
        );
    }
    let Some((rule, Impossible { why, meant })) = impossible else {
        return format!("nothing to ban {key} in: no rule has keys, each has one bucket for all");
    };
    let meant = meant.map(|meant| format!("; did you mean `{}`?", escape(&meant)));
    format!(
        "no request has the key {key} in any rule; in {}: {}{}",
        escape(rule),
        escape(&why),
        meant.unwrap_or_default()
    )
}

/// Formats a list of names, for example `a, b, c and 12 more`.
fn listed(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().copied().take(MAX_NAMED).collect();
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

impl Verb for BanAll {
    /// Returns an empty string, because the change affects several rules.
    fn rule(&self) -> &str {
        &self.of.rule
    }

    fn key(&self) -> Option<&str> {
        Some(&self.of.key)
    }

    fn question(&self) -> Question {
        let places = self.places();
        let ask = |key: &str, names: &str| match self.of.to {
            BanTo::Banned(span) => format!("Ban {key} {places}{names} {}?", how_long(span)),
            BanTo::Free(_) => format!("Unban {key} {places}{names}?"),
        };
        let names = self.names();
        let mut detail = vec![format!("rules: {names}")];
        detail.extend(self.left_out());
        detail.extend(reason_line(&self.of.reason));
        Question {
            line: ask(&escape(&self.of.key), &format!(" ({})", escape(&names))),
            title: ask(&self.of.key, ""),
            detail,
        }
    }

    fn command(&self, url: Option<&str>) -> Option<String> {
        if !self.is_whole {
            return None;
        }
        let of = &self.of;
        let line = |verb| CommandLine::new(verb).option("--all-rules", &of.key);
        let line = match of.to {
            BanTo::Banned(span) if of.replaces => line("ban").flag("--replace").lasting(span),
            BanTo::Banned(span) => line("ban").lasting(span),
            BanTo::Free(_) => line("unban"),
        };
        Some(line.because(&of.reason).at(url).text())
    }

    /// Sends all bans. If one fails, the remaining ones are still sent.
    fn send(&self, client: &Client, _dry_run: bool) -> Result<Answer, ClientError> {
        let results = self.bans.iter().map(|ban| ban.act(client)).collect();
        Ok(Answer::BanAll(results))
    }

    fn outcome(&self, answer: &Answer) -> OutcomeText {
        let Answer::BanAll(results) = answer else {
            return OutcomeText::default();
        };
        let answers: Vec<&BanAnswer> = self.made(results).map(|(_, answer)| answer).collect();
        let pairs = self.bans.iter().zip(results);
        let failed = pairs.filter_map(|(ban, result)| Some((&ban.rule, result.as_ref().err()?)));
        let failed: Vec<(&String, &ClientError)> = failed.collect();
        let Some((rule, error)) = failed.first() else {
            let toast = self.done(&answers);
            return OutcomeText {
                line: escape(&toast).into_owned(),
                toast,
            };
        };
        let (done, all) = (answers.len(), counted(count(self.bans.len()), "rule"));
        let verb = match self.of.to {
            _ if !self.is_whole => "undone",
            BanTo::Banned(_) => "banned",
            BanTo::Free(_) => "unbanned",
        };
        let more = match failed.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let names: Vec<&str> = failed.iter().map(|(rule, _)| rule.as_str()).collect();
        OutcomeText {
            line: format!(
                "done in {done} of {all}; failed in {}",
                escape(&listed(&names))
            ),
            toast: format!(
                "{}: {verb} in {done} of {all}; {rule}: {error}{more}",
                self.of.key
            ),
        }
    }
}

/// An undo for a ban or unban in several rules. Covers only the rules in which the ban changed.
#[derive(Clone, Debug, PartialEq)]
pub struct BanAllUndo {
    pub(super) key: String,
    pub(super) undos: Vec<BanUndo>,
    /// One-line outcome of the change.
    pub(super) change: String,
}

impl BanAllUndo {
    /// Returns an undo for `change`, or `None` if there is nothing to undo.
    pub(super) fn new(
        change: &BanAll,
        results: &[Result<BanAnswer, ClientError>],
        outcome: &str,
    ) -> Option<Self> {
        let made = change.made(results);
        let undos = made.filter_map(|(ban, answer)| BanUndo::new(ban, answer, outcome));
        let undos: Vec<BanUndo> = undos.collect();
        (!undos.is_empty()).then(|| Self {
            key: change.of.key.clone(),
            undos,
            change: outcome.to_owned(),
        })
    }

    /// Returns true if `change` was created by this undo.
    pub(super) fn sends(&self, change: &BanAll) -> bool {
        let mut bans = change.bans.iter();
        !change.is_whole && bans.any(|ban| self.undos.iter().any(|undo| undo.sends(ban)))
    }

    /// Returns the change that performs the undo, and the confirmation question to ask before
    /// sending it. Returns `None` if there is nothing left to undo.
    pub(super) fn ask(
        &self,
        server_ns: u64,
        seen: &dyn Fn(&BanUndo) -> Seen,
    ) -> Option<(Question, BanAll)> {
        let (mut bans, mut since) = (Vec::new(), Vec::new());
        for undo in &self.undos {
            let seen = seen(undo);
            let Some((_, ban)) = undo.ask(server_ns, seen) else {
                continue;
            };
            since.extend(
                undo.since(server_ns, seen)
                    .map(|now| format!("{}: {now}", ban.rule)),
            );
            bans.push(ban);
        }
        let all = BanAll {
            of: Ban {
                rule: String::new(),
                if_match: None,
                ..bans.first()?.clone()
            },
            bans,
            off: Vec::new(),
            is_whole: false,
        };
        let title = match since.len() {
            0 => format!("Undo the last change for {} {}?", self.key, all.places()),
            some => format!(
                "The ban of {} has since been changed in {}. Undo anyway?",
                self.key,
                counted(count(some), "rule")
            ),
        };
        let mut detail = vec![
            format!("change: {}", self.change),
            format!("rules: {}", all.names()),
        ];
        let more = since.len().saturating_sub(MAX_NAMED);
        detail.extend(since.into_iter().take(MAX_NAMED));
        detail.extend((more > 0).then(|| format!("and {more} more")));
        let question = Question {
            title,
            detail,
            ..Question::default()
        };
        Some((question, all))
    }
}
