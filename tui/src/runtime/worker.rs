//! The worker's thread: edits, resets and single reads, in the order they were asked for.

use std::sync::mpsc::{Receiver, SyncSender};

use crate::app::effects::{Change, Edit, Effect};
use crate::app::msg::{Failure, Msg};
use crate::app::of_key::{KeyAnswer, KeyChange, What};
use crate::app::rows::BucketId;
use crate::client::{Client, ClientError, DropRequest, EditRequest, OverrideRequest};
use crate::live::Item;
use crate::live::apply::{Done, Target};

/// The reason that goes with resets from the screen.
const RESET_REASON: &str = "from the screen";

/// Does what is asked, until nobody asks any more.
pub(super) fn run(client: &Client, jobs: &Receiver<Effect>, answers: &SyncSender<Msg>) {
    for job in jobs {
        let Some(msg) = work(client, job) else {
            continue;
        };
        if answers.send(msg).is_err() {
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
        Effect::Edit(edit) => Some(send(client, edit)),
        Effect::Reset(id) => {
            let result = client.reset(&id.rule, &id.key, RESET_REASON);
            Some(Msg::Reset(id, result.map(Box::new).map_err(Failure::from)))
        }
        Effect::OfKey(change) => Some(of_key(client, change)),
        Effect::Again(items) => Some(Msg::Again(again(client, items).map_err(Failure::from))),
        Effect::Poll(_) | Effect::Suspend | Effect::Resume => None,
    }
}

/// Applies again what a restart took, one after the other.
fn again(client: &Client, items: Vec<Item>) -> Result<Vec<(Item, Done)>, ClientError> {
    let mut target = Target::read(client, false)?;
    let done = items.into_iter().map(|item| {
        let done = target.apply(&item);
        (item, done)
    });
    Ok(done.collect())
}

fn of_key(client: &Client, change: Box<KeyChange>) -> Msg {
    let KeyChange { id, reason, .. } = change.as_ref();
    let BucketId { rule, key } = id;
    let result = match &change.what {
        What::Ban(span) => client
            .ban(rule, key, *span, reason)
            .map(|answer| KeyAnswer::Ban(Box::new(answer))),
        What::Unban => client
            .unban(rule, key, reason)
            .map(|answer| KeyAnswer::Ban(Box::new(answer))),
        What::Override {
            body,
            expires_after,
            seen,
        } => {
            let request = OverrideRequest {
                body: body.clone(),
                if_match: seen.etag(),
                expires_after: *expires_after,
                reason: reason.clone(),
                dry_run: false,
            };
            let answer = client.set_override(rule, key, &request);
            answer.map(|answer| KeyAnswer::Override(Box::new(answer)))
        }
    };
    Msg::OfKey(change, result.map_err(Failure::from))
}

fn send(client: &Client, edit: Box<Edit>) -> Msg {
    let if_match = edit.seen.etag();
    let (carry, reason) = (edit.carry, edit.reason.clone());
    let result = match &edit.change {
        Change::Put {
            body,
            expires_after,
        } => {
            let request = EditRequest {
                body: body.clone(),
                if_match,
                carry,
                expires_after: *expires_after,
                reason,
                dry_run: false,
            };
            client.put_rule(&edit.rule, &request)
        }
        Change::Drop => {
            let request = DropRequest {
                if_match,
                carry,
                reason,
            };
            client.delete_rule(&edit.rule, &request)
        }
    };
    Msg::Edited(edit, result.map(Box::new).map_err(Failure::from))
}
