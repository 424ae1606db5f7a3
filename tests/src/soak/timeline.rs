//! The possible states over time, as seen from outside of Envoy. A change comes into force at some
//! instant between its request and its answer. In between, both old and new numbers may be in
//! force, and the model assumes the ones that favour the limiter.

use super::rules::{Family, Numbers};

/// Nanoseconds since the soak began.
pub type At = u64;
/// End of a span that is still open.
pub const OPEN: At = At::MAX;
/// Tolerance for ends: some instants are known only to the millisecond, and an end is noticed only
/// with a request.
pub const MARGIN: u64 = 100_000_000;

/// Numbers that may have been in force for a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Earliest time.
    pub from: At,
    /// Latest time.
    pub until: At,
    /// Numbers that may be in force.
    pub numbers: Numbers,
}

/// Temporary numbers of a key, which replace its rule's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// A multiple of the capacity and the rate.
    Scale(u64),
    /// Other numbers.
    Own(Numbers),
    /// No limit.
    Unlimited,
    /// A ban, by an override or by an operator.
    Banned,
}

/// An override or a ban of one key. It may have been in force between `from` and `until`, and
/// certainly was between `sure_from` and `sure_until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpan {
    /// Time at which it was sent.
    pub from: At,
    /// Time at which it was answered.
    pub sure_from: At,
    /// Earliest end.
    pub sure_until: At,
    /// Latest end.
    pub until: At,
    /// Numbers, ban or exemption of the key.
    pub gives: Gives,
    /// True for an operator's ban, which is stored in the bucket and not in the rules.
    pub is_ban: bool,
}

impl KeySpan {
    /// Returns true if it was certainly in force during the whole interval.
    pub const fn covers(&self, from: At, until: At) -> bool {
        self.sure_from <= from && until <= self.sure_until
    }

    /// Returns true if it may have been in force at some time of the interval.
    pub const fn touches(&self, from: At, until: At) -> bool {
        self.from <= until && from <= self.until
    }
}

/// An action on a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleAction {
    /// Time at which the action was sent.
    pub at: At,
    /// Key of the action, if it concerned only one key.
    pub key: Option<String>,
    /// Description of the action.
    pub what: String,
}

/// Everything that was recorded about a rule.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Numbers of the rule.
    pub spans: Vec<Span>,
    /// Edits that reset buckets: when they were sent and answered.
    pub resets: Vec<(At, At)>,
    /// Actions on the rule.
    pub history: Vec<RuleAction>,
}

impl Timeline {
    /// Records that these numbers may be in force from now on. The previous numbers may stay in
    /// force until [`Self::settle`].
    pub fn propose(&mut self, from: At, until: At, numbers: Numbers) {
        self.spans.push(Span {
            from,
            until,
            numbers,
        });
    }

    /// Records that after `answered` only the numbers proposed at `sent` are in force.
    pub fn settle(&mut self, sent: At, answered: At) {
        self.end(answered, |span| span.from != sent);
    }

    /// Records that the numbers proposed at `sent` were refused, so they are not in force after
    /// `answered`.
    pub fn withdraw(&mut self, sent: At, answered: At) {
        self.finish(sent, answered);
    }

    /// Records that the numbers proposed at `sent` end automatically.
    pub fn finish(&mut self, sent: At, until: At) {
        self.end(until, |span| span.from == sent);
    }

    fn end(&mut self, at: At, which: impl Fn(&Span) -> bool) {
        for span in &mut self.spans {
            if which(span) {
                span.until = span.until.min(at);
            }
        }
        self.spans.retain(|span| span.from <= span.until);
    }

    /// Returns the last actions until then that concerned this key or all keys.
    pub fn last(&self, until: At, key: &str, count: usize) -> Vec<RuleAction> {
        let touches = |deed: &&RuleAction| {
            let is_other = deed.key.as_ref().is_some_and(|other| other != key);
            deed.at <= until && !is_other
        };
        let before = self.history.iter().rev().filter(touches);
        let mut last: Vec<_> = before.take(count).cloned().collect();
        last.reverse();
        last
    }
}

/// Numbers in the model's units. The level of a key is in *parts*. If the level is carried as a
/// fraction, it keeps its parts, and a unit has `1 / base` of the parts, where `base` is the
/// capacity. If the level is carried in units, `base` is 1. There are at most `most` parts, and
/// they are refilled within `refill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Units per part.
    pub base: u64,
    /// Maximum level, in parts.
    pub most: u64,
    /// Time in which all parts are refilled, in nanoseconds.
    pub refill: u64,
}

impl State {
    /// Returns the maximum number of units at once.
    pub const fn capacity(&self) -> u64 {
        self.base.saturating_mul(self.most)
    }

    const fn of(family: Family, numbers: Numbers, factor: u64) -> Self {
        let Numbers { capacity, refill } = numbers;
        match family {
            Family::Share => Self {
                base: capacity,
                most: factor,
                refill,
            },
            Family::Units | Family::Mixed => Self {
                base: 1,
                most: capacity.saturating_mul(factor),
                refill,
            },
        }
    }
}

/// An interval in which the possible states do not change.
#[derive(Debug, Clone)]
pub struct Segment {
    /// First instant.
    pub from: At,
    /// Instant after the last one.
    pub until: At,
    /// States, of which any may have been in force.
    pub states: Vec<State>,
}

/// Returns the intervals between `from` and `until`, without gaps, with the possible states of a
/// key.
pub fn segments(
    family: Family,
    spans: &[Span],
    overrides: &[KeySpan],
    from: At,
    until: At,
) -> Vec<Segment> {
    let after = until.saturating_add(1);
    let mut edges = vec![from, after];
    for span in spans {
        edges.extend([span.from, span.until.saturating_add(1)]);
    }
    for span in overrides {
        edges.extend([span.from, span.sure_from, span.sure_until, span.until]);
        edges.push(span.until.saturating_add(1));
    }
    edges.retain(|edge| (from..=after).contains(edge));
    edges.sort_unstable();
    edges.dedup();
    let pairs = edges.iter().zip(edges.iter().skip(1));
    let segment = |(&from, &until): (&At, &At)| Segment {
        from,
        until,
        states: states(family, spans, overrides, from, until.saturating_sub(1)),
    };
    pairs.map(segment).collect()
}

fn states(
    family: Family,
    spans: &[Span],
    overrides: &[KeySpan],
    from: At,
    until: At,
) -> Vec<State> {
    let bases = || spans.iter().filter(|s| s.from <= until && from <= s.until);
    let possible = || overrides.iter().filter(|own| own.touches(from, until));
    let mut states = Vec::new();
    let is_replaced = |own: &KeySpan| {
        matches!(own.gives, Gives::Scale(_) | Gives::Own(_)) && own.covers(from, until)
    };
    if !possible().any(is_replaced) {
        states.extend(bases().map(|span| State::of(family, span.numbers, 1)));
    }
    for own in possible() {
        match own.gives {
            Gives::Scale(factor) => {
                states.extend(bases().map(|span| State::of(family, span.numbers, factor)));
            }
            Gives::Own(numbers) => states.push(State::of(family, numbers, 1)),
            Gives::Unlimited | Gives::Banned => {}
        }
    }
    states
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn numbers(capacity: u64) -> Numbers {
        Numbers {
            capacity,
            refill: 1_000,
        }
    }

    fn capacities(segments: &[Segment]) -> Vec<(At, Vec<u64>)> {
        let of = |segment: &Segment| segment.states.iter().map(State::capacity).collect();
        segments.iter().map(|s| (s.from, of(s))).collect()
    }

    #[test]
    fn while_a_change_is_under_way_both_are_possible() {
        let mut timeline = Timeline::default();
        timeline.propose(0, OPEN, numbers(5));
        timeline.propose(10, OPEN, numbers(9));
        timeline.settle(10, 20);
        let found = segments(Family::Share, &timeline.spans, &[], 0, 30);
        assert_eq!(
            capacities(&found),
            [(0, vec![5]), (10, vec![5, 9]), (21, vec![9])]
        );
    }

    #[test]
    fn what_was_refused_was_possible_until_then() {
        let mut timeline = Timeline::default();
        timeline.propose(0, OPEN, numbers(5));
        timeline.propose(10, OPEN, numbers(9));
        timeline.withdraw(10, 12);
        let found = segments(Family::Share, &timeline.spans, &[], 0, 30);
        assert_eq!(
            capacities(&found),
            [(0, vec![5]), (10, vec![5, 9]), (13, vec![5])]
        );
    }

    #[test]
    fn a_certain_override_replaces_the_rules_numbers() {
        let rule = [Span {
            from: 0,
            until: OPEN,
            numbers: numbers(5),
        }];
        let own = KeySpan {
            from: 10,
            sure_from: 12,
            sure_until: 20,
            until: 25,
            gives: Gives::Scale(3),
            is_ban: false,
        };
        let found = segments(Family::Units, &rule, &[own], 0, 30);
        let expected = [
            (0, vec![5]),
            (10, vec![5, 15]),
            (12, vec![15]),
            (20, vec![5, 15]),
            (25, vec![5, 15]),
            (26, vec![5]),
        ];
        assert_eq!(capacities(&found), expected);
    }
}
