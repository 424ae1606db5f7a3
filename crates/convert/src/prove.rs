//! Compares the sources' own algorithms with the converted rules, request by request.
//!
//! The converted rules determine which limits a request meets, its key and its cost, so the
//! comparison cannot detect a wrong `match`. The comparison covers only the counting. For each
//! limit of the source, a model counts the requests. The caller evaluates the same requests with
//! the converted rules.
//!
//! A source may check its limits one after another, and nginx may delay a request between two
//! limits. The comparison of a delayed request completes when a later request arrives after the
//! delay.
//!
//! To find the cause of a difference, the models count in three ways: like the source; with a
//! separate counter for each rule; and with separate counters that refund what a refused request
//! took. The first way that agrees with the rules shows the cause.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::fmt;
use std::rc::Rc;

use loudou_limiter::bounds::MAX_WAIT;
use loudou_limiter::{Nanos, Verdict};
use loudou_rules::request::Sample;
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Mode, Override, Reach, Rule, RuleFile};
use loudou_words::text::humanise;

use crate::model::{Ask, Counter, Model, Next, Said};

/// Maximum number of counters of a source. Requests that would need more counters are not compared.
pub const MAX_COUNTERS: u32 = 1 << 17;
/// Maximum number of requests that may be delayed or in flight in a source at the same time.
pub const MAX_RUNNING: usize = 1 << 18;
/// Maximum number of differences that a [`Proof`] keeps.
pub const MAX_DIFFERENCES: usize = 1_000;
/// Shorter delays count as no delay, because Loudou delays requests by nanoseconds and some sources
/// count in milliseconds.
const SHORTEST_DELAY: Nanos = Nanos::new(1_000_000);

const KEPT: &str = "the source asks its limits one after another, and a request keeps what it took before a refusal or a wait; the rules ask all limits at once, and a refused request takes nothing";
const TOO_LONG: &str =
    "the source lets a request wait for longer than an hour, and Loudou refuses it";

/// The source's limits from which a rule was converted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Name of the rule.
    pub rule: String,
    /// Limits for all keys of the rule that have no override.
    pub limits: Vec<Counting>,
    /// Limits for individual keys. Other overrides of the rule have no limit in the source.
    pub overrides: Vec<(String, Counting)>,
}

/// A limit of the source, with its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Counting {
    /// Name of the limit's counters. Limits with the same name share counters.
    pub counter: String,
    /// The limit's algorithm and its parameters.
    pub model: Model,
    /// Position in the order in which the source checks its limits. If a limit refuses a request,
    /// the source skips all limits at later positions, and limits at earlier positions still count
    /// the request.
    pub step: u32,
}

/// A request's place in a log, and its start and end times.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// Name of the log file, if there are several.
    pub file: Option<&'a str>,
    /// Line number, starting at 1.
    pub line: u64,
    /// Arrival time.
    pub at: Nanos,
    /// End time, if it is known.
    pub end: Option<Nanos>,
}

/// The converted rules' decision on a request.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// Verdict on the request.
    pub verdict: Verdict,
    /// Delay of a held request.
    pub wait: Nanos,
    /// Index of the rule that determined the verdict.
    pub rule: Option<usize>,
}

/// How a difference affects the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The rules admit a request that the source refuses.
    More,
    /// The rules refuse a request that the source admits.
    Less,
    /// Either the source or the rules delay the request, but not both.
    Delay,
}

/// A request that the source and the rules decide differently.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Name of the log file, if there are several.
    pub file: Option<String>,
    /// Line number in the log.
    pub line: u64,
    /// Arrival time of the request.
    pub at: Nanos,
    /// Name of the rule.
    pub rule: String,
    /// The request's key under this rule.
    pub key: String,
    /// How the difference affects the client.
    pub effect: Effect,
    /// The source's answer, as text.
    pub theirs: String,
    /// The rules' answer, as text.
    pub ours: String,
}

/// Numbers of compared requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Compared requests.
    pub requests: u64,
    /// Requests that only the rules admit.
    pub more: u64,
    /// Requests that only the source admits.
    pub less: u64,
    /// Requests that only the source or only the rules delay.
    pub delay: u64,
}

impl Proof {
    /// Returns true if the source and the rules agree on all requests. Returns false for a log in
    /// which no request meets a limit, because this log proves nothing.
    pub fn agrees(&self) -> bool {
        self.has_met()
            && self.counts.equal() == self.counts.requests
            && self.uncompared == 0
            && self.without_duration == 0
    }

    /// Returns true if any request met a limit.
    pub fn has_met(&self) -> bool {
        self.rules.iter().any(|rule| rule.counts.requests > 0)
    }
}

impl Counts {
    /// Returns the number of requests on which the source and the rules agree.
    pub const fn equal(&self) -> u64 {
        self.requests
            .saturating_sub(self.more)
            .saturating_sub(self.less)
            .saturating_sub(self.delay)
    }

    const fn add(&mut self, effect: Option<Effect>) {
        self.requests = self.requests.saturating_add(1);
        let count = match effect {
            None => return,
            Some(Effect::More) => &mut self.more,
            Some(Effect::Less) => &mut self.less,
            Some(Effect::Delay) => &mut self.delay,
        };
        *count = count.saturating_add(1);
    }
}

/// Result for one rule.
#[derive(Clone, Debug, Default)]
pub struct RuleProof {
    /// Name of the rule.
    pub rule: String,
    /// Requests that the rule counts.
    pub counts: Counts,
    /// Requests that match the rule, but lack a part of its key in the log.
    pub without_key: u64,
}

/// A cause of differences.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Explanation of the cause, as a sentence.
    pub why: String,
    /// Number of requests.
    pub requests: u64,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// Counts for all requests.
    pub counts: Counts,
    /// Requests that were not compared, because they would exceed the maximum number of counters or
    /// of requests in flight.
    pub uncompared: u64,
    /// Requests that were not compared, because the log lacks the durations of requests.
    pub without_duration: u64,
    /// Results for each rule.
    pub rules: Vec<RuleProof>,
    /// Causes, in the order in which they were found.
    pub causes: Vec<Cause>,
    /// The first differences, at most [`MAX_DIFFERENCES`].
    pub differences: Vec<Difference>,
}

/// Compares the requests of a log one by one, and builds a [`Proof`].
pub struct Prover<'a> {
    rules: &'a [Rule],
    counted: &'a [Counted],
    /// One side for each `Way`, in the order of its variants.
    sides: [Side; SIDES],
    /// Requests that at least one side has not answered yet.
    open: HashMap<u64, Asked<'a>>,
    /// Times at which a side checks the next limits of a delayed request.
    wakes: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    /// Number of requests.
    seen: u64,
    proof: Proof,
}

impl fmt::Debug for Prover<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prover").finish_non_exhaustive()
    }
}

/// A limit that applies to a request.
struct Met<'a> {
    rule: usize,
    key: Rc<str>,
    counting: &'a Counting,
    is_enforced: bool,
    ask: Ask,
}

/// A request that is being compared.
struct Asked<'a> {
    file: Option<String>,
    line: u64,
    at: Nanos,
    ours: Ours,
    /// Indices of the rules that count the request.
    counting: Vec<usize>,
    /// Index of a rule that refuses the request because the request lacks a key.
    denied: Option<usize>,
    /// Enforced limits, in the order in which the source checks them.
    met: Vec<Met<'a>>,
    progress: [Progress; SIDES],
}

/// A side's progress in answering a request.
#[derive(Clone, Copy, Default)]
struct Progress {
    answer: Answer,
    /// Index of the next limit to check. `None` if the answer is complete.
    next: Option<usize>,
}

/// One way to count, with its counters.
struct Side {
    way: Way,
    counters: HashMap<(usize, String, Rc<str>), Counter>,
    /// Number of requests in flight in all counters.
    running: usize,
}

/// Number of ways to count.
const SIDES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Counts like the source.
    Source,
    /// Counts like the source, but with separate counters for each rule.
    Separate,
    /// Counts with separate counters for each rule, and refunds what a refused request took.
    GivesBack,
}

/// A side's answer to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Answer {
    said: Said,
    /// Index of the rule that refused or delayed the request.
    rule: Option<usize>,
}

impl<'a> Prover<'a> {
    /// Starts to compare a rule file that [`crate::convert`] wrote with its source.
    pub fn new(file: &'a RuleFile, counted: &'a [Counted]) -> Self {
        let rules = file.rules.iter().map(|rule| RuleProof {
            rule: rule.name.clone(),
            ..RuleProof::default()
        });
        Self {
            rules: &file.rules,
            counted,
            sides: [Way::Source, Way::Separate, Way::GivesBack].map(Side::new),
            open: HashMap::new(),
            wakes: BinaryHeap::new(),
            seen: 0,
            proof: Proof {
                rules: rules.collect(),
                ..Proof::default()
            },
        }
    }

    /// Compares the source's answer to a request with the rules' answer. The caller must pass
    /// requests in order of time.
    pub fn request(&mut self, logged: &Logged<'_>, request: &mut Sample<'_>, ours: Ours) {
        self.wake(Some(logged.at));
        let mut keys: Vec<(usize, String)> = Vec::new();
        let mut denied = None;
        let mut is_stopped = false;
        for (index, rule) in self.rules.iter().enumerate() {
            let is_enforced = rule.mode == Mode::Enforce;
            if rule.mode == Mode::Off || is_stopped && is_enforced {
                continue;
            }
            if rule.reach(request) != Reach::Yes {
                continue;
            }
            match rule.key_of(request) {
                Key::Bucket(key) => keys.push((index, key)),
                missing => {
                    if let Some(proof) = self.proof.rules.get_mut(index) {
                        proof.without_key = proof.without_key.saturating_add(1);
                    }
                    // Spring refuses a request without a key, and so does the converted rule.
                    if missing != Key::Skip {
                        denied.get_or_insert(index);
                    }
                    continue;
                }
            }
            is_stopped |= rule.stop && is_enforced;
        }
        let mut met = Vec::new();
        for (index, key) in &keys {
            let (Some(rule), Some(counted)) = (self.rules.get(*index), self.counted.get(*index))
            else {
                continue;
            };
            let ask = Ask {
                now: logged.at,
                cost: rule.cost.price(request).cost,
                end: logged.end,
            };
            let shared: Rc<str> = key.as_str().into();
            let one = |counting| Met {
                rule: *index,
                key: Rc::clone(&shared),
                counting,
                is_enforced: rule.mode == Mode::Enforce,
                ask,
            };
            match rule.overrides.get_with_pattern(key) {
                None => met.extend(counted.limits.iter().map(one)),
                Some((pattern, Override::Limits(_))) => {
                    let own = counted.overrides.iter();
                    let own = own.filter(|(key, _)| *key == pattern);
                    met.extend(own.map(|(_, counting)| one(counting)));
                }
                Some(_) => {}
            }
        }
        let has_room = self.open.len() < MAX_RUNNING;
        if !has_room || self.sides.iter().any(|side| !side.has_room(&met)) {
            self.proof.uncompared = self.proof.uncompared.saturating_add(1);
            return;
        }
        let (mut met, shadows): (Vec<Met<'a>>, Vec<Met<'a>>) =
            met.into_iter().partition(|one| one.is_enforced);
        // A limit in shadow mode counts independently of all other limits.
        for side in &mut self.sides {
            for shadow in &shadows {
                side.together(&[shadow], Nanos::ZERO);
            }
        }
        // Within a step, Envoy checks its buckets in order of increasing rate, and the default
        // bucket last.
        met.sort_by(|one, other| {
            let steps = one.counting.step.cmp(&other.counting.step);
            steps.then_with(|| one.counting.model.order(&other.counting.model))
        });
        let mut asked = Asked {
            file: logged.file.map(str::to_owned),
            line: logged.line,
            at: logged.at,
            ours,
            counting: keys.iter().map(|(index, _)| *index).collect(),
            denied,
            met,
            progress: [Progress::default(); SIDES],
        };
        for (index, (side, progress)) in (0..).zip(self.sides.iter_mut().zip(&mut asked.progress)) {
            side.advance(&asked.met, progress);
            if progress.next.is_some() {
                let wait = progress.answer.wait();
                self.wakes
                    .push(Reverse((logged.at.saturating_add(wait), self.seen, index)));
            }
        }
        if asked.is_complete() {
            self.judge(&asked);
        } else {
            self.open.insert(self.seen, asked);
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// Continues the requests whose delay ends by `now`, or all delayed requests if `now` is
    /// `None`.
    fn wake(&mut self, now: Option<Nanos>) {
        while let Some(Reverse((at, number, index))) = self.wakes.peek().copied() {
            if now.is_some_and(|now| at > now) {
                return;
            }
            self.wakes.pop();
            let Some(mut asked) = self.open.remove(&number) else {
                continue;
            };
            if let (Some(side), Some(progress)) =
                (self.sides.get_mut(index), asked.progress.get_mut(index))
            {
                side.advance(&asked.met, progress);
            }
            if asked.is_complete() {
                self.judge(&asked);
            } else {
                self.open.insert(number, asked);
            }
        }
    }

    /// Compares the source's answer to a request with the rules' answer.
    fn judge(&mut self, asked: &Asked<'_>) {
        let answers = asked.progress.map(|progress| match asked.denied {
            Some(rule) => Answer {
                said: Said::Refuse,
                rule: Some(rule),
            },
            None => progress.answer,
        });
        let [theirs, ..] = answers;
        let ours = asked.ours;
        if theirs.said == Said::Unknown {
            self.proof.without_duration = self.proof.without_duration.saturating_add(1);
            return;
        }
        let effect = effect(theirs.said, ours);
        self.proof.counts.add(effect);
        let blamed = match ours.verdict {
            Verdict::Admit => theirs.rule,
            _ => ours.rule.or(theirs.rule),
        };
        for index in &asked.counting {
            if let Some(proof) = self.proof.rules.get_mut(*index) {
                proof.counts.add(effect.filter(|_| blamed == Some(*index)));
            }
        }
        let Some(effect) = effect else {
            return;
        };
        let model = asked.met.iter().find(|one| Some(one.rule) == blamed);
        let why = self.cause(model, answers, ours);
        match self.proof.causes.iter_mut().find(|cause| cause.why == why) {
            Some(cause) => cause.requests = cause.requests.saturating_add(1),
            None => self.proof.causes.push(Cause { why, requests: 1 }),
        }
        if self.proof.differences.len() < MAX_DIFFERENCES {
            let rule = blamed.and_then(|index| self.rules.get(index));
            self.proof.differences.push(Difference {
                file: asked.file.clone(),
                line: asked.line,
                at: asked.at,
                rule: rule.map(|rule| rule.name.clone()).unwrap_or_default(),
                key: model.map(|one| one.key.to_string()).unwrap_or_default(),
                effect,
                theirs: words(theirs.said),
                ours: words(match ours.verdict {
                    Verdict::Admit => Said::Pass,
                    Verdict::Hold => Said::Delay(ours.wait),
                    Verdict::Refuse => Said::Refuse,
                }),
            });
        }
    }

    /// Completes all comparisons and returns the result.
    pub fn finish(mut self) -> Proof {
        self.wake(None);
        // The comparison of delayed requests completes late, so the differences may not be in order
        // of time.
        let differences = &mut self.proof.differences;
        differences.sort_by_key(|one| one.at);
        self.proof
    }

    /// Returns the cause of a difference, as a sentence.
    fn cause(&self, met: Option<&Met<'_>>, answers: [Answer; SIDES], ours: Ours) -> String {
        let [theirs, separate, gives_back] = answers;
        let is_ours = |answer: Answer| effect(answer.said, ours).is_none();
        let Some(met) = met else {
            return "the request meets no limit of the source".to_owned();
        };
        if let (Said::Delay(wait), Verdict::Refuse) = (theirs.said, ours.verdict)
            && wait > MAX_WAIT
        {
            return TOO_LONG.to_owned();
        }
        if theirs != separate && is_ours(separate) {
            let names: BTreeSet<&str> = self
                .counted
                .iter()
                .filter(|rule| {
                    let mut limits = rule.limits.iter();
                    limits.any(|limit| limit.counter == met.counting.counter)
                })
                .map(|rule| rule.rule.as_str())
                .collect();
            let names: Vec<&str> = names.into_iter().collect();
            return format!(
                "the source counts the requests of these rules together, and each rule counts its own: {}",
                names.join(", ")
            );
        }
        let is_window = matches!(met.counting.model, Model::Window(_));
        if separate != gives_back && is_ours(gives_back) && !is_window {
            return KEPT.to_owned();
        }
        met.counting.model.rounding().to_owned()
    }
}

/// Returns how the rules' decision differs from the source's answer, or `None` if they agree.
fn effect(theirs: Said, ours: Ours) -> Option<Effect> {
    let is_delayed = |wait: Nanos| wait >= SHORTEST_DELAY;
    match (theirs, ours.verdict) {
        (Said::Refuse, Verdict::Refuse) | (Said::Unknown, _) => None,
        (Said::Refuse, _) => Some(Effect::More),
        (_, Verdict::Refuse) => Some(Effect::Less),
        (Said::Delay(theirs), _) if is_delayed(theirs) != is_delayed(ours.wait) => {
            Some(Effect::Delay)
        }
        (Said::Pass, Verdict::Hold) if is_delayed(ours.wait) => Some(Effect::Delay),
        _ => None,
    }
}

/// Returns an answer as text.
fn words(said: Said) -> String {
    match said {
        Said::Pass => "passes".to_owned(),
        Said::Delay(wait) => format!("waits {}", humanise(wait.get())),
        Said::Refuse => "refused".to_owned(),
        Said::Unknown => "unknown".to_owned(),
    }
}

impl Asked<'_> {
    fn is_complete(&self) -> bool {
        self.progress.iter().all(|progress| progress.next.is_none())
    }
}

impl Side {
    fn new(way: Way) -> Self {
        Self {
            way,
            counters: HashMap::new(),
            running: 0,
        }
    }

    /// Returns the key under which this side stores a counter.
    fn place(&self, met: &Met<'_>) -> (usize, String, Rc<str>) {
        let rule = match self.way {
            Way::Source => 0,
            Way::Separate | Way::GivesBack => met.rule.saturating_add(1),
        };
        (rule, met.counting.counter.clone(), Rc::clone(&met.key))
    }

    fn has_room(&self, met: &[Met<'_>]) -> bool {
        let most = usize::try_from(MAX_COUNTERS).unwrap_or(usize::MAX);
        let has_counters = self.counters.len().saturating_add(met.len()) <= most
            || met
                .iter()
                .all(|one| self.counters.contains_key(&self.place(one)));
        has_counters && self.running.saturating_add(met.len()) <= MAX_RUNNING
    }

    /// Checks limits from `progress.next` on, until all are checked or one of them refuses or
    /// delays the request.
    fn advance(&mut self, all: &[Met<'_>], progress: &mut Progress) {
        let start = progress.next.take().unwrap_or(0);
        let rest = all.get(start..).unwrap_or_default();
        if self.way == Way::GivesBack {
            let met: Vec<&Met<'_>> = rest.iter().collect();
            progress.answer = self.together(&met, Nanos::ZERO);
            return;
        }
        // A delayed request reaches the remaining limits later, and also ends later.
        let wait = progress.answer.wait();
        let mut next = start;
        for step in rest.chunk_by(|one, other| one.counting.step == other.counting.step) {
            if progress.answer.said == Said::Refuse {
                return;
            }
            if progress.answer.wait() > wait {
                progress.next = Some(next);
                return;
            }
            next = next.saturating_add(step.len());
            // nginx counts a request in all zones of a step, or in none if one of them refuses it.
            let is_zone = |one: &&Met<'_>| {
                matches!(one.counting.model, Model::LimitReq(_) | Model::LimitConn(_))
            };
            let zones: Vec<&Met<'_>> = step.iter().filter(is_zone).collect();
            progress.answer.join(self.together(&zones, wait));
            for one in step.iter().filter(|one| !is_zone(one)) {
                match one.counting.model {
                    // After a refusal, Envoy checks no further buckets.
                    Model::LocalBucket(_) if progress.answer.said == Said::Refuse => {}
                    Model::LocalBucket(_) => progress.answer.join(self.together(&[one], wait)),
                    // A rate limit service checks each limit independently, and also counts refused
                    // requests.
                    _ => progress.answer.join(self.alone(one)),
                }
            }
        }
    }

    /// Counts a request in a limit that also counts refused requests.
    fn alone(&mut self, one: &Met<'_>) -> Answer {
        let place = self.place(one);
        let (said, next) = one.counting.model.ask(self.counters.get(&place), &one.ask);
        self.keep(place, next);
        Answer::of(said, one)
    }

    /// Counts a request that was delayed by `wait` in all of these limits, or in none if any limit
    /// refuses it.
    fn together(&mut self, met: &[&Met<'_>], wait: Nanos) -> Answer {
        let mut answer = Answer::default();
        let mut next = BTreeMap::new();
        for one in met {
            let place = self.place(one);
            let ends_later = wait.max(answer.wait());
            let ask = Ask {
                now: one.ask.now.saturating_add(wait),
                end: one.ask.end.map(|end| end.saturating_add(ends_later)),
                ..one.ask
            };
            let mut counter = self.counters.get_mut(&place);
            if let Some(Counter::Running(running)) = &mut counter {
                let ended = running.forget(ask.now);
                self.running = self.running.saturating_sub(ended);
            }
            let (said, effect) = one.counting.model.ask(counter.as_deref(), &ask);
            answer.join(Answer::of(said, one));
            next.insert(place, effect);
        }
        if answer.said != Said::Refuse {
            for (place, next) in next {
                self.keep(place, next);
            }
        }
        answer
    }

    fn keep(&mut self, place: (usize, String, Rc<str>), next: Next) {
        if matches!(next, Next::Runs(Some(_))) {
            self.running = self.running.saturating_add(1);
        }
        let counter = next.keep(self.counters.remove(&place));
        self.counters.insert(place, counter);
    }
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            said: Said::Pass,
            rule: None,
        }
    }
}

impl Answer {
    fn of(said: Said, met: &Met<'_>) -> Self {
        let rule = (said != Said::Pass).then_some(met.rule);
        Self { said, rule }
    }

    /// Returns the delay, or zero for other answers.
    const fn wait(&self) -> Nanos {
        match self.said {
            Said::Delay(wait) => wait,
            _ => Nanos::ZERO,
        }
    }

    /// Combines this answer with the answer of another limit. The first refusal takes precedence,
    /// then an unknown answer, then the longest delay.
    fn join(&mut self, other: Self) {
        let replaces = match (self.said, other.said) {
            (Said::Refuse, _) | (_, Said::Pass) | (Said::Unknown, Said::Delay(_)) => false,
            (_, Said::Refuse | Said::Unknown) | (Said::Pass, Said::Delay(_)) => true,
            (Said::Delay(mine), Said::Delay(its)) => its > mine,
        };
        if replaces {
            *self = other;
        }
    }
}
