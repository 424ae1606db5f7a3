//! The possible states over time, seen from outside of Envoy: a change comes into force at some
//! instant between the one at which it was sent and the one at which it was answered. So spans of old
//! and new numbers overlap, and the model takes the one in the limiter's favour.

use super::rules::{Family, Numbers};

/// Nanoseconds since the soak began.
pub type At = u64;
/// An end that has not been reached.
pub const OPEN: At = At::MAX;
/// Some instants are only known to the millisecond, and an end is noticed only with a request.
pub const MARGIN: u64 = 100_000_000;

/// Numbers that may have been in force for a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The earliest instant.
    pub from: At,
    /// The latest.
    pub until: At,
    /// The numbers.
    pub numbers: Numbers,
}

/// The numbers of a key that replace its rule's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// A multiple of the capacity and the rate.
    Scale(u64),
    /// Its own numbers.
    Own(Numbers),
    /// Unlimited.
    Unlimited,
    /// Banned: by an override, or by an operator.
    Banned,
}

/// An override or a ban of one key: possible in all of its time, certain in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeySpan {
    /// When it was sent.
    pub from: At,
    /// When it was answered.
    pub sure_from: At,
    /// The earliest end.
    pub sure_until: At,
    /// The latest end.
    pub until: At,
    /// Its effect.
    pub gives: Gives,
    /// True if it is stored in the bucket, as an operator's ban, and not in the rules.
    pub is_ban: bool,
}

impl KeySpan {
    /// Returns true if it was certainly in force all the time.
    pub const fn covers(&self, from: At, until: At) -> bool {
        self.sure_from <= from && until <= self.sure_until
    }

    /// Returns true if it may have been in force at some time.
    pub const fn touches(&self, from: At, until: At) -> bool {
        self.from <= until && from <= self.until
    }
}

/// An action on a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// When it was sent.
    pub at: At,
    /// Its key, if it was on one.
    pub key: Option<String>,
    /// The action, as text.
    pub what: String,
}

/// All records of a rule.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// Its numbers.
    pub spans: Vec<Span>,
    /// Edits that reset buckets, once each: the interval in which that may have happened.
    pub resets: Vec<(At, At)>,
    /// The actions, as text.
    pub history: Vec<Deed>,
}

impl Timeline {
    /// These numbers may be in force from now on, and so may the previous ones until [`Self::settle`].
    pub fn propose(&mut self, from: At, until: At, numbers: Numbers) {
        self.spans.push(Span {
            from,
            until,
            numbers,
        });
    }

    /// Only the numbers proposed at `sent` are in force after `answered`.
    pub fn settle(&mut self, sent: At, answered: At) {
        self.end(answered, |span| span.from != sent);
    }

    /// The numbers proposed at `sent` are not in force after `answered`: they were refused.
    pub fn withdraw(&mut self, sent: At, answered: At) {
        self.finish(sent, answered);
    }

    /// The numbers proposed at `sent` end by themselves.
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

    /// The last actions until then on a key or on all keys.
    pub fn last(&self, until: At, key: &str, count: usize) -> Vec<Deed> {
        let touches = |deed: &&Deed| {
            let is_other = deed.key.as_ref().is_some_and(|other| other != key);
            deed.at <= until && !is_other
        };
        let before = self.history.iter().rev().filter(touches);
        let mut last: Vec<_> = before.take(count).cloned().collect();
        last.reverse();
        last
    }
}

/// Numbers in the units of the model: the level of a key is in *parts*, of which a unit is `1 / base`. A
/// level that is carried as a fraction keeps its parts, and its base is the capacity; one that is carried in
/// units has base 1. There is room for `most` parts, and they are refilled within `refill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Units in a part.
    pub base: u64,
    /// The largest level, in parts.
    pub most: u64,
    /// The nanoseconds in which all parts are refilled.
    pub refill: u64,
}

impl State {
    /// The maximum number of units at once.
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

/// A time in which the possible states do not change.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Its first instant.
    pub from: At,
    /// The instant after its last.
    pub until: At,
    /// Each of these may have been in force.
    pub states: Vec<State>,
}

/// The times between `from` and `until`, without gaps, with the possible states of a key.
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
