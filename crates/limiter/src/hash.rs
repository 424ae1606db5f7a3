//! Hash functions: seeded `SipHash` for keys that attackers choose, SHA-256 for such values if the
//! hash must be stable, and short stable tags for names from the configuration.

use core::hash::Hasher;

use sha2::{Digest as _, Sha256};
use siphasher::sip128::{Hasher128, SipHasher13};

/// Returns a number that looks unrelated to `number`. Each of its bits depends on each bit of
/// `number`. This is the finaliser of `SplitMix64`, which has no secret.
///
/// ```
/// use loudou_limiter::mix;
///
/// assert_eq!(mix(1), mix(1));
/// assert!((mix(1) ^ mix(2)).count_ones() > 16, "half of the bits change, more or less");
/// ```
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Secret of one Envoy process. It prevents clients from choosing keys that share a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashSeed([u8; 16]);

impl HashSeed {
    /// Creates a seed from random bytes.
    ///
    /// ```
    /// use loudou_limiter::HashSeed;
    ///
    /// let seed = HashSeed::new([7; 16]);
    /// assert_eq!(format!("{seed:?}"), "HashSeed(…)", "it is kept out of logs");
    /// ```
    pub const fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// Returns the random bytes.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns a hasher for a sequence of byte strings.
    pub fn hasher(&self) -> SeqHasher {
        SeqHasher(SipHasher13::new_with_key(&self.0))
    }
}

impl core::fmt::Debug for HashSeed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashSeed(…)")
    }
}

/// Hashes a sequence of byte strings. The lengths are part of the hash, so `ab,c` and `a,bc` have
/// different hashes.
#[derive(Clone, Debug)]
pub struct SeqHasher(SipHasher13);

impl SeqHasher {
    /// Hashes the next byte string.
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.0
            .write_u64(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    /// Returns the hash of all written strings.
    pub fn finish(&self) -> (u64, u64) {
        let hash = self.0.finish128();
        (hash.h1, hash.h2)
    }
}

/// Like [`SeqHasher`], but with equal results in every process: the first 128 bits of SHA-256. It
/// has no secret. To find a second sequence with the hash of a given one takes 2^128 attempts. To
/// find any two sequences with equal hashes takes 2^64.
#[derive(Clone, Debug, Default)]
pub struct StableHasher(Sha256);

impl StableHasher {
    /// Hashes the next byte string.
    pub fn write(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.update(bytes);
        self.0.update(length.to_le_bytes());
    }

    /// Returns the hash of all written strings.
    pub fn finish(self) -> u128 {
        let digest: [u8; 32] = self.0.finalize().into();
        let first = digest.first_chunk().copied();
        u128::from_be_bytes(first.unwrap_or_default())
    }
}

/// Returns a number that is equal in every process and distinguishes texts in logs. It does not
/// hide the text, because a known text can be recognised by its number.
///
/// ```
/// use loudou_limiter::fingerprint;
///
/// assert_eq!(fingerprint("alice"), fingerprint("alice"));
/// assert_ne!(fingerprint("alice"), fingerprint("bob"));
/// ```
pub fn fingerprint(text: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    hasher.finish128().h1
}

/// Returns a 32-bit tag that is equal in every process and distinguishes versions of rules and
/// limits. Never 0.
pub fn tag(bytes: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    let [a, b, c, d, ..] = hasher.finish128().h1.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).max(1)
}
