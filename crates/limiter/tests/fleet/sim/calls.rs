//! Calls of workers to the engine, and their answers.

use loudou_limiter::Nanos;
use loudou_limiter::lease::{Demand, Held, Phase, TokenRequest};

use super::{Call, Event, Fleet, MS};
use crate::engine::Health;

/// Maximum time without a call.
const HEARTBEAT: u64 = 1_000 * MS;

impl Fleet<'_> {
    /// Sends the next call of a worker, if keys need tokens and no call is in flight.
    pub(super) fn pump(&mut self, envoy: usize, worker: usize) {
        let now = Nanos::new(self.now);
        let of = &mut self.envoys[envoy].workers[worker];
        if of.call.is_some() || !of.breaker.may_call(now) {
            return;
        }
        // The worker must notice when the engine is back, even if everything is denied. A probe has
        // no keys.
        if of.breaker.is_open() {
            return self.send(envoy, worker, None);
        }
        let is_probe = of.called + HEARTBEAT < self.now;
        let mut held = Held::default();
        for request in of.held.iter_mut().filter(|request| !request.is_asked) {
            request.is_asked = true;
            held.least = if held.units == 0 {
                request.cost
            } else {
                held.least.min(request.cost)
            };
            held.units += request.cost;
        }
        let ask = self.lease(envoy, |lease, terms| {
            let is_due = held.units > 0 || lease.is_due(terms, now);
            is_due.then(|| lease.request(terms, held, now)).flatten()
        });
        if ask.is_some() || is_probe {
            self.send(envoy, worker, ask);
        }
    }

    fn send(&mut self, envoy: usize, worker: usize, ask: Option<TokenRequest>) {
        let (network, timeout) = (self.setup.network, self.setup.settings.timeout.get());
        let edition = self.envoys[envoy].edition;
        let number = self.calls.len();
        self.calls.push(Call {
            envoy,
            worker,
            ask,
            edition,
            is_in_time: false,
            answer: None,
        });
        self.run.calls += 1;
        let of = &mut self.envoys[envoy].workers[worker];
        (of.call, of.called) = (Some(number), self.now);
        let there = 100_000 + self.random.below(MS);
        let back = 100_000 + self.random.below(MS);
        let slow = if self.random.happens(network.slow) {
            self.random.below(4 * timeout)
        } else {
            0
        };
        let is_reset = self.random.happens(network.resets) || worker < self.setup.refused;
        let is_lost = self.random.happens(network.lost_calls);
        let fails = is_reset || self.engine.health == Health::Refuses;
        if !is_lost && !fails {
            self.schedule(there, Event::Reach(number));
        }
        let is_lost = is_lost || self.random.happens(network.lost_answers);
        let over = match self.engine.health {
            _ if fails => 400_000,
            Health::Hangs => timeout,
            _ if is_lost => timeout,
            _ => (there + back + slow).min(timeout),
        };
        self.calls[number].is_in_time = over < timeout;
        self.schedule(over, Event::Over(number));
    }

    pub(super) fn reach(&mut self, number: usize) {
        let Call { ask, edition, .. } = self.calls[number];
        if matches!(self.engine.health, Health::Refuses | Health::Hangs) {
            return;
        }
        let demand = ask.map_or_else(Demand::default, |ask| ask.demand);
        let terms = &self.editions[edition].2;
        let is_lost = self.random.happens(self.setup.network.key_errors);
        let answer = self.engine.grant(terms, demand, self.now);
        self.calls[number].answer = Some(answer.filter(|_| !is_lost));
    }

    /// Ends a call, with or without an answer. The worker's held requests are decided again.
    pub(super) fn over(&mut self, number: usize) {
        let Call {
            envoy,
            worker,
            ask,
            is_in_time,
            answer,
            ..
        } = self.calls[number];
        let of = &mut self.envoys[envoy].workers[worker];
        if of.call != Some(number) {
            return;
        }
        of.call = None;
        let now = Nanos::new(self.now);
        let random = self.random.word();
        if let Some(answer) = answer.filter(|_| is_in_time) {
            of.breaker.succeeded();
            if answer.is_some() {
                self.envoys[envoy].answered = self.now;
            }
            if let Some(ask) = ask {
                self.lease(envoy, |lease, terms| match answer {
                    Some(grant) => {
                        lease.apply(terms, &ask, &grant, now, random);
                    }
                    None => lease.failed(now, random),
                });
            }
        } else {
            of.breaker.failed(now, random);
            if let Some(ask) = ask {
                self.lease(envoy, |lease, _| lease.lost(&ask));
            }
        }
        let held = std::mem::take(&mut self.envoys[envoy].workers[worker].held);
        for request in held {
            self.decide(envoy, worker, request, Phase::Held);
        }
        self.pump(envoy, worker);
    }
}
