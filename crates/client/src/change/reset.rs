//! Bucket resets. A reset cannot be undone.

use super::form::KeyPlace;
use super::verb::{Answer, OutcomeText, Question, Verb, key_of_rule};
use crate::command_line::CommandLine;
use crate::{ActRequest, Client, ClientError};

/// Reason recorded for resets made in the terminal app.
const FROM_THE_SCREEN: &str = "from the screen";

/// A reset of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The name of the rule.
    pub rule: String,
    /// The key, formatted as in the bucket list.
    pub key: String,
    /// Reason for the change, as recorded in its events. May be empty.
    pub reason: String,
}

impl Verb for Reset {
    fn rule(&self) -> &str {
        &self.rule
    }

    fn key(&self) -> Option<&str> {
        Some(&self.key)
    }

    fn question(&self) -> Question {
        Question {
            line: format!("Reset {}?", key_of_rule(&self.rule, &self.key)),
            title: format!("Reset the bucket of {}?", self.key),
            detail: vec![
                format!("rule {}", self.rule),
                "It returns to its initial state; requests that wait keep their places. This cannot be undone."
                    .to_owned(),
            ],
        }
    }

    fn command(&self, url: Option<&str>) -> Option<String> {
        let line = CommandLine::new("reset").word(&self.rule).word(&self.key);
        Some(line.because(&self.reason).at(url).text())
    }

    fn send(&self, client: &Client, _dry_run: bool) -> Result<Answer, ClientError> {
        let with = ActRequest {
            reason: self.reason.clone(),
            ..ActRequest::default()
        };
        let answer = client.act(("reset", &self.rule, &self.key), &with)?;
        Ok(Answer::Reset(Box::new(answer)))
    }

    fn outcome(&self, answer: &Answer) -> OutcomeText {
        let (name, key) = (key_of_rule(&self.rule, &self.key), &self.key);
        match answer {
            Answer::Reset(answer) if answer.existed => OutcomeText {
                line: format!("the bucket of {name} was reset; it was:\n"),
                toast: format!("the bucket of {key} was reset"),
            },
            Answer::Reset(_) => OutcomeText {
                line: format!("{name} has no bucket: nothing to reset"),
                toast: format!("{key} has no bucket: nothing to reset"),
            },
            _ => OutcomeText::default(),
        }
    }
}

/// Creates a reset for the bucket at `place`.
pub(super) fn at(place: &KeyPlace) -> Reset {
    Reset {
        rule: place.rule.clone(),
        key: place.key.clone(),
        reason: FROM_THE_SCREEN.to_owned(),
    }
}
