//! Non-panicking wrappers for the host functions of the proxy-wasm ABI 0.2.1.
//!
//! The proxy-wasm SDK panics on an unexpected status. In this module, statuses are plain numbers,
//! and unknown numbers are treated as failures. The host calls `proxy_on_memory_allocate` to
//! allocate each buffer that it returns, with the exact length of the data, and this module takes
//! ownership of the buffer.

#![expect(unsafe_code, reason = "the ABI is C functions over pointers")]

use std::ptr::null_mut;

use loudou_limiter::Nanos;
use loudou_store::{Cas, StoreFailed, Written};

use crate::header_lines;
use crate::header_lines::HeaderLines;
use crate::host::{Host, LogLevel, MetricId, MetricKind, Outgoing, Reply};

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;

const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const REQUEST_BODY: u32 = 0;
const REQUEST: u32 = 0;
const PLUGIN_CONFIGURATION: u32 = 7;
const MONOTONIC: u32 = 1;
const CRITICAL: u32 = 5;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, text: *const u8, len: usize) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_get_buffer_bytes(
        kind: u32,
        start: usize,
        most: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, len: *mut usize) -> u32;
    fn proxy_get_header_map_size(map: u32, size: *mut usize) -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    fn proxy_get_property(
        path: *const u8,
        path_len: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_set_property(
        path: *const u8,
        path_len: usize,
        value: *const u8,
        value_len: usize,
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
    fn proxy_define_metric(kind: u32, name: *const u8, name_len: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(kind: u32) -> u32;
    fn proxy_get_metric(id: u32, value: *mut u64) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
    fn random_get(bytes: *mut u8, len: usize) -> u32;
}

/// Calls a host function that returns bytes. The error is the status that the host function
/// returned.
fn bytes(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Result<Vec<u8>, u32> {
    let mut data = null_mut();
    let mut len = 0;
    match call(&raw mut data, &raw mut len) {
        OK if data.is_null() => Ok(Vec::new()),
        OK => {
            // SAFETY: the host filled a buffer of `len` bytes. It was allocated for this call by
            // this module's allocator, as a boxed slice of that length, and the host does not
            // retain a pointer to it.
            let owned = unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(data, len)) };
            Ok(owned.into_vec())
        }
        status => Err(status),
    }
}

/// Returns the configuration of the plugin that Envoy is configuring.
pub(super) fn plugin_configuration() -> Option<Vec<u8>> {
    // SAFETY: the pointers point to live variables in `bytes`.
    bytes(|data, len| unsafe {
        proxy_get_buffer_bytes(PLUGIN_CONFIGURATION, 0, usize::MAX, data, len)
    })
    .ok()
}

/// Sets the period of this plugin's timer, in milliseconds. 0 stops the timer.
pub(super) fn set_tick_period_ms(period: u32) {
    // SAFETY: no pointers are passed.
    let _status = unsafe { proxy_set_tick_period_milliseconds(period) };
}

/// Logs the panic that is about to kill the VM.
pub(super) fn log_panic(what: &str) {
    log(CRITICAL, what);
}

fn log(level: u32, line: &str) {
    // SAFETY: the pointer and length describe a live string.
    let _status = unsafe { proxy_log(level, line.as_ptr(), line.len()) };
}

/// Implements [`Host`] with Envoy's host functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnvoyHost;

impl Host for EnvoyHost {
    fn now(&self) -> Nanos {
        let mut time = 0;
        // SAFETY: the pointer points to a live local variable.
        let _errno = unsafe { clock_time_get(MONOTONIC, 1, &raw mut time) };
        Nanos::new(time)
    }

    fn unix(&self) -> Nanos {
        let mut time = 0;
        // SAFETY: the pointer points to a live local variable.
        let _status = unsafe { proxy_get_current_time_nanoseconds(&raw mut time) };
        Nanos::new(time)
    }

    fn random(&self) -> [u8; 16] {
        let mut random = [0; 16];
        // SAFETY: the pointer and length describe a live array.
        let errno = unsafe { random_get(random.as_mut_ptr(), random.len()) };
        if errno != 0 {
            self.log(
                LogLevel::Error,
                "the host has no random bytes, so clients can predict the placement of pages",
            );
        }
        random
    }

    fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        header_of(REQUEST_HEADERS, name)
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        header_of(RESPONSE_HEADERS, name)
    }

    fn request_headers(&self) -> Option<HeaderLines> {
        // SAFETY: the pointers point to live variables in `bytes`.
        bytes(|data, len| unsafe { proxy_get_header_map_pairs(REQUEST_HEADERS, data, len) })
            .ok()
            .map(HeaderLines::new)
    }

    fn request_headers_size(&self) -> u64 {
        let mut size = 0;
        // SAFETY: the pointer points to a live local variable.
        match unsafe { proxy_get_header_map_size(REQUEST_HEADERS, &raw mut size) } {
            OK => u64::try_from(size).unwrap_or(u64::MAX),
            _ => 0,
        }
    }

    fn property(&self, path: &str) -> Option<Vec<u8>> {
        // SAFETY: the pointer and length describe a live string, and the other pointers point to
        // live variables in `bytes`.
        bytes(|data, len| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, len) }).ok()
    }

    fn request_body(&self, most: usize) -> Option<Vec<u8>> {
        // SAFETY: the pointers point to live variables in `bytes`.
        bytes(|data, len| unsafe { proxy_get_buffer_bytes(REQUEST_BODY, 0, most, data, len) }).ok()
    }

    fn add_response_header(&self, name: &str, value: &str) {
        // SAFETY: the pointers and lengths describe live strings.
        let _status = unsafe {
            proxy_add_header_map_value(
                RESPONSE_HEADERS,
                name.as_ptr(),
                name.len(),
                value.as_ptr(),
                value.len(),
            )
        };
    }

    fn set_request_header(&self, name: &str, value: &str) {
        set_header(REQUEST_HEADERS, name, value);
    }

    fn set_property(&self, name: &str, value: &str) {
        // SAFETY: the pointers and lengths describe live strings.
        let _status =
            unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
    }

    fn set_response_header(&self, name: &str, value: &str) {
        set_header(RESPONSE_HEADERS, name, value);
    }

    fn reply(&self, reply: &Reply) {
        let headers = reply.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let headers = header_lines::serialized(headers);
        // SAFETY: the pointers and lengths describe live buffers. -1 means "no gRPC status".
        let status = unsafe {
            proxy_send_local_response(
                reply.status.into(),
                reply.details.as_ptr(),
                reply.details.len(),
                reply.body.as_ptr(),
                reply.body.len(),
                headers.as_ptr(),
                headers.len(),
                reply.grpc_status.map_or(-1, i32::from),
            )
        };
        if status != OK {
            self.log(
                LogLevel::Error,
                &format!("the host could not send an answer: status {status}"),
            );
        }
    }

    fn reply_to(&self, stream: u32, reply: &Reply) {
        // SAFETY: no pointers are passed. The host function fails for a stream that no longer
        // exists.
        if unsafe { proxy_set_effective_context(stream) } == OK {
            self.reply(reply);
        }
    }

    fn resume(&self, stream: u32) {
        // SAFETY: no pointers are passed. `proxy_set_effective_context` fails for a stream that no
        // longer exists.
        let _status = unsafe {
            match proxy_set_effective_context(stream) {
                OK => proxy_continue_stream(REQUEST),
                status => status,
            }
        };
    }

    fn focus(&self, stream: u32) -> bool {
        // SAFETY: no pointers are passed. The host function fails for a stream that no longer
        // exists.
        unsafe { proxy_set_effective_context(stream) == OK }
    }

    fn call(&self, request: &Outgoing<'_>) -> Option<u32> {
        send(request)
    }

    fn called_header(&self, name: &str) -> Option<Vec<u8>> {
        header(name)
    }

    fn called_body(&self, most: usize) -> Option<Vec<u8>> {
        body(most)
    }

    fn set_timer_ms(&self, period: u32) {
        set_tick_period_ms(period);
    }

    fn shared_get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        let mut cas = 0;
        // SAFETY: the pointers and lengths describe a live slice and live local variables.
        let read = bytes(|data, len| unsafe {
            proxy_get_shared_data(key.as_ptr(), key.len(), data, len, &raw mut cas)
        });
        match read {
            Ok(bytes) => {
                *value = bytes;
                Ok(Some(cas))
            }
            Err(NOT_FOUND) => {
                value.clear();
                Ok(None)
            }
            Err(_) => Err(StoreFailed),
        }
    }

    fn shared_set(&self, key: &[u8], value: &[u8], expected: Cas) -> Result<Written, StoreFailed> {
        // SAFETY: the pointers and lengths describe live slices.
        let status = unsafe {
            proxy_set_shared_data(
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                expected,
            )
        };
        match status {
            OK => Ok(Written::Done),
            CAS_MISMATCH => Ok(Written::Conflict),
            _ => Err(StoreFailed),
        }
    }

    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        let kind = match kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge => 1,
            MetricKind::Histogram => 2,
        };
        let mut id = 0;
        // SAFETY: the pointers and length describe a live string and a live local variable.
        let status = unsafe { proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut id) };
        (status == OK).then_some(MetricId(id))
    }

    fn add_to_metric(&self, id: MetricId, offset: i64) {
        // SAFETY: no pointers are passed.
        let _status = unsafe { proxy_increment_metric(id.0, offset) };
    }

    fn record(&self, id: MetricId, value: u64) {
        // SAFETY: no pointers are passed.
        let _status = unsafe { proxy_record_metric(id.0, value) };
    }

    fn read_metric(&self, id: MetricId) -> Option<u64> {
        let mut value = 0;
        // SAFETY: the pointer points to a live local variable.
        let status = unsafe { proxy_get_metric(id.0, &raw mut value) };
        (status == OK).then_some(value)
    }

    fn log(&self, level: LogLevel, line: &str) {
        let level = match level {
            LogLevel::Info => 2,
            LogLevel::Warn => 3,
            LogLevel::Error => 4,
        };
        log(level, line);
    }
}

fn header_of(map: u32, name: &str) -> Option<Vec<u8>> {
    // SAFETY: the pointers and lengths describe a live string and live variables in `bytes`.
    bytes(|data, len| unsafe {
        proxy_get_header_map_value(map, name.as_ptr(), name.len(), data, len)
    })
    .ok()
}

fn set_header(map: u32, name: &str, value: &str) {
    // SAFETY: the pointers and lengths describe live strings.
    let _status = unsafe {
        proxy_replace_header_map_value(map, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
}

// HTTP requests to other services. The responses arrive in a callback.

const CALLED_HEADERS: u32 = 6;
const CALLED_BODY: u32 = 4;
/// An empty header map.
const NO_TRAILERS: [u8; 4] = [0; 4];

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_http_call(
        cluster: *const u8,
        cluster_len: usize,
        headers: *const u8,
        headers_len: usize,
        body: *const u8,
        body_len: usize,
        trailers: *const u8,
        trailers_len: usize,
        timeout_ms: u32,
        call: *mut u32,
    ) -> u32;
}

/// Sends an HTTP request. Returns the call ID, or `None` if the host refuses to send the request.
fn send(request: &Outgoing<'_>) -> Option<u32> {
    let own = [
        (":method", "POST"),
        (":path", request.path),
        (":authority", request.cluster),
    ];
    let headers: Vec<_> = own.iter().chain(request.headers).collect();
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let headers = header_lines::serialized(headers);
    let mut call = 0;
    // SAFETY: the pointers and lengths describe live buffers and a live local variable.
    let status = unsafe {
        proxy_http_call(
            request.cluster.as_ptr(),
            request.cluster.len(),
            headers.as_ptr(),
            headers.len(),
            request.body.as_ptr(),
            request.body.len(),
            NO_TRAILERS.as_ptr(),
            NO_TRAILERS.len(),
            // Envoy would interpret 0 as "no timeout".
            request.timeout_ms.max(1),
            &raw mut call,
        )
    };
    (status == OK).then_some(call)
}

/// Returns a header from the response to a call.
fn header(name: &str) -> Option<Vec<u8>> {
    // SAFETY: the pointers and lengths describe a live string and live variables in `bytes`.
    bytes(|data, len| unsafe {
        proxy_get_header_map_value(CALLED_HEADERS, name.as_ptr(), name.len(), data, len)
    })
    .ok()
}

/// Returns up to `most` bytes from the start of the response body.
fn body(most: usize) -> Option<Vec<u8>> {
    // SAFETY: the pointers point to live variables in `bytes`.
    bytes(|data, len| unsafe { proxy_get_buffer_bytes(CALLED_BODY, 0, most, data, len) }).ok()
}
