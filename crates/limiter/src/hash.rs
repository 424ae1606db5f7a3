//! Hash functions: seeded `SipHash` for keys that attackers can choose, SHA-256 for such keys if
//! the hash must be the same in every process, and short stable tags for names from the
//! configuration.

use core::hash::Hasher;

use sha2::{Digest as _, Sha256};
use siphasher::sip128::{Hasher128, SipHasher13};

/// Scrambles the bits of `number`. Every bit of the result depends on every bit of `number`. This
/// function is the finaliser of `SplitMix64`. It uses no secret.
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

/// Secret hash seed of one Envoy process. The seed prevents clients from choosing keys that hash to
/// the same page.
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

    /// Returns the random bytes of the seed.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns a hasher with this seed for a sequence of byte strings.
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

    /// Returns the hash of all strings hashed so far.
    pub fn finish(&self) -> (u64, u64) {
        let hash = self.0.finish128();
        (hash.h1, hash.h2)
    }
}

/// Like [`SeqHasher`], but with the same hashes in every process: the first 128 bits of SHA-256.
/// This hasher uses no secret. Finding a second sequence with the same hash as a given sequence
/// takes about 2^128 attempts. Finding any two sequences with the same hash takes about 2^64
/// attempts.
#[derive(Clone, Debug, Default)]
pub struct StableHasher(Sha256);

impl StableHasher {
    /// Hashes the next byte string.
    pub fn write(&mut self, bytes: &[u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.update(bytes);
        self.0.update(length.to_le_bytes());
    }

    /// Returns the hash of all strings hashed so far.
    pub fn finish(self) -> u128 {
        let digest: [u8; 32] = self.0.finalize().into();
        let first = digest.first_chunk().copied();
        u128::from_be_bytes(first.unwrap_or_default())
    }
}

/// Returns a fingerprint that identifies a string in logs and is the same in every process. The
/// fingerprint does not hide the string, because anyone who guesses the string can compute its
/// fingerprint.
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

/// Returns a 32-bit tag that distinguishes versions of rules and limits, and is the same in every
/// process. The tag is never 0.
pub fn tag(bytes: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    let [a, b, c, d, ..] = hasher.finish128().h1.to_le_bytes();
    u32::from_le_bytes([a, b, c, d]).max(1)
}
