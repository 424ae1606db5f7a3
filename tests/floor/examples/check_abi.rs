//! A filter that holds each user to a rate by a value of shared data, with nothing but the unavoidable calls.
#![cfg(target_arch = "wasm32")]

use loudou_floor::abi::{now_ns, share, shared};
use loudou_floor::{filter, take};

fn passes(user: &[u8]) -> bool {
    let now_ns = now_ns();
    loop {
        let (state, version) = shared(user);
        let state = state.and_then(|state| state.try_into().ok());
        let Some(next) = take(state.map_or(0, u64::from_le_bytes), now_ns) else {
            return false;
        };
        if share(user, &next.to_le_bytes(), version) {
            return true;
        }
    }
}

filter!(passes);
