//! The event hooks of the module, which Envoy calls.
//!
//! A panic that left a hook would abort Envoy. Each hook therefore catches the panic, counts it,
//! and lets the request continue; the panic hook logs it.
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::{Arc, Once};

use loudou_filter::role::Action;

use crate::abi::{self, EnvoyBytes, EnvoyConfig, EnvoyHeader, EnvoyStream};
use crate::host::log;
use crate::plugin::Configuration;
use loudou_filter::host::LogLevel;

/// The module's object for a request, to which Envoy keeps a pointer.
struct Handle {
    configuration: *const Configuration,
    /// Index of the worker's slot.
    worker: usize,
    /// Number of the request; 0 before its headers arrive and after it ends.
    number: u32,
    /// True if the module must process the response headers.
    needs_response: bool,
    /// True if the module must process the response body.
    settles: bool,
    /// False if the request continued immediately; true if it may have been held or may still wait
    /// for its body.
    was_paused: bool,
}

/// Return values of the request headers hook (`FilterHeadersStatus`).
mod headers {
    pub(super) const CONTINUE: u32 = 0;
    /// Envoy holds the headers, but still passes the body to the filter.
    pub(super) const STOP_ITERATION: u32 = 1;
    /// Envoy holds the headers and the body, and stops reading when its buffers are full.
    pub(super) const STOP_ALL_AND_WATERMARK: u32 = 4;
}

/// Return values of the request body hook (`FilterDataStatus`).
mod data {
    pub(super) const CONTINUE: u32 = 0;
    pub(super) const STOP_AND_BUFFER: u32 = 1;
}

/// Calls `f`, and returns `otherwise` if it panics.
fn guard<T>(configuration: Option<&Configuration>, otherwise: T, f: impl FnOnce() -> T) -> T {
    let result = catch_unwind(AssertUnwindSafe(f));
    result.unwrap_or_else(|_| {
        // The counting code may panic for the same reason.
        let _counted = catch_unwind(AssertUnwindSafe(|| {
            configuration
                .into_iter()
                .for_each(Configuration::count_panic);
        }));
        otherwise
    })
}

/// Returns the configuration of a request.
///
/// # Safety
///
/// `handle` must come from [`envoy_dynamic_module_on_http_filter_new`].
unsafe fn configuration_of(handle: &Handle) -> &Configuration {
    // SAFETY: Envoy destroys a configuration after the last of its requests.
    unsafe { &*handle.configuration }
}

/// Initializes the module on the main thread, and returns the ABI version.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_hook(Box::new(|panic| log(LogLevel::Error, &format!("{panic}"))));
    });
    abi::VERSION.as_ptr()
}

/// Creates a configuration on the main thread. Returns null if the module rejects the
/// configuration.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: EnvoyConfig,
    name: EnvoyBytes,
    json: EnvoyBytes,
) -> *const c_void {
    guard(None, std::ptr::null(), || {
        // SAFETY: Envoy passes bytes that are valid during this callback.
        let (name, json) = unsafe { (name.copy(), json.copy()) };
        let configuration = Configuration::new(envoy, &name, &json);
        configuration.map_or(std::ptr::null(), |new| Arc::into_raw(new).cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) {
    guard(None, (), || {
        // SAFETY: the pointer comes from `config_new`, and this is its last use.
        let configuration = unsafe { Arc::from_raw(config.cast::<Configuration>()) };
        configuration.close();
    });
}

/// Rejects every per-route configuration: the `match` of each rule already selects the requests
/// that it limits.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
    _name: EnvoyBytes,
    _json: EnvoyBytes,
) -> *const c_void {
    log(
        LogLevel::Error,
        "configuration: loudou has no configuration per route; select requests by `match` in a rule",
    );
    std::ptr::null()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(_config: *const c_void) {
}

/// Creates the module's object for a request, on the worker of the request. Never returns null,
/// because Envoy would then close the stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_new(
    config: *const c_void,
    stream: EnvoyStream,
) -> *const c_void {
    let configuration = config.cast::<Configuration>();
    // SAFETY: the pointer comes from `config_new`, and the configuration outlives its requests.
    let worker = unsafe { &*configuration }.slot_of(stream.worker());
    let handle = Handle {
        configuration,
        worker,
        number: 0,
        needs_response: false,
        settles: false,
        was_paused: false,
    };
    Box::into_raw(Box::new(handle)).cast_const().cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    stream: EnvoyStream,
    handle: *mut c_void,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointer comes from `filter_new`. Callbacks that Envoy invokes inside
    // `request_headers` use the handle only after the last use of this reference.
    let (configuration, worker) = unsafe {
        let handle = &*handle.cast::<Handle>();
        (configuration_of(handle), handle.worker)
    };
    // A request to the admin API carries a token, which other filters must not see. If its handling panics, the request
    // is therefore held until its client gives up.
    let otherwise = if configuration.is_admin() {
        headers::STOP_ALL_AND_WATERMARK
    } else {
        headers::CONTINUE
    };
    guard(Some(configuration), otherwise, || {
        #[cfg(feature = "trap-for-tests")]
        trap(stream, b"headers");
        let begin = |number| {
            // SAFETY: as above. No other reference to the handle exists at this point.
            let handle = unsafe { &mut *handle.cast::<Handle>() };
            (handle.number, handle.needs_response) = (number, true);
            (handle.settles, handle.was_paused) = (true, true);
        };
        let started = configuration.request_headers(worker, stream, !end_of_stream, begin);
        if started.action == Action::Continue {
            // SAFETY: as above. A request that continues was not answered, so its handle still
            // exists.
            let handle = unsafe { &mut *handle.cast::<Handle>() };
            handle.needs_response = started.needs_response;
            handle.settles = started.settles;
            handle.was_paused = false;
        }
        match started.action {
            Action::Continue => headers::CONTINUE,
            Action::AwaitBody => headers::STOP_ITERATION,
            Action::Pause => headers::STOP_ALL_AND_WATERMARK,
        }
    })
}

/// Calls `f` with the configuration, and with the worker and the number of the request.
///
/// # Safety
///
/// `handle` must come from [`envoy_dynamic_module_on_http_filter_new`].
unsafe fn with<T>(
    handle: *const c_void,
    otherwise: T,
    f: impl FnOnce(&Configuration, (usize, u32)) -> T,
) -> T {
    // SAFETY: `handle` is valid, as the caller guarantees. The reference ends before `f` runs.
    let (configuration, worker, number) = unsafe {
        let handle = &*handle.cast::<Handle>();
        (configuration_of(handle), handle.worker, handle.number)
    };
    guard(Some(configuration), otherwise, || {
        f(configuration, (worker, number))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    stream: EnvoyStream,
    handle: *const c_void,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointer comes from `filter_new`.
    unsafe {
        if !(*handle.cast::<Handle>()).was_paused && cfg!(not(feature = "trap-for-tests")) {
            return data::CONTINUE;
        }
        with(handle, data::CONTINUE, |configuration, at| {
            #[cfg(feature = "trap-for-tests")]
            trap(stream, b"body");
            let action = configuration.request_rest(at, stream, end_of_stream);
            if action == Action::Continue {
                data::CONTINUE
            } else {
                data::STOP_AND_BUFFER
            }
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    stream: EnvoyStream,
    handle: *const c_void,
) -> u32 {
    // SAFETY: the pointer comes from `filter_new`.
    unsafe {
        if !(*handle.cast::<Handle>()).was_paused {
            return 0;
        }
        with(handle, 0, |configuration, at| {
            let action = configuration.request_rest(at, stream, true);
            u32::from(action != Action::Continue)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    stream: EnvoyStream,
    handle: *const c_void,
    _end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointer comes from `filter_new`.
    unsafe {
        if !(*handle.cast::<Handle>()).needs_response && cfg!(not(feature = "trap-for-tests")) {
            return headers::CONTINUE;
        }
        with(handle, (), |configuration, at| {
            #[cfg(feature = "trap-for-tests")]
            trap(stream, b"response");
            configuration.response_headers(at, stream);
        });
    }
    headers::CONTINUE
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    stream: EnvoyStream,
    handle: *const c_void,
    _end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointer comes from `filter_new`.
    unsafe {
        if (*handle.cast::<Handle>()).settles {
            with(handle, (), |configuration, at| {
                configuration.response_body(at, stream);
            });
        }
    }
    data::CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    _stream: EnvoyStream,
    _handle: *const c_void,
) -> u32 {
    0
}

/// Ends a request; Envoy calls this before it writes access logs.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    stream: EnvoyStream,
    handle: *mut c_void,
) {
    // SAFETY: the pointer comes from `filter_new`, and no other reference to the handle exists now.
    unsafe {
        let was_held = (*handle.cast::<Handle>()).was_paused;
        with(handle, (), |configuration, at| {
            (*handle.cast::<Handle>()).number = 0;
            #[cfg(feature = "trap-for-tests")]
            trap(stream, b"end");
            configuration.end(at, stream, was_held);
        });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(handle: *mut c_void) {
    // SAFETY: the pointer comes from `filter_new`, and this is its last use.
    let handle = unsafe { Box::from_raw(handle.cast::<Handle>()) };
    // SAFETY: the configuration outlives its requests.
    let configuration = unsafe { configuration_of(&handle) };
    if handle.number != 0 {
        guard(Some(configuration), (), || {
            let at = (handle.worker, handle.number);
            configuration.end(at, EnvoyStream::NONE, handle.was_paused);
        });
    }
}

/// Handles the callback that was scheduled for a held request, on its worker.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    _stream: EnvoyStream,
    handle: *const c_void,
    _event: u64,
) {
    // SAFETY: the pointer comes from `filter_new`.
    unsafe {
        with(handle, (), |configuration, (worker, _)| {
            configuration.serve(worker);
        });
    };
}

/// Handles a callback that was scheduled for the configuration, on the main thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    _envoy: EnvoyConfig,
    config: *const c_void,
    event: u64,
) {
    // SAFETY: the pointer comes from `config_new`.
    let configuration = unsafe { &*config.cast::<Configuration>() };
    guard(Some(configuration), (), || configuration.scheduled(event));
}

/// Handles the completion of an HTTP call, on the main thread.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_http_callout_done(
    _envoy: EnvoyConfig,
    config: *const c_void,
    call: u64,
    _result: u32,
    headers: *const EnvoyHeader,
    header_count: usize,
    chunks: *const EnvoyBytes,
    chunk_count: usize,
) {
    // SAFETY: the pointer comes from `config_new`, and Envoy passes valid headers and chunks.
    let (configuration, headers, body) = unsafe {
        (
            &*config.cast::<Configuration>(),
            abi::copy_headers(headers, header_count),
            abi::copy_chunks(chunks, chunk_count),
        )
    };
    guard(Some(configuration), (), || {
        configuration.called(call, headers, body);
    });
}

/// Panics if the header `x-loudou-trap`, which tests set, names this hook.
#[cfg(feature = "trap-for-tests")]
fn trap(stream: EnvoyStream, hook: &[u8]) {
    let wanted = stream.header(abi::Map::Request, "x-loudou-trap");
    assert!(wanted.as_deref() != Some(hook), "a test requested it");
}

// Hooks that Envoy requires but the module does not use.

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _call: u64,
    _result: u32,
    _headers: *const EnvoyHeader,
    _header_count: usize,
    _chunks: *const EnvoyBytes,
    _chunk_count: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _id: u64,
    _headers: *const EnvoyHeader,
    _header_count: usize,
    _end_of_stream: bool,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _id: u64,
    _chunks: *const EnvoyBytes,
    _chunk_count: usize,
    _end_of_stream: bool,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_trailers(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _id: u64,
    _trailers: *const EnvoyHeader,
    _trailer_count: usize,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _id: u64,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _id: u64,
    _reason: u32,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    _stream: EnvoyStream,
    _handle: *const c_void,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    _stream: EnvoyStream,
    _handle: *const c_void,
) {
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_local_reply(
    _stream: EnvoyStream,
    _handle: *const c_void,
    _status: u32,
    _details: EnvoyBytes,
    _reset_imminent: bool,
) -> u32 {
    0
}
