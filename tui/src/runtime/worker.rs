//! The worker's thread: changes and single reads, in the order of the requests.

use std::sync::mpsc::Receiver;

use super::inbox::Outbox;
use crate::app::effects::Effect;
use crate::app::msg::{Failure, Msg};
use crate::client::{Client, ClientError};
use crate::live::Item;
use crate::live::apply::{Done, Target};

/// Carries out jobs until there are no more senders.
pub(super) fn run(client: &Client, jobs: &Receiver<Effect>, answers: &Outbox) {
    for job in jobs {
        let Some(msg) = work(client, job) else {
            continue;
        };
        if !answers.send(msg) {
            return;
        }
    }
}

fn work(client: &Client, job: Effect) -> Option<Msg> {
    match job {
        Effect::ReadRule(rule) => {
            let result = client.rule(&rule).map(Box::new).map_err(Failure::from);
            Some(Msg::RuleRead(rule, result))
        }
        Effect::Change(mut sending) => {
            let result = sending.change.send(client, false);
            Some(Msg::Changed(sending, result.map_err(Failure::from)))
        }
        Effect::Explain(request) => {
            let result = client.explain(&request).map(Box::new);
            Some(Msg::Explained(result.map_err(Failure::from)))
        }
        Effect::Again(items) => Some(Msg::Again(again(client, items).map_err(Failure::from))),
        // Not for this thread.
        Effect::Poll(_)
        | Effect::ChangeAll(_)
        | Effect::Play(_)
        | Effect::Copy(_)
        | Effect::Suspend
        | Effect::Resume => None,
    }
}

/// Applies the changes lost in a restart again.
fn again(client: &Client, items: Vec<Item>) -> Result<Vec<(Item, Done)>, ClientError> {
    let mut target = Target::read(client, false)?;
    let done = target.apply_all(items.iter());
    Ok(items.into_iter().zip(done).collect())
}
