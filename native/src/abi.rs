//! Declares the functions of Envoy's dynamic module ABI that Loudou calls.
//!
//! The declarations follow `source/extensions/dynamic_modules/abi/abi.h` of Envoy 1.40 (ABI
//! v0.2.0). Pointers that Envoy returns are valid until the end of the current callback, or until
//! the module changes the headers or the metadata that they point into. The wrappers therefore copy
//! the data behind these pointers.
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use std::ffi::c_void;
use std::ptr;

use crate::metadata::{self, Kind, Value};

/// ABI version that the module was written for. Envoy logs a warning if its own version differs.
pub(crate) const VERSION: &std::ffi::CStr = c"v0.2.0";

/// Bytes that the module owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Bytes {
    start: *const u8,
    length: usize,
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self {
            start: bytes.as_ptr(),
            length: bytes.len(),
        }
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

/// Bytes that Envoy owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EnvoyBytes {
    start: *const u8,
    length: usize,
}

impl EnvoyBytes {
    const NONE: Self = Self {
        start: ptr::null(),
        length: 0,
    };

    /// Returns true if these bytes equal `other`.
    ///
    /// # Safety
    ///
    /// Envoy's memory behind these bytes must still be valid.
    unsafe fn is(self, other: &[u8]) -> bool {
        // SAFETY: the caller guarantees that the bytes are valid.
        !self.start.is_null()
            && unsafe { std::slice::from_raw_parts(self.start, self.length) } == other
    }

    /// Copies the bytes.
    ///
    /// # Safety
    ///
    /// Envoy's memory behind these bytes must still be valid.
    pub(crate) unsafe fn copy(self) -> Vec<u8> {
        if self.start.is_null() {
            return Vec::new();
        }
        // SAFETY: the caller guarantees that the bytes are valid.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.to_vec()
    }
}

/// A header whose strings the module owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Header {
    name: Bytes,
    value: Bytes,
}

impl Header {
    fn new(name: &str, value: &str) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// A header whose strings Envoy owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EnvoyHeader {
    name: EnvoyBytes,
    value: EnvoyBytes,
}

/// Copies the response headers that Envoy passes when an HTTP call completes.
///
/// # Safety
///
/// `start` and `count` must be as Envoy passed them to the current callback.
pub(crate) unsafe fn copy_headers(start: *const EnvoyHeader, count: usize) -> Lines {
    if start.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller guarantees that the headers and their strings are valid.
    unsafe {
        let headers = std::slice::from_raw_parts(start, count).iter();
        let copy = |header: &EnvoyHeader| (header.name.copy(), header.value.copy());
        headers.map(copy).collect()
    }
}

/// Copies the response body that Envoy passes when an HTTP call completes.
///
/// # Safety
///
/// `start` and `count` must be as Envoy passed them to the current callback.
pub(crate) unsafe fn copy_chunks(start: *const EnvoyBytes, count: usize) -> Vec<u8> {
    if start.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller guarantees that the chunks are valid.
    unsafe {
        let chunks = std::slice::from_raw_parts(start, count);
        let copies: Vec<Vec<u8>> = chunks.iter().map(|chunk| chunk.copy()).collect();
        copies.concat()
    }
}

/// Header names and values, one pair per header line.
pub(crate) type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// Envoy's filter configuration object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct EnvoyConfig(*mut c_void);

// SAFETY: outside the main thread, Envoy's functions use this object only to look up metrics, which
// never change once the configuration exists, and to update atomic counters.
unsafe impl Send for EnvoyConfig {}
// SAFETY: as above.
unsafe impl Sync for EnvoyConfig {}

/// Envoy's request object. The module uses it only in callbacks on the worker of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct EnvoyStream(*mut c_void);

impl EnvoyStream {
    /// Null value for callbacks that do not belong to a request.
    pub(crate) const NONE: Self = Self(ptr::null_mut());

    const fn is_none(self) -> bool {
        self.0.is_null()
    }
}

// SAFETY: other threads only move the pointer and never dereference it.
unsafe impl Send for EnvoyStream {}

/// Envoy's scheduler object, which schedules a callback for a request on its worker, or for a
/// configuration on the main thread.
#[derive(Debug)]
pub(crate) struct Scheduler {
    object: *mut c_void,
    commit: unsafe extern "C" fn(*mut c_void, u64),
    delete: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: Envoy allows calls of these functions from any thread.
unsafe impl Send for Scheduler {}
// SAFETY: as above.
unsafe impl Sync for Scheduler {}

impl Scheduler {
    /// Creates a scheduler for a request.
    pub(crate) fn of_stream(stream: EnvoyStream) -> Self {
        Self {
            // SAFETY: the request exists, because the caller runs in one of its callbacks.
            object: unsafe { envoy_dynamic_module_callback_http_filter_scheduler_new(stream) },
            commit: envoy_dynamic_module_callback_http_filter_scheduler_commit,
            delete: envoy_dynamic_module_callback_http_filter_scheduler_delete,
        }
    }

    /// Creates a scheduler for a configuration.
    pub(crate) fn of_config(config: EnvoyConfig) -> Self {
        Self {
            // SAFETY: the configuration exists, because this function is called while Envoy creates
            // it.
            object: unsafe {
                envoy_dynamic_module_callback_http_filter_config_scheduler_new(config)
            },
            commit: envoy_dynamic_module_callback_http_filter_config_scheduler_commit,
            delete: envoy_dynamic_module_callback_http_filter_config_scheduler_delete,
        }
    }

    /// Schedules a callback that receives the number `event`. Does nothing if the request or the
    /// configuration has ended.
    pub(crate) fn wake(&self, event: u64) {
        // SAFETY: the scheduler object exists until `self` is dropped.
        unsafe { (self.commit)(self.object, event) };
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: the scheduler object exists, and this is its last use.
        unsafe { (self.delete)(self.object) };
    }
}

/// Header maps of a stream, with Envoy's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Map {
    Request = 0,
    Response = 2,
}

/// Request and response bodies, with Envoy's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Body {
    /// The chunk of the request body that Envoy passes to the current callback.
    Received = 0,
    /// The request body that Envoy has buffered from earlier callbacks.
    Buffered = 1,
    /// The chunk of the response body that Envoy passes to the current callback.
    ReceivedResponse = 2,
}

/// Request attributes, with Envoy's numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Attribute {
    ResponseCode = 15,
    ResponseCodeDetails = 16,
    SourceAddress = 24,
    SourcePort = 25,
    DestinationAddress = 26,
    DestinationPort = 27,
    ConnectionId = 28,
    DnsSanPeerCertificate = 35,
    UriSanPeerCertificate = 37,
    UpstreamLocalAddress = 51,
    UpstreamRequestAttemptCount = 53,
    RouteName = 61,
}

/// Metadata source: dynamic metadata, which earlier filters set.
const DYNAMIC: u32 = 0;
/// Maximum number of elements that are read from a list.
const MAX_ELEMENTS: usize = 256;

/// Returned by the metric functions on success.
const SUCCESS: u32 = 0;

unsafe extern "C" {
    /// Writes a line to Envoy's log at a level from 0 (trace) to 5 (critical).
    fn envoy_dynamic_module_callback_log(level: u32, line: Bytes);
    /// Returns the number of workers. Must be called on the main thread.
    fn envoy_dynamic_module_callback_get_concurrency() -> u32;
    /// Returns true if Envoy was started only to validate its configuration. Must be called on the
    /// main thread.
    fn envoy_dynamic_module_callback_is_validation_mode() -> bool;

    fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: EnvoyConfig,
        name: Bytes,
        labels: *mut Bytes,
        label_count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        config: EnvoyConfig,
        name: Bytes,
        labels: *mut Bytes,
        label_count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_define_histogram(
        config: EnvoyConfig,
        name: Bytes,
        labels: *mut Bytes,
        label_count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_increment_counter(
        config: EnvoyConfig,
        id: usize,
        labels: *mut Bytes,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_increment_gauge(
        config: EnvoyConfig,
        id: usize,
        labels: *mut Bytes,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_decrement_gauge(
        config: EnvoyConfig,
        id: usize,
        labels: *mut Bytes,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_set_gauge(
        config: EnvoyConfig,
        id: usize,
        labels: *mut Bytes,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_record_histogram_value(
        config: EnvoyConfig,
        id: usize,
        labels: *mut Bytes,
        label_count: usize,
        value: u64,
    ) -> u32;

    /// Reads the header's value at `index`; if `count` is not null, stores the number of values
    /// there.
    fn envoy_dynamic_module_callback_http_get_header(
        stream: EnvoyStream,
        map: Map,
        name: Bytes,
        value: *mut EnvoyBytes,
        index: usize,
        count: *mut usize,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_headers_size(stream: EnvoyStream, map: Map) -> usize;
    /// Fills an array that must have space for as many headers as
    /// `envoy_dynamic_module_callback_http_get_headers_size` returns.
    fn envoy_dynamic_module_callback_http_get_headers(
        stream: EnvoyStream,
        map: Map,
        headers: *mut EnvoyHeader,
    ) -> bool;
    /// Appends a header line; existing lines of the same header stay.
    fn envoy_dynamic_module_callback_http_add_header(
        stream: EnvoyStream,
        map: Map,
        name: Bytes,
        value: Bytes,
    ) -> bool;
    /// Sets a header, and removes its existing lines.
    fn envoy_dynamic_module_callback_http_set_header(
        stream: EnvoyStream,
        map: Map,
        name: Bytes,
        value: Bytes,
    ) -> bool;
    /// Sends a response. Before this function returns, Envoy may invoke callbacks of the filters and may end the
    /// stream.
    fn envoy_dynamic_module_callback_http_send_response(
        stream: EnvoyStream,
        status: u32,
        headers: *const Header,
        header_count: usize,
        body: Bytes,
        details: Bytes,
    );
    fn envoy_dynamic_module_callback_http_get_body_size(stream: EnvoyStream, body: Body) -> usize;
    fn envoy_dynamic_module_callback_http_get_body_chunks_size(
        stream: EnvoyStream,
        body: Body,
    ) -> usize;
    /// Fills an array that must have space for as many chunks as
    /// `envoy_dynamic_module_callback_http_get_body_chunks_size` returns.
    fn envoy_dynamic_module_callback_http_get_body_chunks(
        stream: EnvoyStream,
        body: Body,
        chunks: *mut EnvoyBytes,
    ) -> bool;
    /// Returns true if the chunk in the current callback is the buffered body itself.
    fn envoy_dynamic_module_callback_http_received_buffered_request_body(
        stream: EnvoyStream,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        stream: EnvoyStream,
        attribute: Attribute,
        value: *mut EnvoyBytes,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_filter_get_attribute_int(
        stream: EnvoyStream,
        attribute: Attribute,
        value: *mut u64,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_keys_count(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
    ) -> usize;
    /// Fills an array that must have space for as many names as
    /// `envoy_dynamic_module_callback_http_get_metadata_keys_count` returns.
    fn envoy_dynamic_module_callback_http_get_metadata_keys(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        names: *mut EnvoyBytes,
    ) -> bool;
    /// Reads a string value. Like the metadata functions below, returns false if the value has
    /// another type.
    fn envoy_dynamic_module_callback_http_get_metadata_string(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        value: *mut EnvoyBytes,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_number(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        value: *mut f64,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_bool(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        value: *mut bool,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_list_size(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        size: *mut usize,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_list_string(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        index: usize,
        value: *mut EnvoyBytes,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_list_number(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        index: usize,
        value: *mut f64,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_list_bool(
        stream: EnvoyStream,
        source: u32,
        namespace: Bytes,
        key: Bytes,
        index: usize,
        value: *mut bool,
    ) -> bool;
    /// Reads the name of the cluster to which the request is routed.
    fn envoy_dynamic_module_callback_http_get_cluster_name(
        stream: EnvoyStream,
        name: *mut EnvoyBytes,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_set_filter_state_bytes(
        stream: EnvoyStream,
        name: Bytes,
        value: Bytes,
    ) -> bool;
    /// Returns the index of the worker, starting at 0.
    fn envoy_dynamic_module_callback_http_filter_get_worker_index(stream: EnvoyStream) -> u32;
    /// Resumes a paused request.
    fn envoy_dynamic_module_callback_http_filter_continue_decoding(stream: EnvoyStream);

    fn envoy_dynamic_module_callback_http_filter_scheduler_new(stream: EnvoyStream) -> *mut c_void;
    fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
        scheduler: *mut c_void,
        event: u64,
    );
    fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: *mut c_void);
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_new(
        config: EnvoyConfig,
    ) -> *mut c_void;
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit(
        scheduler: *mut c_void,
        event: u64,
    );
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete(scheduler: *mut c_void);

    /// Sends an HTTP request on behalf of the configuration. Must be called on the main thread.
    /// Envoy passes the number in `call` to the callback that delivers the response.
    fn envoy_dynamic_module_callback_http_filter_config_http_callout(
        config: EnvoyConfig,
        call: *mut u64,
        cluster: Bytes,
        headers: *const Header,
        header_count: usize,
        body: Bytes,
        timeout_ms: u64,
    ) -> u32;
}

/// Writes a line to Envoy's log.
pub(crate) fn log(level: u32, line: &str) {
    // SAFETY: `line` is valid during the call.
    unsafe { envoy_dynamic_module_callback_log(level, line.into()) };
}

/// Returns the number of workers. Must be called on the main thread.
pub(crate) fn concurrency() -> usize {
    // SAFETY: the function takes no pointers.
    let count = unsafe { envoy_dynamic_module_callback_get_concurrency() };
    usize::try_from(count).unwrap_or(1)
}

/// Returns true if Envoy was started only to validate its configuration. Must be called on the main
/// thread.
pub(crate) fn only_validates() -> bool {
    // SAFETY: the function takes no pointers.
    unsafe { envoy_dynamic_module_callback_is_validation_mode() }
}

impl EnvoyConfig {
    /// Defines a metric in Envoy; allowed only while Envoy creates the configuration.
    pub(crate) fn define(self, kind: loudou_filter::host::MetricKind, name: &str) -> Option<usize> {
        use loudou_filter::host::MetricKind;
        let define = match kind {
            MetricKind::Counter => envoy_dynamic_module_callback_http_filter_config_define_counter,
            MetricKind::Gauge => envoy_dynamic_module_callback_http_filter_config_define_gauge,
            MetricKind::Histogram => {
                envoy_dynamic_module_callback_http_filter_config_define_histogram
            }
        };
        let mut id = 0;
        // SAFETY: the configuration exists, `name` is valid during the call, and there are no
        // labels.
        let result = unsafe { define(self, name.into(), ptr::null_mut(), 0, &raw mut id) };
        (result == SUCCESS).then_some(id)
    }

    pub(crate) fn add_to_counter(self, id: usize, value: u64) {
        // SAFETY: the configuration exists, and there are no labels.
        let _result = unsafe {
            envoy_dynamic_module_callback_http_filter_config_increment_counter(
                self,
                id,
                ptr::null_mut(),
                0,
                value,
            )
        };
    }

    pub(crate) fn add_to_gauge(self, id: usize, offset: i64) {
        let change = if offset < 0 {
            envoy_dynamic_module_callback_http_filter_config_decrement_gauge
        } else {
            envoy_dynamic_module_callback_http_filter_config_increment_gauge
        };
        // SAFETY: as above.
        let _result = unsafe { change(self, id, ptr::null_mut(), 0, offset.unsigned_abs()) };
    }

    pub(crate) fn set_gauge(self, id: usize, value: u64) {
        // SAFETY: as above.
        let _result = unsafe {
            envoy_dynamic_module_callback_http_filter_config_set_gauge(
                self,
                id,
                ptr::null_mut(),
                0,
                value,
            )
        };
    }

    pub(crate) fn record(self, id: usize, value: u64) {
        // SAFETY: as above.
        let _result = unsafe {
            envoy_dynamic_module_callback_http_filter_config_record_histogram_value(
                self,
                id,
                ptr::null_mut(),
                0,
                value,
            )
        };
    }

    /// Sends an HTTP request. Returns Envoy's number for the call, or `None` if Envoy cannot start
    /// it. Must be called on the main thread.
    pub(crate) fn call(
        self,
        cluster: &str,
        headers: &[(String, String)],
        body: &[u8],
        timeout_ms: u32,
    ) -> Option<u64> {
        let headers: Vec<Header> = headers
            .iter()
            .map(|(name, value)| Header::new(name, value))
            .collect();
        let mut call = 0;
        // SAFETY: the configuration exists, and all strings are valid during the call.
        let result = unsafe {
            envoy_dynamic_module_callback_http_filter_config_http_callout(
                self,
                &raw mut call,
                cluster.into(),
                headers.as_ptr(),
                headers.len(),
                body.into(),
                timeout_ms.max(1).into(),
            )
        };
        (result == SUCCESS).then_some(call)
    }
}

impl EnvoyStream {
    /// Returns the index of the worker, starting at 0.
    pub(crate) fn worker(self) -> usize {
        // SAFETY: the request exists during its callbacks.
        let index = unsafe { envoy_dynamic_module_callback_http_filter_get_worker_index(self) };
        usize::try_from(index).unwrap_or(usize::MAX)
    }

    /// Returns the value in the first line of a header.
    pub(crate) fn header(self, map: Map, name: &str) -> Option<Vec<u8>> {
        self.header_line(map, name, 0)
    }

    fn header_line(self, map: Map, name: &str, index: usize) -> Option<Vec<u8>> {
        if self.is_none() {
            return None;
        }
        let mut value = EnvoyBytes::NONE;
        // SAFETY: the request exists during its callbacks, and `name` and `value` are valid during
        // the call. The value is copied immediately.
        unsafe {
            let found = envoy_dynamic_module_callback_http_get_header(
                self,
                map,
                name.into(),
                &raw mut value,
                index,
                ptr::null_mut(),
            );
            found.then(|| value.copy())
        }
    }

    /// Returns the values in all lines of a request header, joined by commas.
    pub(crate) fn joined_header(self, name: &str) -> Option<Vec<u8>> {
        let mut joined = self.header_line(Map::Request, name, 0)?;
        let mut index: usize = 1;
        while let Some(line) = self.header_line(Map::Request, name, index) {
            joined.push(b',');
            joined.extend(line);
            index = index.saturating_add(1);
        }
        Some(joined)
    }

    /// Returns all request headers.
    pub(crate) fn request_headers(self) -> Lines {
        if self.is_none() {
            return Vec::new();
        }
        // SAFETY: the request exists during its callbacks. The array has space for every header
        // that Envoy counted, and no code changes the headers between the count and the copy. The
        // headers are copied immediately.
        unsafe {
            let count = envoy_dynamic_module_callback_http_get_headers_size(self, Map::Request);
            let none = EnvoyHeader {
                name: EnvoyBytes::NONE,
                value: EnvoyBytes::NONE,
            };
            let mut headers = vec![none; count];
            let start = headers.as_mut_ptr();
            if !envoy_dynamic_module_callback_http_get_headers(self, Map::Request, start) {
                return Vec::new();
            }
            copy_headers(headers.as_ptr(), headers.len())
        }
    }

    pub(crate) fn add_header(self, map: Map, name: &str, value: &str) {
        // SAFETY: the request exists during its callbacks, and the strings are valid during the
        // call.
        let _added = unsafe {
            envoy_dynamic_module_callback_http_add_header(self, map, name.into(), value.into())
        };
    }

    pub(crate) fn set_header(self, map: Map, name: &str, value: &str) {
        // SAFETY: as above.
        let _set = unsafe {
            envoy_dynamic_module_callback_http_set_header(self, map, name.into(), value.into())
        };
    }

    /// Sends a response. Before this function returns, Envoy may invoke callbacks of the module and
    /// may end the stream.
    pub(crate) fn send_response<'a>(
        self,
        status: u16,
        headers: impl Iterator<Item = (&'a str, &'a str)>,
        body: &[u8],
        details: &str,
    ) {
        let headers: Vec<Header> = headers.map(|(n, v)| Header::new(n, v)).collect();
        // SAFETY: the request exists during its callbacks, and all strings are valid during the
        // call.
        unsafe {
            envoy_dynamic_module_callback_http_send_response(
                self,
                status.into(),
                headers.as_ptr(),
                headers.len(),
                body.into(),
                details.into(),
            );
        }
    }

    /// Returns the number of request body bytes received so far.
    pub(crate) fn body_size(self) -> usize {
        // SAFETY: the request exists during its callbacks.
        unsafe {
            let is_buffered =
                envoy_dynamic_module_callback_http_received_buffered_request_body(self);
            let received = envoy_dynamic_module_callback_http_get_body_size(self, Body::Received);
            let buffered = envoy_dynamic_module_callback_http_get_body_size(self, Body::Buffered);
            if is_buffered {
                received
            } else {
                received.saturating_add(buffered)
            }
        }
    }

    /// Returns the size of the response chunk in the current callback, in bytes.
    pub(crate) fn response_part_size(self) -> u64 {
        // SAFETY: the request exists during its callbacks.
        let size = unsafe {
            envoy_dynamic_module_callback_http_get_body_size(self, Body::ReceivedResponse)
        };
        u64::try_from(size).unwrap_or(u64::MAX)
    }

    /// Returns the name of the cluster to which the request is routed.
    pub(crate) fn cluster(self) -> Option<Vec<u8>> {
        if self.is_none() {
            return None;
        }
        let mut name = EnvoyBytes::NONE;
        // SAFETY: the request exists during its callbacks, and `name` is valid during the call. The
        // name is copied immediately.
        unsafe {
            let found = envoy_dynamic_module_callback_http_get_cluster_name(self, &raw mut name);
            found.then(|| name.copy())
        }
    }

    /// Returns a value from the dynamic metadata, or `None` if it does not exist.
    pub(crate) fn metadata_value(self, namespace: &str, key: &str) -> Option<Value> {
        if self.is_none() || !self.has_metadata(namespace, key) {
            return None;
        }
        let id = [namespace.as_bytes(), b"\0", key.as_bytes()].concat();
        let (namespace, key) = (Bytes::from(namespace), Bytes::from(key));
        let kinds = metadata::kinds(&id);
        let read =
            |kind: &Kind| Some((*kind, self.metadata_of_kind((namespace, key), *kind, &id)?));
        let (kind, value) = kinds.iter().find_map(read)?;
        if kinds.first() != Some(&kind) {
            metadata::remember(id, kind);
        }
        Some(value)
    }

    /// Returns true if the namespace contains the key. Callers check this before they read a value,
    /// because Envoy may log an attempt to read a missing value.
    fn has_metadata(self, namespace: &str, key: &str) -> bool {
        let namespace = Bytes::from(namespace);
        // SAFETY: the request exists during its callbacks, and `namespace` is valid during the
        // calls. The array has space for every name that Envoy counted, and no code changes the
        // metadata in between.
        unsafe {
            let count = envoy_dynamic_module_callback_http_get_metadata_keys_count(
                self, DYNAMIC, namespace,
            );
            let mut names = vec![EnvoyBytes::NONE; count];
            let start = names.as_mut_ptr();
            count > 0
                && envoy_dynamic_module_callback_http_get_metadata_keys(
                    self, DYNAMIC, namespace, start,
                )
                && names.iter().any(|name| name.is(key.as_bytes()))
        }
    }

    /// Reads a value of this type. Returns `None` if the value has another type.
    fn metadata_of_kind(self, at: (Bytes, Bytes), kind: Kind, id: &[u8]) -> Option<Value> {
        let (namespace, key) = at;
        let (mut text, mut number, mut flag) = (EnvoyBytes::NONE, 0.0, false);
        let mut size = 0;
        // SAFETY: the request exists during its callbacks; the caller keeps the strings in `at`
        // valid, and the output variables are valid during the call. Strings are copied
        // immediately.
        unsafe {
            match kind {
                Kind::Text => envoy_dynamic_module_callback_http_get_metadata_string(
                    self,
                    DYNAMIC,
                    namespace,
                    key,
                    &raw mut text,
                )
                .then(|| Value::Text(text.copy())),
                Kind::Number => envoy_dynamic_module_callback_http_get_metadata_number(
                    self,
                    DYNAMIC,
                    namespace,
                    key,
                    &raw mut number,
                )
                .then_some(())
                .map(|()| Value::Number(number)),
                Kind::Boolean => envoy_dynamic_module_callback_http_get_metadata_bool(
                    self,
                    DYNAMIC,
                    namespace,
                    key,
                    &raw mut flag,
                )
                .then_some(())
                .map(|()| Value::Boolean(flag)),
                Kind::List => {
                    let is_list = envoy_dynamic_module_callback_http_get_metadata_list_size(
                        self,
                        DYNAMIC,
                        namespace,
                        key,
                        &raw mut size,
                    );
                    let elements = || 0..size.min(MAX_ELEMENTS);
                    let element = |index| self.metadata_element(at, index, id);
                    is_list.then(|| Value::List(elements().map(element).collect()))
                }
                Kind::Unknown => Some(Value::Unknown),
            }
        }
    }

    fn metadata_element(self, at: (Bytes, Bytes), index: usize, id: &[u8]) -> Value {
        let id = [id, b"\0"].concat();
        let kinds = metadata::kinds(&id);
        let read = |kind: &Kind| Some((*kind, self.element_of_kind(at, index, *kind)?));
        let Some((kind, value)) = kinds.iter().find_map(read) else {
            return Value::Unknown;
        };
        if kinds.first() != Some(&kind) {
            metadata::remember(id, kind);
        }
        value
    }

    /// Reads an element of this type from a list. Returns `None` if the element has another type.
    fn element_of_kind(self, at: (Bytes, Bytes), index: usize, kind: Kind) -> Option<Value> {
        let (namespace, key) = at;
        let (mut text, mut number, mut flag) = (EnvoyBytes::NONE, 0.0, false);
        // SAFETY: as above.
        unsafe {
            match kind {
                Kind::Text => envoy_dynamic_module_callback_http_get_metadata_list_string(
                    self,
                    DYNAMIC,
                    namespace,
                    key,
                    index,
                    &raw mut text,
                )
                .then(|| Value::Text(text.copy())),
                Kind::Number => envoy_dynamic_module_callback_http_get_metadata_list_number(
                    self,
                    DYNAMIC,
                    namespace,
                    key,
                    index,
                    &raw mut number,
                )
                .then_some(())
                .map(|()| Value::Number(number)),
                Kind::Boolean => envoy_dynamic_module_callback_http_get_metadata_list_bool(
                    self,
                    DYNAMIC,
                    namespace,
                    key,
                    index,
                    &raw mut flag,
                )
                .then_some(())
                .map(|()| Value::Boolean(flag)),
                Kind::List => None,
                Kind::Unknown => Some(Value::Unknown),
            }
        }
    }

    /// Returns at most the first `most` bytes of the request body.
    pub(crate) fn body(self, most: usize) -> Vec<u8> {
        // SAFETY: the request exists during its callbacks.
        let is_buffered =
            unsafe { envoy_dynamic_module_callback_http_received_buffered_request_body(self) };
        let mut body = if is_buffered {
            Vec::new()
        } else {
            self.body_part(Body::Buffered)
        };
        body.extend(self.body_part(Body::Received));
        body.truncate(most);
        body
    }

    fn body_part(self, part: Body) -> Vec<u8> {
        // SAFETY: the request exists during its callbacks. The array has space for every chunk that
        // Envoy counted, and no code changes the body between the count and the copy. The chunks
        // are copied immediately.
        unsafe {
            let count = envoy_dynamic_module_callback_http_get_body_chunks_size(self, part);
            let mut chunks = vec![EnvoyBytes::NONE; count];
            let start = chunks.as_mut_ptr();
            if count == 0 || !envoy_dynamic_module_callback_http_get_body_chunks(self, part, start)
            {
                return Vec::new();
            }
            copy_chunks(chunks.as_ptr(), chunks.len())
        }
    }

    /// Returns the value of a string attribute.
    pub(crate) fn text(self, attribute: Attribute) -> Option<Vec<u8>> {
        if self.is_none() {
            return None;
        }
        let mut value = EnvoyBytes::NONE;
        // SAFETY: the request exists during its callbacks, and `value` is valid during the call. The
        // value is copied immediately.
        unsafe {
            let found = envoy_dynamic_module_callback_http_filter_get_attribute_string(
                self,
                attribute,
                &raw mut value,
            );
            found.then(|| value.copy())
        }
    }

    /// Returns the value of an integer attribute.
    pub(crate) fn number(self, attribute: Attribute) -> Option<u64> {
        if self.is_none() {
            return None;
        }
        let mut value = 0;
        // SAFETY: the request exists during its callbacks, and `value` is valid during the call.
        let found = unsafe {
            envoy_dynamic_module_callback_http_filter_get_attribute_int(
                self,
                attribute,
                &raw mut value,
            )
        };
        found.then_some(value)
    }

    /// Sets a filter state object, which access logs can print.
    pub(crate) fn set_filter_state(self, name: &str, value: &str) {
        // SAFETY: the request exists during its callbacks, and the strings are valid during the
        // call.
        let _set = unsafe {
            envoy_dynamic_module_callback_http_set_filter_state_bytes(
                self,
                name.into(),
                value.into(),
            )
        };
    }

    /// Resumes a paused request. Before this function returns, Envoy may invoke callbacks of the
    /// module.
    pub(crate) fn resume(self) {
        // SAFETY: the request exists, because the caller found it among the current worker's live
        // requests.
        unsafe { envoy_dynamic_module_callback_http_filter_continue_decoding(self) };
    }
}
