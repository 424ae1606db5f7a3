//! The least filters there can be: what any filter in Envoy's sandbox costs.
//!
//! Each example is one. `empty_sdk` lets every request pass. The others hold each user, by the header
//! `x-user-id`, to one rate: `check_sdk` and `check_abi` by a value of shared data, by way of the SDK
//! `proxy-wasm` or of the bare ABI, `check_local` by one in the memory of the sandbox, which no other worker
//! sees. `check_page` makes all the calls that Loudou makes for a plain request: users share pages of 952 bytes,
//! it reads a metric, counts, and is entered four times. They have one fixed limit, no errors, metrics or admin API, and trust what Envoy gives them: they are
//! there to be measured, not to be used.

#[cfg(target_arch = "wasm32")]
pub mod abi;

/// The header that names a user.
pub const USER: &str = "x-user-id";
/// The time in which one request's token comes back.
const TOKEN_NS: u64 = 1_000;
/// The time in which a full bucket's tokens come back: a million requests, which no user makes at once.
const FULL_NS: u64 = 1_000_000_000;

/// The state after a request at `now_ns`, or none if it is refused; by GCRA, from the instant at which the bucket
/// would have been full again.
#[must_use]
pub const fn take(full_at_ns: u64, now_ns: u64) -> Option<u64> {
    let from_ns = if full_at_ns > now_ns {
        full_at_ns
    } else {
        now_ns
    };
    let next_ns = from_ns.saturating_add(TOKEN_NS);
    if next_ns.saturating_sub(now_ns) > FULL_NS {
        None
    } else {
        Some(next_ns)
    }
}

/// The hash of a user: FNV-1a.
#[must_use]
pub fn hash(user: &[u8]) -> u32 {
    user.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_pass_at_once() {
        let mut state = 0;
        for _ in 0..1_000_000 {
            state = take(state, 7).expect("a token");
        }
        assert_eq!(take(state, 7), None);
        assert_eq!(take(state, 7 + TOKEN_NS), Some(state + TOKEN_NS));
    }
}
