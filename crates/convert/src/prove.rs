//! Compares the source's own algorithms with the converted rules, request by request.
//!
//! Which limits a request meets, its key and its cost are read from the converted rules, so a wrong
//! `match` is not found here. Only the counting is compared. A model counts each limit, and the
//! caller decides the same request by the rules.
//!
//! To name the cause of a difference, the models count three times: as the source does, with a
//! separate counter for each rule, and also without what a refused request took. The first that
//! agrees with the rules shows the cause.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use loudou_limiter::bounds::MAX_WAIT;
use loudou_limiter::{Nanos, Verdict};
use loudou_rules::request::Sample;
use loudou_rules::rule::key::Key;
use loudou_rules::rule::{Mode, Override, Reach, Rule, RuleFile};
use loudou_words::text::humanise;

use crate::model::{Ask, Counter, Model, Said};

/// Maximum number of counters of a source. Requests that need more are not compared.
pub const MAX_COUNTERS: u32 = 1 << 17;
/// Maximum number of differences that are kept.
pub const MAX_DIFFERENCES: usize = 1_000;
/// Loudou holds requests for nanoseconds, and some sources count in milliseconds.
const SHORTEST_DELAY: Nanos = Nanos::new(1_000_000);

const KEPT: &str = "a refused request takes nothing from the other limits here, and in the source it keeps what it took from them";
const TOO_LONG: &str =
    "the source lets a request wait for longer than an hour, and Loudou refuses it";

/// The source's limits of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Name of the rule.
    pub rule: String,
    /// Limits of the rule.
    pub limits: Vec<Counting>,
    /// Limits of single keys. Other overrides of the rule have no limit in the source.
    pub overrides: Vec<(String, Counting)>,
}

/// A limit of the source, with its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Counting {
    /// Name of the counters. Limits with the same name count together.
    pub counter: String,
    /// Algorithm and numbers.
    pub model: Model,
}

/// Place of a request in a log, and its times.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// Name of the file, if there are several.
    pub file: Option<&'a str>,
    /// Line, from 1.
    pub line: u64,
    /// Time of arrival.
    pub at: Nanos,
    /// Time of the end, if it is known.
    pub end: Option<Nanos>,
}

/// Decision of the converted rules.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// Verdict on the request.
    pub verdict: Verdict,
    /// Wait of a held request.
    pub wait: Nanos,
    /// Index of the rule that decided.
    pub rule: Option<usize>,
}

/// Effect of a difference on the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The rules admit a request that the source refuses.
    More,
    /// The rules refuse a request that the source admits.
    Less,
    /// Either the source or the rules delay the request, and the other side does not.
    Delay,
}

/// A request on which the source and the rules differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Name of the file, if there are several.
    pub file: Option<String>,
    /// Line of the log.
    pub line: u64,
    /// Time of the request.
    pub at: Nanos,
    /// Rule, by its name.
    pub rule: String,
    /// Key of the request under this rule.
    pub key: String,
    /// Effect on the client.
    pub effect: Effect,
    /// The source's answer in words.
    pub theirs: String,
    /// The rules' answer in words.
    pub ours: String,
}

/// Numbers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Compared requests.
    pub requests: u64,
    /// Requests that only the rules admit.
    pub more: u64,
    /// Requests that only the source admits.
    pub less: u64,
    /// Requests that only one side delays.
    pub delay: u64,
}

impl Proof {
    /// Returns true if the source and the rules agree. A log in which no request meets a limit
    /// proves nothing.
    pub fn agrees(&self) -> bool {
        self.has_met() && self.counts.equal() == self.counts.requests && self.uncompared == 0
    }

    /// Returns true if a request met a limit.
    pub fn has_met(&self) -> bool {
        self.rules.iter().any(|rule| rule.counts.requests > 0)
    }
}

impl Counts {
    /// Returns the number of requests with equal answers.
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

/// Result for a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleProof {
    /// Name of the rule.
    pub rule: String,
    /// Requests that the rule counts.
    pub counts: Counts,
    /// Requests that the rule matches, and that lack a part of its key in the log.
    pub without_key: u64,
}

/// A cause of differences.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The cause, as a sentence.
    pub why: String,
    /// Number of requests.
    pub requests: u64,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// All requests.
    pub counts: Counts,
    /// Requests that were not compared, because there are too many keys.
    pub uncompared: u64,
    /// Results for each rule.
    pub rules: Vec<RuleProof>,
    /// Causes, in the order in which they were found.
    pub causes: Vec<Cause>,
    /// First differences.
    pub differences: Vec<Difference>,
}

/// Counts for a proof.
pub struct Prover<'a> {
    rules: &'a [Rule],
    counted: &'a [Counted],
    source: Side,
    separate: Side,
    gives_back: Side,
    proof: Proof,
}

impl fmt::Debug for Prover<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prover").finish_non_exhaustive()
    }
}

/// A limit that a request meets.
struct Met<'a> {
    rule: usize,
    key: &'a str,
    counting: &'a Counting,
    is_enforced: bool,
    ask: Ask,
}

/// One way to count.
struct Side {
    way: Way,
    counters: HashMap<(usize, String, String), Counter>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As the source counts.
    Source,
    /// As the source counts, but with counters for each rule.
    Separate,
    /// With counters for each rule, and without what a refused request took.
    GivesBack,
}

/// Answer of a side.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Answer {
    said: Said,
    /// Index of the rule that refused or delayed the request.
    rule: Option<usize>,
}

impl<'a> Prover<'a> {
    /// Starts a comparison of the rules of a file, which [`crate::convert`] wrote, with their
    /// source.
    pub fn new(file: &'a RuleFile, counted: &'a [Counted]) -> Self {
        let rules = file.rules.iter().map(|rule| RuleProof {
            rule: rule.name.clone(),
            ..RuleProof::default()
        });
        Self {
            rules: &file.rules,
            counted,
            source: Side::new(Way::Source),
            separate: Side::new(Way::Separate),
            gives_back: Side::new(Way::GivesBack),
            proof: Proof {
                rules: rules.collect(),
                ..Proof::default()
            },
        }
    }

    /// Compares the answers to a request. Requests come in order of time.
    pub fn request(&mut self, logged: &Logged<'_>, request: &mut Sample<'_>, ours: Ours) {
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
                    // Spring refuses a request without a key, and so does its rule.
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
            let one = |counting| Met {
                rule: *index,
                key,
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
        let sides = [&mut self.source, &mut self.separate, &mut self.gives_back];
        let Some([theirs, separate, gives_back]) = answers(sides, &met, denied) else {
            self.proof.uncompared = self.proof.uncompared.saturating_add(1);
            return;
        };
        let effect = effect(theirs.said, ours);
        self.proof.counts.add(effect);
        let blamed = match ours.verdict {
            Verdict::Admit => theirs.rule,
            _ => ours.rule.or(theirs.rule),
        };
        for (index, _) in &keys {
            if let Some(proof) = self.proof.rules.get_mut(*index) {
                proof.counts.add(effect.filter(|_| blamed == Some(*index)));
            }
        }
        let Some(effect) = effect else {
            return;
        };
        let model = met.iter().find(|one| Some(one.rule) == blamed);
        let why = self.cause(model, [theirs, separate, gives_back], ours);
        match self.proof.causes.iter_mut().find(|cause| cause.why == why) {
            Some(cause) => cause.requests = cause.requests.saturating_add(1),
            None => self.proof.causes.push(Cause { why, requests: 1 }),
        }
        if self.proof.differences.len() < MAX_DIFFERENCES {
            let rule = blamed.and_then(|index| self.rules.get(index));
            self.proof.differences.push(Difference {
                file: logged.file.map(str::to_owned),
                line: logged.line,
                at: logged.at,
                rule: rule.map(|rule| rule.name.clone()).unwrap_or_default(),
                key: model.map(|one| one.key.to_owned()).unwrap_or_default(),
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

    /// Returns the result.
    pub fn finish(self) -> Proof {
        self.proof
    }

    /// Returns the cause of a difference, as a sentence.
    fn cause(&self, met: Option<&Met<'_>>, answers: [Answer; 3], ours: Ours) -> String {
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

/// Returns the answers of all sides, or `None` if one has no room for another counter.
fn answers(sides: [&mut Side; 3], met: &[Met<'_>], denied: Option<usize>) -> Option<[Answer; 3]> {
    if sides.iter().any(|side| !side.has_room(met)) {
        return None;
    }
    Some(sides.map(|side| {
        let answer = side.answer(met);
        denied.map_or(answer, |rule| Answer {
            said: Said::Refuse,
            rule: Some(rule),
        })
    }))
}

/// Returns the difference between two answers, or `None` if they are equal.
fn effect(theirs: Said, ours: Ours) -> Option<Effect> {
    let is_delayed = |wait: Nanos| wait >= SHORTEST_DELAY;
    match (theirs, ours.verdict) {
        (Said::Refuse, Verdict::Refuse) => None,
        (Said::Refuse, _) => Some(Effect::More),
        (_, Verdict::Refuse) => Some(Effect::Less),
        (Said::Delay(theirs), _) if is_delayed(theirs) != is_delayed(ours.wait) => {
            Some(Effect::Delay)
        }
        (Said::Pass, Verdict::Hold) if is_delayed(ours.wait) => Some(Effect::Delay),
        _ => None,
    }
}

/// Returns an answer in words.
fn words(said: Said) -> String {
    match said {
        Said::Pass => "passes".to_owned(),
        Said::Delay(wait) => format!("waits {}", humanise(wait.get())),
        Said::Refuse => "refused".to_owned(),
    }
}

impl Side {
    fn new(way: Way) -> Self {
        Self {
            way,
            counters: HashMap::new(),
        }
    }

    /// Returns the place of a counter.
    fn place(&self, met: &Met<'_>) -> (usize, String, String) {
        let rule = match self.way {
            Way::Source => 0,
            Way::Separate | Way::GivesBack => met.rule.saturating_add(1),
        };
        (rule, met.counting.counter.clone(), met.key.to_owned())
    }

    fn has_room(&self, met: &[Met<'_>]) -> bool {
        let most = usize::try_from(MAX_COUNTERS).unwrap_or(usize::MAX);
        self.counters.len().saturating_add(met.len()) <= most
            || met
                .iter()
                .all(|one| self.counters.contains_key(&self.place(one)))
    }

    /// Answers a request.
    fn answer(&mut self, met: &[Met<'_>]) -> Answer {
        let mut answer = Answer {
            said: Said::Pass,
            rule: None,
        };
        // Limits in shadow mode count alone.
        for one in met.iter().filter(|one| !one.is_enforced) {
            self.together(std::slice::from_ref(&one));
        }
        let enforced: Vec<&Met<'_>> = met.iter().filter(|one| one.is_enforced).collect();
        if self.way == Way::GivesBack {
            return self.together(&enforced);
        }
        let of = |is: fn(&Model) -> bool| -> Vec<&Met<'_>> {
            let all = enforced.iter().copied();
            all.filter(|one| is(&one.counting.model)).collect()
        };
        // nginx counts all zones of `limit_req` or none, and then its connections.
        let requests = of(|model| matches!(model, Model::LimitReq(_)));
        answer.join(self.together(&requests));
        if answer.said != Said::Refuse {
            // A request that waits before holds its connection for as much longer.
            let wait = match answer.said {
                Said::Delay(wait) => wait,
                _ => Nanos::ZERO,
            };
            let connections = of(|model| matches!(model, Model::LimitConn(_)));
            let connections = connections.into_iter().map(|one| {
                let end = one.ask.end.map(|end| end.saturating_add(wait));
                let ask = Ask { end, ..one.ask };
                Met { ask, ..*one }
            });
            let connections: Vec<Met<'_>> = connections.collect();
            let connections: Vec<&Met<'_>> = connections.iter().collect();
            answer.join(self.together(&connections));
        }
        // Envoy asks its buckets from the slowest, and the default bucket last. After a refusal it asks
        // no further bucket, and the earlier buckets have lost their tokens.
        let mut buckets = of(|model| matches!(model, Model::LocalBucket(_)));
        buckets.sort_by(|one, other| one.counting.model.order(&other.counting.model));
        for bucket in buckets {
            if answer.said != Said::Refuse {
                answer.join(self.together(&[bucket]));
            }
        }
        // The others count each limit alone. A rate limit service also counts refused requests.
        let others = of(|model| {
            matches!(
                model,
                Model::Window(_) | Model::Throttle(_) | Model::Limiter(_)
            )
        });
        for one in others {
            let place = self.place(one);
            let (said, next) = one.counting.model.ask(self.counters.get(&place), &one.ask);
            self.counters.insert(place, next);
            answer.join(Answer::of(said, one));
        }
        answer
    }

    /// Counts a request in all of these limits, or in none if any limit refuses it.
    fn together(&mut self, met: &[&Met<'_>]) -> Answer {
        let mut answer = Answer {
            said: Said::Pass,
            rule: None,
        };
        let mut next = Vec::new();
        for one in met {
            let place = self.place(one);
            let (said, counter) = one.counting.model.ask(self.counters.get(&place), &one.ask);
            answer.join(Answer::of(said, one));
            next.push((place, counter));
        }
        if answer.said != Said::Refuse {
            self.counters.extend(next);
        }
        answer
    }
}

impl Answer {
    fn of(said: Said, met: &Met<'_>) -> Self {
        let rule = (said != Said::Pass).then_some(met.rule);
        Self { said, rule }
    }

    /// Joins the answer of another limit. The first refusal counts, or else the longest delay.
    fn join(&mut self, other: Self) {
        let replaces = match (self.said, other.said) {
            (Said::Refuse, _) | (_, Said::Pass) => false,
            (_, Said::Refuse) | (Said::Pass, Said::Delay(_)) => true,
            (Said::Delay(mine), Said::Delay(its)) => its > mine,
        };
        if replaces {
            *self = other;
        }
    }
}
