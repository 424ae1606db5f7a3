//! Numbers that each request carries: a capacity or a rate amount, set for each user by a trusted source such as a
//! token.
//!
//! If a rule uses such numbers, its limits are a template. [`Limits::with`] creates the limits for one request from the
//! template. Each bucket stores, before the words of its limits, the numbers carried by the last request that it
//! decided on. An operation with different numbers first converts the bucket, like an edit of the rule with
//! [`Carry::Keep`]. A client that alternates between two numbers therefore gains nothing beyond the larger number.
//! Buckets of other rules do not store numbers.
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

/// Source of a number that each request carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Path to the number in the request's metadata: a namespace, followed by the keys within it.
    pub metadata: Vec<String>,
    /// Default for requests that do not carry the number.
    pub default: u32,
    /// Maximum value of the number. Larger numbers are capped at this value.
    pub max: u32,
}

impl Source {
    /// Returns the effective number for a request that carried `number`, or carried no number if `number` is 0.
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

/// Sources of a limit's numbers. A number without a source is fixed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Source of the capacity.
    pub capacity: Option<Source>,
    /// Source of the rate amount.
    pub amount: Option<Source>,
}

/// Numbers that a request carried for one limit. A number is 0 if the request did not carry it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestNumbers {
    /// The capacity.
    pub capacity: u32,
    /// Rate amount.
    pub amount: u32,
}

impl RequestNumbers {
    /// Encodes the numbers as the word that a bucket stores.
    pub fn to_word(self) -> u64 {
        u64::from(self.capacity) << 32 | u64::from(self.amount)
    }

    /// Decodes the numbers from the word that a bucket stores.
    pub fn of_word(word: u64) -> Self {
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        Self {
            capacity: half(word >> 32),
            amount: half(word),
        }
    }
}

/// Numbers that a request carried, encoded by [`RequestNumbers::to_word`], one word for each limit with sources.
pub type Numbers = Vec<u64>;

impl Limit {
    /// Returns this limit with `sources` for its numbers. The limit itself must have the default numbers.
    #[must_use]
    pub fn sourced(mut self, sources: Sources) -> Self {
        self.sources = (sources != Sources::default()).then(|| Box::new(sources));
        self
    }

    /// Returns the sources of the limit's numbers, if it has any.
    pub fn sources(&self) -> Option<&Sources> {
        self.sources.as_deref()
    }

    /// Returns this limit with its default numbers and without sources.
    #[must_use]
    pub fn fixed(&self) -> Self {
        self.with(RequestNumbers::default())
    }

    /// Checks that the limit is valid for the smallest and for the largest numbers that requests may carry.
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

    /// Returns this limit with the numbers that a request carried, or with the default numbers if those do not form a
    /// valid limit.
    fn with(&self, brought: RequestNumbers) -> Self {
        let algorithm = self.algorithm_with(brought);
        Self {
            name: self.name.clone(),
            algorithm: algorithm.unwrap_or_else(|_| self.algorithm.clone()),
            sources: None,
        }
    }

    /// Returns true if the numbers that a request carried form a valid limit.
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
    /// Returns true if any limit takes numbers from requests. Such limits are a template, from which the limits of each
    /// request are created.
    pub fn is_template(&self) -> bool {
        self.list.iter().any(|limit| limit.sources.is_some())
    }

    /// Returns the numbers stored in a bucket with these limits.
    #[inline]
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the numbers stored in a bucket with these limits or with other limits from the same template.
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

    /// Returns the limits for a request that carried `numbers`.
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

    /// Returns these limits, but with `numbers` as the numbers that buckets store. Use this function for limits that
    /// were derived from other limits of the same template.
    #[must_use]
    pub fn storing(self, numbers: &[u64]) -> Self {
        Self::of(self.list, Numbers::from(numbers))
    }

    /// Returns the limits with the largest numbers that this template allows.
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

    /// Returns a bucket's words without the numbers at the start.
    #[inline]
    pub(crate) fn own_words<'w>(&self, words: &'w mut [u64]) -> &'w mut [u64] {
        if self.numbers.is_empty() {
            return words;
        }
        words.get_mut(self.numbers.len()..).unwrap_or_default()
    }
}

impl Serialize for Limit {
    /// Serialises the limit in the form used in rule files.
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
        // Serialises to JSON text and parses it again, so that the filter's Wasm module, which must be small, needs no
        // second serialiser.
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
                // These fields depend on the capacity, so they are omitted and their defaults apply.
                (Some(_), _, _) if field == "slot_capacity" || field == "initial" => {}
                _ => out.serialize_entry(field, value)?,
            }
        }
        out.end()
    }
}

/// A rate whose amount has a source, in the form used in rule files.
#[derive(Serialize)]
struct SourcedRate<'a> {
    amount: &'a Source,
    per: crate::time::Nanos,
}
