//! The threads of each Envoy: a poller, and a worker for changes and single reads.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use super::inbox::{Inbound, Outbox, spawn};
use super::{Clients, poller, worker};
use crate::app::effects::{Effect, PollRequest};
use crate::client::Client;
use crate::clock::Clock;

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
        let Clients { polling, changing } = clients;
        let poller = spawn_poller(polling, clock, messages, number)?;
        let answers = Outbox::new(messages, Some(number));
        let (worker, jobs) = sync_channel(JOBS);
        spawn("worker", messages, move || {
            worker::run(&changing, &jobs, &answers);
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
