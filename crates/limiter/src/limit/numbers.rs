//! Numbers that come with each request: a capacity, or the amount of a rate, that a trusted source such as a token
//! states for each user.
//!
//! A rule's limits with such numbers are a template. [`Limits::with`] makes the limits of one request from it. Each
//! bucket stores the numbers of the last request that it decided, before the words of its limits. An operation with
//! other numbers first converts the bucket like an edit of the rule does, in cost units ([`Carry::Keep`]), so that
//! alternating numbers gain nothing beyond the larger one. Limits without such numbers store nothing.
//!
//! [`Carry::Keep`]: crate::Carry::Keep

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::ser::{Error as _, SerializeMap as _};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::{Bucket, Facts, Limit, Limits};
use crate::algorithm::Algorithm;
use crate::bounds::BadNumbers;

/// Source of a number that comes with each request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Path of the number in the metadata of the request: a namespace, and the keys below it.
    pub metadata: Vec<String>,
    /// Default number, for requests that carry none.
    pub default: u32,
    /// Maximum number. Larger numbers are reduced to this.
    pub max: u32,
}

impl Source {
    /// Returns the number in force for a request that carried `number`. 0 stands for a request that
    /// carried none.
    const fn in_force(&self, number: u32) -> u32 {
        if number == 0 {
            self.default
        } else if number > self.max {
            self.max
        } else {
            number
        }
    }
}

/// The sources of a limit's numbers. A number without a source is fixed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Source of the capacity.
    pub capacity: Option<Source>,
    /// Source of the amount of the rate.
    pub amount: Option<Source>,
}

/// The numbers that a request carried for one limit. A number is 0 if the request carried none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestNumbers {
    /// Number for the capacity.
    pub capacity: u32,
    /// Number for the amount of the rate.
    pub amount: u32,
}

impl RequestNumbers {
    /// Returns the numbers in the form in which a bucket stores them.
    pub fn to_word(self) -> u64 {
        u64::from(self.capacity) << 32 | u64::from(self.amount)
    }

    /// Reads the numbers that a bucket stores.
    pub fn of_word(word: u64) -> Self {
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Self {
            capacity: half(word >> 32),
            amount: half(word),
        }
    }
}

/// Numbers of a request, as [`RequestNumbers::to_word`], for each limit that has a source.
pub type Numbers = Vec<u64>;

impl Limit {
    /// Returns this limit with the sources of its numbers. The limit itself has the default numbers.
    #[must_use]
    pub fn sourced(mut self, sources: Sources) -> Self {
        self.sources = (sources != Sources::default()).then(|| Box::new(sources));
        self
    }

    /// Returns the sources of its numbers, if it has any.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.as_deref()
    }

    /// Returns this limit with the default numbers and without their sources.
    #[must_use]
    pub fn fixed(&self) -> Self {
        self.with(RequestNumbers::default())
    }

    /// Checks that the limit is valid with the smallest and with the largest numbers that requests
    /// may carry.
    pub fn check_sources(&self) -> Result<(), BadNumbers> {
        let Some(sources) = self.sources() else {
            return Ok(());
        };
        for of in [|_: &Source| 1, |source: &Source| source.max] {
            let capacity = sources.capacity.as_ref().map(|source| of(source).into());
            self.algorithm
                .with(capacity, sources.amount.as_ref().map(of))?;
        }
        Ok(())
    }

    /// Returns this limit with the numbers of a request. If these numbers do not form a valid limit, the default
    /// numbers are used.
    fn with(&self, brought: RequestNumbers) -> Self {
        let algorithm = self.algorithm_with(brought);
        Self {
            name: self.name.clone(),
            algorithm: algorithm.unwrap_or_else(|_| self.algorithm.clone()),
            sources: None,
        }
    }

    /// Returns true if the numbers of a request form a valid limit.
    pub fn accepts(&self, brought: RequestNumbers) -> bool {
        self.algorithm_with(brought).is_ok()
    }

    fn algorithm_with(&self, brought: RequestNumbers) -> Result<Algorithm, BadNumbers> {
        let Some(sources) = self.sources() else {
            return Ok(self.algorithm.clone());
        };
        let capacity = sources.capacity.as_ref();
        let capacity = capacity.map(|source| source.in_force(brought.capacity).into());
        let amount = sources.amount.as_ref();
        let amount = amount.map(|source| source.in_force(brought.amount));
        self.algorithm.with(capacity, amount)
    }
}

impl Limits {
    /// Returns true if numbers of these limits come with each request. Such limits are a template, which decides
    /// nothing itself.
    pub fn is_template(&self) -> bool {
        self.list.iter().any(|limit| limit.sources.is_some())
    }

    /// Returns the numbers that a bucket of these limits stores.
    #[inline]
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the numbers in a bucket of these limits, or of limits from the same template.
    pub fn numbers_in(&self, bucket: &Bucket) -> Numbers {
        let mut numbers: Numbers = bucket
            .words
            .iter()
            .take(self.numbers.len())
            .copied()
            .collect();
        numbers.resize(self.numbers.len(), 0);
        numbers
    }

    /// Returns the limits of a request that carried these numbers.
    ///
    /// ```
    /// use loudou_limiter::{RequestNumbers, Limit, Limits, Nanos, Rate, Source, Sources, algorithm::Funnel};
    ///
    /// let funnel = Funnel::new(10, Rate::parse("1/s").unwrap()).unwrap();
    /// let metadata = vec!["jwt".to_string(), "quota".to_string()];
    /// let quota = Source { metadata, default: 10, max: 1000 };
    /// let sources = Sources { capacity: Some(quota), ..Sources::default() };
    /// let template = Limits::new(vec![Limit::new("burst", funnel).sourced(sources)]).unwrap();
    ///
    /// let capacity_of = |number| {
    ///     let brought = RequestNumbers { capacity: number, amount: 0 };
    ///     let limits = template.with(&[brought.to_word()]);
    ///     limits.iter().next().unwrap().algorithm().capacity()
    /// };
    /// assert_eq!([0, 500, 5000].map(capacity_of), [10, 500, 1000]);
    /// ```
    pub fn with(&self, numbers: &[u64]) -> Cow<'_, Self> {
        if !self.is_template() {
            return Cow::Borrowed(self);
        }
        let mut words = numbers.iter().copied();
        let limits = self.list.iter().map(|limit| match limit.sources {
            Some(_) => limit.with(RequestNumbers::of_word(words.next().unwrap_or(0))),
            None => limit.clone(),
        });
        let list: Vec<Limit> = limits.collect();
        let mut own = Numbers::from(numbers);
        own.resize(self.numbers.len(), 0);
        Cow::Owned(Self::of(list, own))
    }

    /// Returns these limits with other numbers to store in buckets. Use it if the limits were
    /// derived from limits of the same template.
    #[must_use]
    pub fn storing(self, numbers: &[u64]) -> Self {
        Self::of(self.list, Numbers::from(numbers))
    }

    /// Returns the largest limits that this template can make.
    pub fn largest(&self) -> Cow<'_, Self> {
        let most = RequestNumbers {
            capacity: u32::MAX,
            amount: u32::MAX,
        };
        self.with(&alloc::vec![most.to_word(); self.numbers.len()])
    }

    pub(super) fn of(list: Vec<Limit>, numbers: Numbers) -> Self {
        let facts = Facts::of(&list, numbers.len());
        Self {
            list,
            numbers,
            facts,
        }
    }

    /// Returns the words of the limits among the words of a bucket, which begin with the numbers.
    #[inline]
    pub(crate) fn own_words<'w>(&self, words: &'w mut [u64]) -> &'w mut [u64] {
        if self.numbers.is_empty() {
            return words;
        }
        words.get_mut(self.numbers.len()..).unwrap_or_default()
    }
}

impl Serialize for Limit {
    /// Serialises the limit as in a rule file.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Plain<'a> {
            name: &'a str,
            #[serde(flatten)]
            algorithm: &'a Algorithm,
        }
        let (name, algorithm) = (&*self.name, &self.algorithm);
        let plain = Plain { name, algorithm };
        let Some(sources) = self.sources() else {
            return plain.serialize(serializer);
        };
        // Converts through text, so that the filter, whose module has to be small, needs no second serializer.
        let text = serde_json::to_vec(&plain).map_err(S::Error::custom)?;
        let fields: Map<String, Value> = serde_json::from_slice(&text).map_err(S::Error::custom)?;
        let mut out = serializer.serialize_map(None)?;
        for (field, value) in &fields {
            let rate = algorithm.rate().filter(|_| field == "rate");
            match (&sources.capacity, &sources.amount, rate) {
                (Some(source), _, _) if field == "capacity" => {
                    out.serialize_entry(field, source)?;
                }
                (_, Some(amount), Some(rate)) => {
                    let per = rate.period();
                    out.serialize_entry(field, &SourcedRate { amount, per })?;
                }
                // These follow the capacity.
                (Some(_), _, _) if field == "slot_capacity" || field == "initial" => {}
                _ => out.serialize_entry(field, value)?,
            }
        }
        out.end()
    }
}

/// A rate whose amount has a source, as in a rule file.
#[derive(Serialize)]
struct SourcedRate<'a> {
    amount: &'a Source,
    per: crate::time::Nanos,
}
