//! The actions on the limiter during the load: a function of the seed alone. Their instants depend on
//! the machine.

use super::random::Random;
use super::rules::{Numbers, Rule};

/// The configurations that updates choose from.
pub const VARIANTS: usize = 4;
/// The keys of a rule that are in use at a time.
pub const SLOTS: usize = 3;

/// The way in which a configuration gets to Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A new listener with the filter in it.
    Listener,
    /// A new listener and, at the same time, its separately delivered filter.
    Both,
    /// A new filter for the existing listener.
    Extension,
}

/// The temporary numbers of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A multiple of the rule's numbers.
    Scale(u64),
    /// Its own numbers.
    Own(Numbers),
    /// Unlimited.
    Unlimited,
    /// Banned.
    Banned,
}

/// One action. Rules and slots are indices; durations are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Another configuration, by its index; a rollback returns to the previous one.
    Update {
        /// The configuration.
        variant: usize,
        /// The way.
        way: Way,
        /// True if it is the previous one.
        rollback: bool,
    },
    /// A configuration that Envoy has to reject.
    BadUpdate {
        /// The way.
        way: Way,
    },
    /// An edit of a rule's limits.
    Edit {
        /// The rule.
        rule: usize,
        /// Its new limits.
        numbers: Numbers,
        /// True if all buckets are reset, instead of the carry of the rule's family.
        reset: bool,
        /// The duration, if it ends by itself.
        lasts: Option<u64>,
    },
    /// Drops the edit of a rule.
    DropEdit {
        /// The rule.
        rule: usize,
    },
    /// An override for the key in a slot.
    Override {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
        /// The key's numbers.
        special: Special,
        /// The duration.
        lasts: u64,
    },
    /// Ends that override early.
    DropOverride {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
    },
    /// A ban of the key in a slot.
    Ban {
        /// The rule.
        rule: usize,
        /// The slot.
        slot: usize,
        /// The duration.
        lasts: u64,
    },
    /// Ends that ban early.
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
    /// Crashes of sandboxes.
    Crash {
        /// The number of requests that cause one, each on its own connection.
        requests: u64,
    },
    /// A flood of made-up keys.
    Flood {
        /// The number of keys.
        keys: u64,
    },
}

/// An endless list of actions with the milliseconds to wait before each.
#[derive(Debug)]
pub struct Plan {
    random: Random,
    rules: Vec<Rule>,
    round: Vec<Word>,
    /// Indices into [`ROUND`] of the actions left out.
    without: Vec<bool>,
    variant: usize,
    before: usize,
    extension: bool,
}

/// The kind of an action, before its details are drawn.
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

/// The names of actions for leaving them out.
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

/// In the order of [`WORDS`]. Each round contains everything in random order, so a short soak covers it all.
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
    /// The plan of a seed for these rules, without the actions named in `without` ([`WORDS`]).
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

    /// The numbers of all rules in each configuration. A rule of shares has the same in all of them; of the others,
    /// two in three differ from the first configuration.
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

    /// One in four is a line, because only a change that meets a long line shows much.
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
