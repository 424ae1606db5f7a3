//! Requests to other services: the call, and its answer in the callback.
#![expect(unsafe_code, reason = "the ABI is C functions over pointers")]

use super::{OK, bytes, proxy_get_buffer_bytes, proxy_get_header_map_value};
use crate::header_lines;
use crate::host::Outgoing;

const CALLED_HEADERS: u32 = 6;
const CALLED_BODY: u32 = 4;
/// A header map with no entry.
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

/// Sends a request; its number, unless the host refuses it at once.
pub(super) fn send(request: &Outgoing<'_>) -> Option<u32> {
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
    // SAFETY: pointers and lengths are those of live buffers and of a live local.
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
            // Envoy reads 0 as no timeout at all.
            request.timeout_ms.max(1),
            &raw mut call,
        )
    };
    (status == OK).then_some(call)
}

/// A header of the answer.
pub(super) fn header(name: &str) -> Option<Vec<u8>> {
    // SAFETY: pointers and lengths are those of a live str and of live locals of `bytes`.
    bytes(|data, len| unsafe {
        proxy_get_header_map_value(CALLED_HEADERS, name.as_ptr(), name.len(), data, len)
    })
    .ok()
}

/// The body of the answer, at most `most` bytes.
pub(super) fn body(most: usize) -> Option<Vec<u8>> {
    // SAFETY: the pointers are those of live locals of `bytes`.
    bytes(|data, len| unsafe { proxy_get_buffer_bytes(CALLED_BODY, 0, most, data, len) }).ok()
}
