//! Exact fractions without a bound, for models. They are never reduced, because a test uses few
//! numbers.

use std::cmp::Ordering;

/// A whole number, as digits to the base 2^32. The lowest digit is first, and there are no zeros at
/// the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Whole(Vec<u32>);

impl Whole {
    fn new(number: u128) -> Self {
        let digit = |n: u32| u32::try_from(number >> (32 * n) & 0xffff_ffff).expect("32 bits");
        Self((0..4).map(digit).collect()).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn digit(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0).into()
    }

    fn plus(&self, other: &Self) -> Self {
        let mut carry = 0;
        let places = 0..=self.0.len().max(other.0.len());
        let sum = places.map(|place| {
            let sum = self.digit(place) + other.digit(place) + carry;
            carry = sum >> 32;
            u32::try_from(sum & 0xffff_ffff).expect("32 bits")
        });
        Self(sum.collect()).trimmed()
    }

    /// Of a number that is not larger.
    fn minus(&self, other: &Self) -> Self {
        let mut borrow = 0;
        let rest = (0..self.0.len()).map(|place| {
            let rest = self.digit(place) + (1 << 32) - other.digit(place) - borrow;
            borrow = 1 - (rest >> 32);
            u32::try_from(rest & 0xffff_ffff).expect("32 bits")
        });
        Self(rest.collect()).trimmed()
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = vec![0_u32; self.0.len() + other.0.len() + 1];
        for (place, a) in self.0.iter().enumerate() {
            let mut carry = 0;
            for (more, digit) in product.iter_mut().skip(place).enumerate() {
                let sum = u64::from(*a) * other.digit(more) + u64::from(*digit) + carry;
                carry = sum >> 32;
                *digit = u32::try_from(sum & 0xffff_ffff).expect("32 bits");
            }
        }
        Self(product).trimmed()
    }

    fn compare(&self, other: &Self) -> Ordering {
        let length = self.0.len().cmp(&other.0.len());
        length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

/// A fraction that is not negative.
#[derive(Clone, Debug)]
pub(super) struct Fraction {
    over: Whole,
    under: Whole,
}

impl Fraction {
    /// Returns `over/under`, where `under` is positive.
    pub(super) fn new(over: u128, under: u128) -> Self {
        Self {
            over: Whole::new(over),
            under: Whole::new(under),
        }
    }

    pub(super) fn whole(number: u64) -> Self {
        Self::new(number.into(), 1)
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let [a, b] = [self.over.times(&other.under), other.over.times(&self.under)];
        Self {
            over: a.plus(&b),
            under: self.under.times(&other.under),
        }
    }

    /// At least nothing.
    pub(super) fn minus(&self, other: &Self) -> Self {
        if *self <= *other {
            return Self::whole(0);
        }
        let [a, b] = [self.over.times(&other.under), other.over.times(&self.under)];
        Self {
            over: a.minus(&b),
            under: self.under.times(&other.under),
        }
    }

    pub(super) fn times(&self, other: &Self) -> Self {
        Self {
            over: self.over.times(&other.over),
            under: self.under.times(&other.under),
        }
    }

    pub(super) fn max(self, other: Self) -> Self {
        if self < other { other } else { self }
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let [a, b] = [self.over.times(&other.under), other.over.times(&self.under)];
        Some(a.compare(&b))
    }
}

#[test]
fn fractions_are_as_at_school() {
    let [half, third] = [Fraction::new(1, 2), Fraction::new(1, 3)];
    assert_eq!(half.plus(&third), Fraction::new(5, 6));
    assert_eq!(half.minus(&third), Fraction::new(1, 6));
    assert_eq!(third.minus(&half), Fraction::whole(0));
    assert_eq!(half.times(&third), Fraction::new(7, 42));
    assert!(third < half && half.clone().max(third) == half);
    let large = Fraction::new(u128::MAX, 3);
    let more = large.plus(&Fraction::whole(1));
    assert_eq!(more.minus(&large), Fraction::whole(1));
    assert_eq!(
        more.times(&more).minus(&large.times(&large)),
        more.plus(&large)
    );
}
