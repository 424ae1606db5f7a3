//! Bans and unbans of keys.

use loudou_api::{BanAnswer, BanBy, BanView};
use loudou_limiter::Nanos;

use super::form::{Asked, KeyPlace, Prompt, Typed};
use super::verb::{Answer, OutcomeText, Question, Verb, details, key_of_rule};
use crate::command_line::CommandLine;
use crate::{ActRequest, Client, ClientError};
use loudou_words::meaning::banned;
use loudou_words::text::humanise;

/// Default ban duration in the form.
pub const USUAL: Nanos = Nanos::from_secs(600);

/// A ban or an unban of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The name of the rule.
    pub rule: String,
    /// The key, formatted as in the bucket list.
    pub key: String,
    /// State of the key after the change.
    pub to: BanTo,
    /// True if the ban also replaces an existing ban that would end later.
    pub replaces: bool,
    /// `ETag` of the ban that the operator saw when making the decision, if known.
    pub if_match: Option<String>,
    /// Reason for the change, as recorded in its events. May be empty.
    pub reason: String,
}

/// State of a key after a ban or unban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanTo {
    /// Banned for this duration, or until an operator unbans the key.
    Banned(Option<Nanos>),
    /// Not banned. Contains the origin of the lifted ban, if known.
    Free(Option<BanBy>),
}

impl Verb for Ban {
    fn rule(&self) -> &str {
        &self.rule
    }

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }

    fn question(&self) -> Question {
        let ask = |key: &str| match self.to {
            BanTo::Banned(span) => format!("Ban {key} {}?", how_long(span)),
            BanTo::Free(_) => format!("Unban {key}?"),
        };
        let mut detail = details(&self.rule, &self.reason);
        if let BanTo::Free(Some(by)) = self.to {
            detail.push(forgotten(by).to_owned());
        }
        Question {
            line: ask(&key_of_rule(&self.rule, &self.key)),
            title: ask(&self.key),
            detail,
        }
    }

    fn command(&self, url: Option<&str>) -> Option<String> {
        let (verb, span) = match self.to {
            BanTo::Banned(span) => ("ban", span),
            BanTo::Free(_) => ("unban", None),
        };
        let line = CommandLine::new(verb).word(&self.rule).word(&self.key);
        let line = if self.replaces && verb == "ban" {
            line.flag("--replace")
        } else {
            line
        };
        Some(line.lasting(span).because(&self.reason).at(url).text())
    }

    fn send(&self, client: &Client, _dry_run: bool) -> Result<Answer, ClientError> {
        Ok(Answer::Ban(Box::new(self.act(client)?)))
    }

    fn outcome(&self, answer: &Answer) -> OutcomeText {
        let Answer::Ban(answer) = answer else {
            return OutcomeText::default();
        };
        let (name, key) = (key_of_rule(&self.rule, &self.key), &self.key);
        match self.to {
            BanTo::Banned(_) if !answer.changed => {
                let state = already_banned(answer);
                OutcomeText {
                    line: format!("{name} {state}; nothing was changed (--replace shortens a ban)"),
                    toast: format!("{key} {state}; nothing was changed"),
                }
            }
            BanTo::Banned(span) => OutcomeText {
                line: format!("{name} is banned {}", how_long(span)),
                toast: match span {
                    None => format!("{key} is banned"),
                    Some(span) => format!("{key} is banned for {}", humanise(span.get())),
                },
            },
            BanTo::Free(_) => OutcomeText {
                line: lifted(&name, answer),
                toast: if answer.before.is_none() {
                    format!("{key} was not banned")
                } else {
                    format!("{key} is no longer banned")
                },
            },
        }
    }
}

impl Ban {
    /// Sends the change once.
    pub(super) fn act(&self, client: &Client) -> Result<BanAnswer, ClientError> {
        let (action, span) = match self.to {
            BanTo::Banned(span) => ("ban", span),
            BanTo::Free(_) => ("unban", None),
        };
        let with = ActRequest {
            span,
            replaces: self.replaces && action == "ban",
            if_match: self.if_match.clone(),
            reason: self.reason.clone(),
        };
        client.act((action, &self.rule, &self.key), &with)
    }
}

/// Describes an existing ban, for example `is already banned by an operator for 59m more`.
fn already_banned(answer: &BanAnswer) -> String {
    let ban = answer.bucket.as_ref().and_then(|bucket| bucket.ban);
    let ban = ban.map_or_else(
        || "banned".to_owned(),
        |ban| banned(&ban, Some(answer.now_ns)),
    );
    format!("is already {ban}")
}

pub(super) fn how_long(span: Option<Nanos>) -> String {
    match span {
        None => "until unbanned".to_owned(),
        Some(span) => format!("for {span}"),
    }
}

const fn forgotten(by: BanBy) -> &'static str {
    match by {
        BanBy::Penalty => "Its penalties will be cleared.",
        BanBy::Operator | BanBy::Override => "Refusals that count towards a ban will be cleared.",
    }
}

fn lifted(name: &str, answer: &BanAnswer) -> String {
    let bucket = answer.bucket.as_ref();
    let still = bucket.is_some_and(|bucket| bucket.ban.is_some());
    match (&answer.before, still) {
        (_, true) => format!("the ban of {name} is lifted, but an override still bans it"),
        (Some(_), false) => format!("{name} is no longer banned"),
        (None, false) => format!("{name} was not banned"),
    }
}

/// Returns an unban for the bucket's key, if the key has a ban that can be lifted.
pub(super) fn lift(place: &KeyPlace) -> Option<Ban> {
    let ban = place.bucket.as_ref()?.ban?;
    (ban.by != BanBy::Override).then(|| Ban {
        rule: place.rule.clone(),
        key: place.key.clone(),
        to: BanTo::Free(Some(ban.by)),
        replaces: false,
        if_match: Some(BanView::etag(Some(ban))),
        reason: String::new(),
    })
}

/// Returns the fields of the ban form.
pub(super) fn fields() -> Vec<Asked> {
    vec![
        Asked::time(Prompt::Lasts, &USUAL.to_string()),
        Asked::text(Prompt::Reason),
    ]
}

/// Creates the ban from the values in the form.
pub(super) fn of_form(place: &KeyPlace, typed: &Typed) -> Ban {
    Ban {
        rule: place.rule.clone(),
        key: place.key.clone(),
        to: BanTo::Banned(Nanos::parse(typed.get(Prompt::Lasts))),
        replaces: false,
        if_match: None,
        reason: typed.get(Prompt::Reason).to_owned(),
    }
}
