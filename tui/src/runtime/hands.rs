//! The threads of each Envoy: a poller, and a worker for changes and single reads.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use crate::app::effects::{Effect, PollRequest};
use crate::app::msg::{Failure, Msg};
use crate::client::{Client, ClientError};
use crate::clock::Clock;
use crate::live::Item;
use crate::live::apply::{Done, Target};
use crate::runtime::inbox::{Inbound, Outbox, spawn};
use crate::runtime::{Clients, poller};

/// The most changes and single reads queued for the worker.
const JOBS: usize = 8;

/// The threads that carry out effects.
pub(super) struct Hands {
    poller: SyncSender<PollRequest>,
    worker: SyncSender<Effect>,
}

impl Hands {
    pub(super) fn start(
        clients: Clients,
        clock: Clock,
        messages: &SyncSender<Inbound>,
        number: usize,
    ) -> anyhow::Result<Self> {
        let Clients {
            polling, changing, ..
        } = clients;
        let poller = spawn_poller(polling, clock, messages, number)?;
        let answers = Outbox::new(messages, Some(number));
        let (worker, jobs) = sync_channel(JOBS);
        spawn("worker", messages, move || {
            work_off(&changing, &jobs, &answers);
        })?;
        Ok(Self { poller, worker })
    }

    /// Hands an effect to its thread without waiting; false if there is no room for it.
    pub(super) fn start_effect(&self, effect: Effect) -> bool {
        match effect {
            Effect::Poll(request) => match self.poller.try_send(request) {
                Ok(()) => true,
                // A thread that ended reports that itself.
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            },
            effect => self.worker.try_send(effect).is_ok(),
        }
    }
}

/// Starts the poller of an Envoy, which polls once per request.
pub(super) fn spawn_poller(
    client: Client,
    clock: Clock,
    messages: &SyncSender<Inbound>,
    number: usize,
) -> anyhow::Result<SyncSender<PollRequest>> {
    let answers = Outbox::new(messages, Some(number));
    let (poller, requests) = sync_channel(1);
    spawn("poller", messages, move || {
        poller::run(&client, clock, &requests, &answers);
    })?;
    Ok(poller)
}

/// Carries out jobs until there are no more senders.
fn work_off(client: &Client, jobs: &Receiver<Effect>, answers: &Outbox) {
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
