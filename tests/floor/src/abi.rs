//! The host functions that a check cannot do without, and memory for their answers that is taken back with
//! each request.
#![expect(unsafe_code, reason = "the ABI is C functions over pointers")]

use core::cell::{Cell, UnsafeCell};
use core::ptr::{null, null_mut};
use core::slice;

use crate::USER;

const OK: u32 = 0;
const REQUEST_HEADERS: u32 = 0;
const TOO_MANY_REQUESTS: u32 = 429;
const NO_GRPC_STATUS: i32 = -1;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_len: usize,
        value: *const u8,
        value_len: usize,
        cas: u32,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_len: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_get_metric(id: u32, value: *mut u64) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_len: usize,
        body: *const u8,
        body_len: usize,
        headers: *const u8,
        headers_len: usize,
        grpc_status: i32,
    ) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
}

const MONOTONIC: u32 = 1;
const COUNTER: u32 = 0;
const WORDS: usize = 8_192;

/// Memory for what the host returns during one request.
struct Arena {
    words: UnsafeCell<[u64; WORDS]>,
    used: Cell<usize>,
}

// SAFETY: a sandbox has one thread.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena {
    words: UnsafeCell::new([0; WORDS]),
    used: Cell::new(0),
};

/// Memory for the host to write an answer into; null if there is none left.
pub fn allocate(bytes: usize) -> *mut u8 {
    let at = ARENA.used.get();
    let end = at.saturating_add(bytes.div_ceil(8));
    if end > WORDS {
        return null_mut();
    }
    ARENA.used.set(end);
    // SAFETY: `at` is within the arena, whose words are only read through what was handed out.
    unsafe { ARENA.words.get().cast::<u64>().add(at).cast() }
}

/// Takes back the memory of the request before.
pub fn begin() {
    ARENA.used.set(0);
}

/// The wall clock.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = 0;
    // SAFETY: the host writes one number.
    unsafe { proxy_get_current_time_nanoseconds(&raw mut time) };
    time
}

/// The monotonic clock.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = 0;
    // SAFETY: the host writes one number.
    unsafe { clock_time_get(MONOTONIC, 0, &raw mut time) };
    time
}

/// The counter of this name.
#[must_use]
pub fn counter(name: &str) -> u32 {
    let mut id = 0;
    // SAFETY: the pointers are valid during the call.
    unsafe { proxy_define_metric(COUNTER, name.as_ptr(), name.len(), &raw mut id) };
    id
}

/// Counts one, and returns the count before that.
pub fn count(counter: u32) -> u64 {
    let mut value = 0;
    // SAFETY: the host writes one number.
    unsafe {
        proxy_get_metric(counter, &raw mut value);
        proxy_increment_metric(counter, 1);
    }
    value
}

/// What the host returned, until the next request.
fn answer(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<&'static [u8]> {
    let (mut data, mut len) = (null_mut(), 0);
    if call(&raw mut data, &raw mut len) != OK || data.is_null() {
        return None;
    }
    // SAFETY: the host wrote `len` bytes to memory of `allocate`.
    Some(unsafe { slice::from_raw_parts(data, len) })
}

/// The user of the current request.
#[must_use]
pub fn user() -> Option<&'static [u8]> {
    answer(|data, len| {
        // SAFETY: the pointers are valid during the call.
        unsafe { proxy_get_header_map_value(REQUEST_HEADERS, USER.as_ptr(), USER.len(), data, len) }
    })
}

/// A value of shared data, and its version; 0 if there is none.
#[must_use]
pub fn shared(key: &[u8]) -> (Option<&'static [u8]>, u32) {
    let mut version = 0;
    let value = answer(|data, len| {
        // SAFETY: the pointers are valid during the call.
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), data, len, &raw mut version) }
    });
    (value, version)
}

/// Replaces a value of shared data, unless it has another version by now.
#[must_use]
pub fn share(key: &[u8], value: &[u8], version: u32) -> bool {
    // SAFETY: the pointers are valid during the call.
    let status = unsafe {
        proxy_set_shared_data(
            key.as_ptr(),
            key.len(),
            value.as_ptr(),
            value.len(),
            version,
        )
    };
    status == OK
}

/// Refuses the current request.
pub fn refuse() {
    // SAFETY: the host reads nothing where the lengths are zero.
    unsafe {
        proxy_send_local_response(
            TOO_MANY_REQUESTS,
            null(),
            0,
            null(),
            0,
            null(),
            0,
            NO_GRPC_STATUS,
        )
    };
}

/// The functions that Envoy calls of a filter whose check of a request is `$passes`, a function from the user to
/// whether it passes.
#[macro_export]
macro_rules! filter {
    ($passes:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn proxy_abi_version_0_2_1() {}

        #[unsafe(no_mangle)]
        extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
            $crate::abi::allocate(size)
        }

        #[unsafe(no_mangle)]
        extern "C" fn proxy_on_request_headers(_context: u32, _count: u32, _end: u32) -> u32 {
            $crate::abi::begin();
            let refused = $crate::abi::user().is_some_and(|user| !$passes(user));
            if refused {
                $crate::abi::refuse();
            }
            refused.into()
        }
    };
}
