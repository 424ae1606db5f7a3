//! A filter that holds each user to a rate by a value of shared data, with nothing but the unavoidable calls.
#![cfg(target_arch = "wasm32")]

use loudou_floor::abi::{now_ns, share, shared};
use loudou_floor::{filter, take};

fn passes(user: &[u8]) -> bool {
    let now_ns = now_ns();
    loop {
        let (state, version) = shared(user);
        let Some(next) = take(state, now_ns) else {
            return false;
        };
        if share(user, next, version) {
            return true;
        }
    }
}

filter!(passes);
