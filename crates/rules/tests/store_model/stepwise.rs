//! Workers whose reads and writes are interleaved by a schedule.

use loudou_limiter::{BucketRequest, Nanos};
use loudou_rules::rule_set::ActiveRule;
use loudou_store::{Attempt, SharedData, StoreStats, Table};

/// A request to make, with its key and its cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub(super) key: usize,
    pub(super) cost: u64,
}

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub(super) want: Want,
    pub(super) now: u64,
    pub(super) admitted: bool,
}

/// A worker, with at most one request in progress, as in Envoy.
struct Worker<'a> {
    queue: Vec<Want>,
    current: Option<(Want, u64, Attempt<'a>)>,
    has_read: bool,
}

/// All workers on one store.
pub(super) struct Model<'a> {
    table: &'a Table,
    rule: &'a ActiveRule,
    keys: &'a [String],
    workers: Vec<Worker<'a>>,
    pub(super) clock: u64,
    pub(super) stats: StoreStats,
    pub(super) got: Vec<Got>,
}

impl<'a> Model<'a> {
    pub(super) fn new(
        table: &'a Table,
        rule: &'a ActiveRule,
        keys: &'a [String],
        queues: Vec<Vec<Want>>,
    ) -> Self {
        let workers = queues.into_iter().map(|queue| Worker {
            queue,
            current: None,
            has_read: false,
        });
        Self {
            table,
            rule,
            keys,
            workers: workers.collect(),
            clock: 0,
            stats: StoreStats::default(),
            got: Vec::new(),
        }
    }

    /// Executes a read or a write of a worker. Returns true if it had anything left to do.
    pub(super) fn step(&mut self, worker: usize, store: &mut dyn SharedData) -> bool {
        let count = self.workers.len();
        let worker = &mut self.workers[worker % count];
        if worker.current.is_none() {
            let Some(want) = worker.queue.pop() else {
                return false;
            };
            let ask = BucketRequest::new(want.cost, Nanos::new(self.clock));
            let take = self.rule.acquire(&self.keys[want.key], ask);
            worker.current = Some((want, self.clock, Attempt::new(self.table, take)));
            worker.has_read = false;
        }
        let Some((want, now, attempt)) = &mut worker.current else {
            return false;
        };
        if !worker.has_read {
            attempt.read(store).expect("the store works");
            worker.has_read = true;
            return true;
        }
        worker.has_read = false;
        if let Some(outcome) = attempt.write(store, &mut self.stats) {
            let answer = outcome.expect("few enough conflicts").answer;
            let (want, now) = (*want, *now);
            self.got.push(Got {
                want,
                now,
                admitted: !answer.expect("nobody bans").is_refused(),
            });
            worker.current = None;
        }
        true
    }

    /// Follows the schedule of (worker, time that passes before), then lets all finish in turn.
    pub(super) fn run(&mut self, schedule: &[(usize, u64)], store: &mut dyn SharedData) {
        for (worker, pause) in schedule {
            self.clock += pause;
            self.step(*worker, store);
        }
        while (0..self.workers.len()).any(|worker| self.step(worker, store)) {}
    }

    /// The admitted cost of `key`, in cost units.
    pub(super) fn admitted(&self, key: usize) -> u64 {
        let of_key = self
            .got
            .iter()
            .filter(|got| got.want.key == key && got.admitted);
        of_key.map(|got| got.want.cost).sum()
    }

    /// The number of answered requests for `key`.
    pub(super) fn answered(&self, key: usize) -> u64 {
        let of_key = self.got.iter().filter(|got| got.want.key == key);
        u64::try_from(of_key.count()).expect("small")
    }
}
