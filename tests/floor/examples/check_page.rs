//! A filter that holds each user to a rate by a page of shared data, and makes all the calls of Loudou's plain
//! request: four entries, a clock, a metric to read, the key, a page to read and to write, and a count.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use core::cell::Cell;

use loudou_floor::abi::{count, counter, monotonic_ns, share, shared};
use loudou_floor::{filter, hash, take};

const PAGES: u32 = 4_096;
const PAGE_BYTES: usize = 952;
const STATE_BYTES: usize = 8;

thread_local! {
    static ADMITTED: Cell<Option<u32>> = const { Cell::new(None) };
}

fn admitted() -> u32 {
    ADMITTED.with(|admitted| {
        admitted.get().unwrap_or_else(|| {
            let id = counter("floor.admitted");
            admitted.set(Some(id));
            id
        })
    })
}

fn passes(user: &[u8]) -> bool {
    let now_ns = monotonic_ns();
    let admitted = admitted();
    let hash = hash(user);
    let mut key = *b"floor:page:0000";
    if let Some(place) = key.last_chunk_mut() {
        *place = (hash % PAGES).to_le_bytes();
    }
    let slots = u32::try_from(PAGE_BYTES / STATE_BYTES).unwrap_or(1);
    let at = usize::try_from((hash / PAGES) % slots).unwrap_or(0) * STATE_BYTES;
    loop {
        let (found, version) = shared(&key);
        let mut page = [0; PAGE_BYTES];
        if let Some(found) = found.and_then(|found| found.first_chunk()) {
            page = *found;
        }
        let Some(state) = page.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) else {
            return true;
        };
        let Some(next) = take(u64::from_le_bytes(*state), now_ns) else {
            return false;
        };
        *state = next.to_le_bytes();
        if share(&key, &page, version) {
            count(admitted);
            return true;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(_context: u32, _root: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(_context: u32, _count: u32, _end: u32) -> u32 {
    0
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(_context: u32) -> u32 {
    1
}

filter!(passes);
