//! A fleet in virtual time. As in the filter, the workers of an Envoy share a lease, make one call
//! at a time, and hold requests until their calls are answered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use loudou_limiter::lease::breaker::{Breaker, Policy};
use loudou_limiter::lease::{
    Demand, Grant, LEASE_WORDS, Lease, LeaseVerdict, Phase, Terms, TokenRequest,
};
use loudou_limiter::{Bucket, BucketRequest, Clock, Limits, Nanos};

use crate::bound::Pass;
use crate::engine::{AHEAD, Engine};
use crate::random::Random;
use crate::setup::{Pattern, Setup};

mod calls;
mod faults;

pub(crate) const MS: u64 = 1_000_000;
/// Start of a simulation.
pub(crate) const START: u64 = 3_600_000 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A fault begins.
    Fault(usize),
    /// A call reaches the engine.
    Reach(usize),
    /// A call ends.
    Over(usize),
    /// An Envoy adopts the current numbers.
    Adopt(usize),
    /// A held request has waited for the maximum time.
    Expire {
        envoy: usize,
        worker: usize,
        id: u64,
    },
    /// Requests arrive.
    Arrive,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    cost: u64,
    until: Nanos,
    is_asked: bool,
}

#[derive(Debug)]
struct Worker {
    breaker: Breaker,
    call: Option<usize>,
    /// Time at which the last call was sent.
    called: u64,
    held: Vec<Request>,
}

#[derive(Debug)]
struct Envoy {
    /// Words of the lease, as a slot stores them.
    words: [u64; LEASE_WORDS],
    later: Vec<u32>,
    /// Time of the last change.
    touched: Nanos,
    edition: usize,
    local: Bucket,
    /// Time at which the engine last answered for the key.
    answered: u64,
    workers: Vec<Worker>,
}

impl Envoy {
    fn keep(&mut self, lease: &Lease) {
        self.words = lease.to_words();
        self.later = lease.later_left().to_vec();
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    envoy: usize,
    worker: usize,
    /// `None` for a call without keys.
    ask: Option<TokenRequest>,
    edition: usize,
    /// True if the answer can arrive before the timeout.
    is_in_time: bool,
    answer: Option<Answer>,
}

/// The relay's answer for the key. `None` if the engine did not answer.
type Answer = Option<Grant>;

/// Result of a simulation.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Requests that passed by tokens or on credit.
    pub(crate) passes: Vec<Pass>,
    /// Requests that passed by the local buckets.
    pub(crate) local: Vec<Pass>,
    /// Maximum time without an answer after which a local bucket passed a request.
    pub(crate) alone: u64,
    /// Units of refused requests.
    pub(crate) refused: u64,
    /// Times of refusals, in milliseconds since the start.
    pub(crate) refused_at: Vec<u64>,
    pub(crate) offered: u64,
    pub(crate) held: u64,
    pub(crate) calls: u64,
    /// Units that one central bucket admits of the same requests.
    pub(crate) ideal: u64,
}

impl Run {
    /// Returns the units that passed by tokens and on credit.
    pub(crate) fn passed(&self) -> u64 {
        self.passes.iter().map(|pass| pass.cost).sum()
    }

    /// Returns all requests that passed, in the order of time.
    pub(crate) fn all(&self) -> Vec<Pass> {
        let mut all = [self.passes.as_slice(), &self.local].concat();
        all.sort_by_key(|pass| pass.at);
        all
    }
}

struct Fleet<'a> {
    setup: &'a Setup,
    random: Random,
    now: u64,
    seen: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    engine: Engine,
    /// A central bucket without leases, for comparison.
    ideal: Engine,
    editions: Vec<(Limits, Limits, Terms)>,
    envoys: Vec<Envoy>,
    calls: Vec<Call>,
    restarts: usize,
    run: Run,
}

/// Runs a fleet to its end.
pub(crate) fn run(setup: &Setup) -> Run {
    let mut fleet = Fleet::new(setup);
    fleet.schedule(0, Event::Arrive);
    for (number, (at, _)) in setup.faults.iter().enumerate() {
        fleet.schedule(at * MS, Event::Fault(number));
    }
    let end = START + setup.seconds * 1_000 * MS;
    while let Some(Reverse((at, _, event))) = fleet.queue.pop() {
        if at > end {
            break;
        }
        fleet.now = at;
        fleet.happen(event);
    }
    fleet.run
}

impl<'a> Fleet<'a> {
    fn new(setup: &'a Setup) -> Self {
        let mut fleet = Self {
            setup,
            random: Random(setup.seed),
            now: START,
            seen: 0,
            queue: BinaryHeap::new(),
            engine: Engine::new(),
            ideal: Engine::new(),
            editions: Vec::new(),
            envoys: Vec::new(),
            calls: Vec::new(),
            restarts: 0,
            run: Run::default(),
        };
        fleet.edit(&setup.limits);
        let envoys = (0..setup.envoys).map(|_| fleet.fresh());
        fleet.envoys = envoys.collect();
        fleet
    }

    fn fresh(&self) -> Envoy {
        let worker = || Worker {
            breaker: Breaker::new(Policy::default()),
            call: None,
            called: self.now,
            held: Vec::new(),
        };
        let edition = self.editions.len() - 1;
        Envoy {
            words: [0; LEASE_WORDS],
            later: Vec::new(),
            touched: Nanos::ZERO,
            edition,
            local: self.editions[edition].1.start_at(self.clock()),
            answered: self.now,
            workers: (0..self.setup.workers).map(|_| worker()).collect(),
        }
    }

    fn edit(&mut self, limits: &Limits) {
        let local = limits.divided(self.setup.envoys).expect("divisible");
        let terms = self.setup.terms_of(limits);
        self.editions.push((limits.clone(), local, terms));
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.seen += 1;
        self.queue
            .push(Reverse((self.now + after, self.seen, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Fault(number) => self.fault(number),
            Event::Reach(call) => self.reach(call),
            Event::Over(call) => self.over(call),
            Event::Adopt(envoy) => self.adopt(envoy),
            Event::Expire { envoy, worker, id } => self.expire(envoy, worker, id),
            Event::Arrive => self.arrive(),
        }
    }

    fn arrive(&mut self) {
        let together = match self.setup.pattern {
            Pattern::Bursts(size) => size,
            _ => 1,
        };
        let mut units = 0;
        for _ in 0..together {
            let cost = self.random.between(self.setup.costs);
            units += cost;
            self.request(cost);
        }
        let gap = units * 1_000 * MS / self.setup.offered;
        let gap = match self.setup.pattern {
            Pattern::Even => gap,
            Pattern::Pulses(on, off) => {
                let (cycle, past) = ((on + off) * MS, self.now - START);
                let gap = if past / cycle % 2 == 0 { gap } else { gap / 5 };
                let past = (past + gap) % cycle;
                let pause = if past < on * MS {
                    0
                } else {
                    (on + off) * MS - past
                };
                gap + pause
            }
            _ => self.random.below(2 * gap + 1),
        };
        self.schedule(gap, Event::Arrive);
    }

    fn request(&mut self, cost: u64) {
        self.run.offered += cost;
        self.seen += 1;
        let envoy = self.random.index(self.envoys.len());
        let worker = self.random.index(self.setup.workers);
        let (_, _, terms) = self.editions.last().expect("at least one");
        let whole = Demand {
            want: cost,
            need: cost,
            debt: 0,
        };
        let ideal = self.ideal.grant(terms, whole, self.now);
        self.run.ideal += ideal.map_or(0, |grant| grant.granted);
        let request = Request {
            id: self.seen,
            cost,
            until: Nanos::ZERO,
            is_asked: false,
        };
        self.decide(envoy, worker, request, Phase::First);
        self.pump(envoy, worker);
    }

    /// Decides on a request. Holds it if it has to wait.
    fn decide(&mut self, envoy: usize, worker: usize, request: Request, phase: Phase) {
        let cost = request.cost;
        let is_down = self.envoys[envoy].workers[worker].breaker.is_open();
        let now = Nanos::new(self.now);
        let verdict = self.lease(envoy, |lease, terms| {
            lease.take(terms, cost, now, phase, is_down)
        });
        match verdict {
            LeaseVerdict::Admit => self.pass(cost),
            LeaseVerdict::Refuse { .. } => self.refuse(cost),
            LeaseVerdict::Local => self.decide_locally(envoy, cost),
            LeaseVerdict::Wait { until } => {
                let first = phase == Phase::First;
                let until = if first { until } else { request.until };
                if first {
                    self.run.held += 1;
                    let (after, id) = (until.get() - self.now, request.id);
                    self.schedule(after, Event::Expire { envoy, worker, id });
                }
                self.envoys[envoy].workers[worker].held.push(Request {
                    until,
                    is_asked: false,
                    ..request
                });
            }
        }
    }

    /// Returns the two clocks of all Envoys. If the engine's clock has jumped, it differs from the
    /// wall clock.
    fn clock(&self) -> Clock {
        Clock {
            now: Nanos::new(self.now),
            wall: Nanos::new(self.now + AHEAD),
        }
    }

    fn lease<T>(&mut self, envoy: usize, f: impl FnOnce(&mut Lease, &Terms) -> T) -> T {
        let clock = self.clock();
        let envoy = &mut self.envoys[envoy];
        let mut lease = Lease::from_words(&envoy.words, &envoy.later);
        let terms = &self.editions[envoy.edition].2;
        lease.turn(terms, envoy.touched, clock);
        envoy.touched = clock.now;
        let outcome = f(&mut lease, terms);
        envoy.keep(&lease);
        outcome
    }

    fn record(&self, cost: u64) -> Pass {
        Pass {
            at: self.now,
            cost,
            engine: self.engine.clock(self.now).get(),
        }
    }

    fn pass(&mut self, cost: u64) {
        let pass = self.record(cost);
        self.run.passes.push(pass);
    }

    fn refuse(&mut self, cost: u64) {
        self.run.refused += cost;
        self.run.refused_at.push((self.now - START) / MS);
    }

    fn decide_locally(&mut self, envoy: usize, cost: u64) {
        let Clock { now, wall } = self.clock();
        let ask = BucketRequest::new(cost, now).at_wall(wall);
        let envoys = self.setup.envoys;
        let Envoy {
            local,
            edition,
            words,
            later,
            ..
        } = &mut self.envoys[envoy];
        let limits = &self.editions[*edition].0;
        let mut lease = Lease::from_words(words, later);
        let answer = lease.decide_alone(limits, envoys, local, &ask);
        self.envoys[envoy].keep(&lease);
        if answer.is_refused() {
            return self.refuse(cost);
        }
        let alone = self.now - self.envoys[envoy].answered;
        self.run.alone = self.run.alone.max(alone);
        // Envoys that decide alone use their own clock.
        self.run.local.push(Pass {
            at: self.now,
            cost,
            engine: wall.get(),
        });
    }

    fn expire(&mut self, envoy: usize, worker: usize, id: u64) {
        let held = &mut self.envoys[envoy].workers[worker].held;
        let Some(place) = held.iter().position(|request| request.id == id) else {
            return;
        };
        let request = held.remove(place);
        self.decide(envoy, worker, request, Phase::Expired);
        self.pump(envoy, worker);
    }
}
