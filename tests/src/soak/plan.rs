//! The actions on the limiter during the load. The seed alone determines them, but their times
//! depend on the machine.

use super::random::Random;
use super::rules::{Numbers, Rule};

/// Number of configurations from which an update chooses.
pub const VARIANTS: usize = 4;
/// Number of keys of a rule that are in use at a time.
pub const SLOTS: usize = 3;

/// How a configuration is delivered to Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As a new listener that contains the filter.
    Listener,
    /// As a new listener and, at the same time, a new filter that is delivered separately.
    Both,
    /// As a new filter for the existing listener.
    Extension,
}

/// Temporary numbers of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A multiple of the rule's numbers.
    Scale(u64),
    /// Other numbers.
    Own(Numbers),
    /// No limit.
    Unlimited,
    /// A ban.
    Banned,
}

/// An action. Rules and slots are indices. Durations are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Delivers another configuration. A rollback delivers the previous one.
    Update {
        /// Index of the configuration.
        variant: usize,
        /// Way of delivery.
        way: Way,
        /// True for a rollback to the previous configuration.
        rollback: bool,
    },
    /// Delivers a configuration that Envoy must reject.
    BadUpdate {
        /// Way of delivery.
        way: Way,
    },
    /// Edits a rule's limits.
    Edit {
        /// The rule.
        rule: usize,
        /// New limits of the rule.
        numbers: Numbers,
        /// True if the edit resets all buckets. Otherwise the rule's family determines what they
        /// keep.
        reset: bool,
        /// Duration of the edit. `None` if it has no end.
        lasts: Option<u64>,
    },
    /// Drops the edit of a rule.
    DropEdit {
        /// The rule.
        rule: usize,
    },
    /// Sets an override for the key in a slot.
    Override {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
        /// Numbers of the key.
        special: Special,
        /// Duration of the override.
        lasts: u64,
    },
    /// Removes the override before its end.
    DropOverride {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
    },
    /// Bans the key in a slot.
    Ban {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
        /// Duration of the ban.
        lasts: u64,
    },
    /// Lifts the ban before its end.
    Unban {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
    },
    /// Resets the bucket of the key in a slot.
    Reset {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
    },
    /// Crashes sandboxes.
    Crash {
        /// Number of requests that crash a sandbox, each on a separate connection.
        requests: u64,
    },
    /// Sends a flood of made-up keys.
    Flood {
        /// Number of keys.
        keys: u64,
    },
}

/// An endless list of actions, each with the time to wait before it, in milliseconds.
#[derive(Debug)]
pub struct Plan {
    random: Random,
    rules: Vec<Rule>,
    round: Vec<Word>,
    /// For each entry of [`ROUND`], true if its action is left out.
    without: Vec<bool>,
    variant: usize,
    before: usize,
    extension: bool,
}

/// Kind of an action, before its details are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Update,
    Rollback,
    BadUpdate,
    Edit,
    DropEdit,
    Override,
    DropOverride,
    Ban,
    Unban,
    Reset,
    Crash,
    Flood,
}

/// Names of the actions, to leave some of them out.
pub const WORDS: [&str; 12] = [
    "update",
    "rollback",
    "bad-update",
    "edit",
    "drop-edit",
    "override",
    "drop-override",
    "ban",
    "unban",
    "reset",
    "crash",
    "flood",
];

/// Number of times that each action occurs in a round, in the order of [`WORDS`]. A round has its
/// actions in random order, so that even a short soak covers all of them.
const ROUND: [(Word, usize); 12] = [
    (Word::Update, 3),
    (Word::Rollback, 2),
    (Word::BadUpdate, 1),
    (Word::Edit, 16),
    (Word::DropEdit, 4),
    (Word::Override, 10),
    (Word::DropOverride, 3),
    (Word::Ban, 5),
    (Word::Unban, 2),
    (Word::Reset, 2),
    (Word::Crash, 1),
    (Word::Flood, 1),
];

impl Plan {
    /// Creates the plan of a seed for these rules, without the actions named in `without`
    /// ([`WORDS`]).
    pub fn new(seed: u64, rules: Vec<Rule>, without: &[String]) -> Self {
        let is_left_out = |word: &str| without.iter().any(|name| name == word);
        Self {
            random: Random::new(seed, 1),
            rules,
            round: Vec::new(),
            without: WORDS.into_iter().map(is_left_out).collect(),
            variant: 0,
            before: 1,
            extension: false,
        }
    }

    /// Returns the numbers of all rules in each configuration. A rule of the family `Share` has the
    /// same numbers in all of them. Of the other rules, two in three differ from the first
    /// configuration.
    pub fn variants(seed: u64, rules: &[Rule]) -> Vec<Vec<Numbers>> {
        let mut random = Random::new(seed, 2);
        let first: Vec<Numbers> = rules.iter().map(|rule| rule.numbers(&mut random)).collect();
        let mut variants = vec![first.clone()];
        while variants.len() < VARIANTS {
            let other = rules.iter().zip(&first).map(|(rule, &same)| {
                let own = rule.numbers(&mut random);
                let changes = rule.family.has_variants() && random.percent(67);
                if changes { own } else { same }
            });
            variants.push(other.collect());
        }
        variants
    }

    fn action(&mut self, word: Word) -> Action {
        let rule = self.rule();
        let random = &mut self.random;
        let slot = random.below(SLOTS);
        match word {
            Word::Update | Word::Rollback => self.update(matches!(word, Word::Rollback)),
            Word::BadUpdate => Action::BadUpdate {
                way: if self.extension {
                    Way::Extension
                } else {
                    Way::Listener
                },
            },
            Word::Edit => self.edit(rule),
            Word::DropEdit => Action::DropEdit { rule },
            Word::Override => self.special(rule, slot),
            Word::DropOverride => Action::DropOverride { rule, slot },
            Word::Ban => Action::Ban {
                rule,
                slot,
                lasts: random.between(300, 3_000),
            },
            Word::Unban => Action::Unban { rule, slot },
            Word::Reset => Action::Reset { rule, slot },
            Word::Crash => Action::Crash {
                requests: random.between(1, 4),
            },
            Word::Flood => Action::Flood {
                keys: random.between(500, 2_000),
            },
        }
    }

    /// Choose a rule whose requests wait in one of four cases, because only a change that meets a
    /// long queue shows much.
    fn rule(&mut self) -> usize {
        let is_line = |rule: &usize| self.rules.get(*rule).is_some_and(|rule| rule.kind.waits());
        let lines: Vec<usize> = (0..self.rules.len()).filter(is_line).collect();
        if self.random.percent(25)
            && let Some(line) = lines.get(self.random.below(lines.len()))
        {
            return *line;
        }
        self.random.below(self.rules.len())
    }

    fn update(&mut self, rollback: bool) -> Action {
        let others: Vec<usize> = (0..VARIANTS).filter(|n| *n != self.variant).collect();
        let any = others.get(self.random.below(others.len())).copied();
        let variant = if rollback {
            self.before
        } else {
            any.unwrap_or(0)
        };
        let way = match (self.extension, self.random.percent(35)) {
            (true, true) | (false, false) => Way::Listener,
            (true, false) => Way::Extension,
            (false, true) => Way::Both,
        };
        self.extension = way != Way::Listener;
        self.before = self.variant;
        self.variant = variant;
        Action::Update {
            variant,
            way,
            rollback,
        }
    }

    fn edit(&mut self, rule: usize) -> Action {
        let random = &mut self.random;
        let numbers = self.rules.get(rule).map(|rule| rule.numbers(random));
        Action::Edit {
            rule,
            numbers: numbers.unwrap_or(Numbers {
                capacity: 1,
                refill: 1_000_000_000,
            }),
            reset: random.percent(8),
            lasts: random.percent(40).then(|| random.between(500, 4_000)),
        }
    }

    fn special(&mut self, rule: usize, slot: usize) -> Action {
        let random = &mut self.random;
        let own = self.rules.get(rule).filter(|r| r.family.has_variants());
        let own = own.map(|rule| rule.numbers(random));
        let scale = random.between(2, 4);
        let special = match (random.between(0, 5), own) {
            (0, _) | (2 | 3, None) => Special::Banned,
            (1, _) | (_, None) => Special::Unlimited,
            (2 | 3, Some(own)) => Special::Own(own),
            (_, Some(_)) => Special::Scale(scale),
        };
        Action::Override {
            rule,
            slot,
            special,
            lasts: random.between(500, 4_000),
        }
    }
}

impl Iterator for Plan {
    type Item = (u64, Action);

    fn next(&mut self) -> Option<Self::Item> {
        if self.round.is_empty() {
            let words = ROUND.iter().zip(&self.without);
            self.round = words
                .filter(|(_, is_left_out)| !**is_left_out)
                .flat_map(|(&(word, count), _)| std::iter::repeat_n(word, count))
                .collect();
            self.random.shuffle(&mut self.round);
        }
        let word = self.round.pop()?;
        let wait = self.random.between(20, 500);
        Some((wait, self.action(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_function_of_its_seed() {
        let plan = |seed| {
            Plan::new(seed, Rule::all(), &[])
                .take(500)
                .collect::<Vec<_>>()
        };
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
        let rules = Rule::all();
        assert_eq!(Plan::variants(1, &rules), Plan::variants(1, &rules));
    }

    #[test]
    fn what_is_left_out_is_not_done() {
        let names = WORDS.map(str::to_owned);
        let (floods, others) = names.split_last().expect("words");
        let mut plan = Plan::new(6, Rule::all(), others);
        assert_eq!(floods, "flood");
        assert!((0..9).all(|_| matches!(plan.next(), Some((_, Action::Flood { .. })))));
        assert_eq!(Plan::new(6, Rule::all(), &names).next(), None);
    }

    #[test]
    fn an_update_changes_and_a_rollback_goes_back() {
        let mut in_force = vec![1, 0];
        for (_, action) in Plan::new(3, Rule::all(), &[]).take(2_000) {
            let Action::Update {
                variant, rollback, ..
            } = action
            else {
                continue;
            };
            assert_ne!(in_force.last(), Some(&variant));
            let before = in_force.iter().rev().nth(1);
            assert!(!rollback || before == Some(&variant), "{in_force:?}");
            in_force.push(variant);
        }
        assert!(in_force.len() > 100);
    }

    #[test]
    fn an_extension_is_updated_only_where_there_is_one() {
        let mut extension = false;
        for (_, action) in Plan::new(4, Rule::all(), &[]).take(2_000) {
            match action {
                Action::Update { way, .. } => {
                    assert!(extension || way != Way::Extension);
                    extension = way != Way::Listener;
                }
                Action::BadUpdate { way } => assert_eq!(extension, way == Way::Extension),
                _ => {}
            }
        }
    }

    #[test]
    fn rules_of_shares_have_the_same_numbers_in_every_configuration() {
        let rules = Rule::all();
        let variants = Plan::variants(5, &rules);
        assert_eq!(variants.len(), VARIANTS);
        for (n, rule) in rules.iter().enumerate() {
            let mut numbers: Vec<_> = variants.iter().map(|all| all[n]).collect();
            numbers.dedup();
            assert!(rule.family.has_variants() || numbers.len() == 1);
        }
        assert!(variants.windows(2).all(|two| two[0] != two[1]));
    }
}
