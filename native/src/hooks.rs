//! The functions that Envoy calls.
//!
//! A panic must not leave them, because it would abort Envoy. It is caught, logged and counted, and
//! the request of the callback passes.
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::{Arc, Once};

use loudou_filter::role::Action;

use crate::abi::{self, EnvoyBytes, EnvoyConfig, EnvoyHeader, EnvoyStream};
use crate::host::log;
use crate::plugin::Configuration;
use loudou_filter::host::LogLevel;

/// A request, as Envoy keeps it for the module.
struct Handle {
    configuration: *const Configuration,
    /// Slot of the worker.
    worker: usize,
    /// Number of the request. 0 before its headers and after its end.
    number: u32,
    /// True if the module must see the headers of the response.
    needs_response: bool,
    /// True if the module must see the body of the response.
    settles: bool,
    /// True unless the request continued at once: it may have been held, or wait for its body.
    was_paused: bool,
}

/// Instructions to Envoy after the request's headers (`FilterHeadersStatus`).
mod headers {
    pub(super) const CONTINUE: u32 = 0;
    /// The body is still passed to the filter.
    pub(super) const STOP_ITERATION: u32 = 1;
    /// The body waits with the headers, and Envoy stops reading when its buffers are full.
    pub(super) const STOP_ALL_AND_WATERMARK: u32 = 4;
}

/// Instructions to Envoy after a part of the request's body (`FilterDataStatus`).
mod data {
    pub(super) const CONTINUE: u32 = 0;
    pub(super) const STOP_AND_BUFFER: u32 = 1;
}

/// Calls `f`, and returns `otherwise` if it panics.
fn guard<T>(configuration: Option<&Configuration>, otherwise: T, f: impl FnOnce() -> T) -> T {
    let result = catch_unwind(AssertUnwindSafe(f));
    result.unwrap_or_else(|_| {
        // Counting may panic for the same reason.
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

/// Loads the module, on the main thread. Returns the ABI version.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_hook(Box::new(|panic| log(LogLevel::Error, &format!("{panic}"))));
    });
    abi::VERSION.as_ptr()
}

/// Creates a configuration, on the main thread. Returns null if the configuration is refused.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: EnvoyConfig,
    name: EnvoyBytes,
    json: EnvoyBytes,
) -> *const c_void {
    guard(None, std::ptr::null(), || {
        // SAFETY: Envoy passes bytes that are valid in this callback.
        let (name, json) = unsafe { (name.copy(), json.copy()) };
        let configuration = Configuration::new(envoy, &name, &json);
        configuration.map_or(std::ptr::null(), |new| Arc::into_raw(new).cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) {
    guard(None, (), || {
        // SAFETY: the pointer comes from `config_new`, and Envoy does not use it again.
        let configuration = unsafe { Arc::from_raw(config.cast::<Configuration>()) };
        configuration.close();
    });
}

/// Refuses every configuration of a route, because rules themselves select the requests that they
/// limit.
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

/// Creates a request, on its worker. Envoy would close the request's stream if this returned null.
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
    // SAFETY: the pointer comes from `filter_new`. The callbacks inside `request_headers`, if there
    // are any, use the handle only after this reference's last use.
    let (configuration, worker) = unsafe {
        let handle = &*handle.cast::<Handle>();
        (configuration_of(handle), handle.worker)
    };
    // A call of the admin API has a token, which must not reach other filters. The call waits until its client gives
    // up.
    let otherwise = if configuration.is_admin() {
        headers::STOP_ALL_AND_WATERMARK
    } else {
        headers::CONTINUE
    };
    guard(Some(configuration), otherwise, || {
        #[cfg(feature = "trap-for-tests")]
        trap(stream, b"headers");
        let begin = |number| {
            // SAFETY: as above. Nobody else has a reference now.
            let handle = unsafe { &mut *handle.cast::<Handle>() };
            (handle.number, handle.needs_response) = (number, true);
            (handle.settles, handle.was_paused) = (true, true);
        };
        let started = configuration.request_headers(worker, stream, !end_of_stream, begin);
        if started.action == Action::Continue {
            // SAFETY: as above. A request that continues was not answered, so it still exists.
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

/// Calls `f` with the configuration and the address of a request whose headers were seen.
///
/// # Safety
///
/// `handle` must come from [`envoy_dynamic_module_on_http_filter_new`].
unsafe fn with<T>(
    handle: *const c_void,
    otherwise: T,
    f: impl FnOnce(&Configuration, (usize, u32)) -> T,
) -> T {
    // SAFETY: as the caller guarantees. The reference ends before `f` runs.
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

/// Ends a request, before Envoy writes access logs.
#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    stream: EnvoyStream,
    handle: *mut c_void,
) {
    // SAFETY: the pointer comes from `filter_new`, and nobody else has a reference now.
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
    // SAFETY: the pointer comes from `filter_new`, and Envoy does not use it again.
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

/// Calls back a held request on its worker.
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

/// Calls back a configuration on the main thread.
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

/// Ends a call, on the main thread.
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
    // SAFETY: the pointer comes from `config_new`, and the others are as Envoy passes them.
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

/// Panics at the request of a test, in the hook that the header names.
#[cfg(feature = "trap-for-tests")]
fn trap(stream: EnvoyStream, hook: &[u8]) {
    let wanted = stream.header(abi::Map::Request, "x-loudou-trap");
    assert!(wanted.as_deref() != Some(hook), "a test requested it");
}

// Hooks that Envoy requires, and that the module has no use for.

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
