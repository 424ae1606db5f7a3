//! A filter that holds each user to a rate by a value of shared data, by way of the SDK.
#![cfg(target_arch = "wasm32")]
#![expect(missing_docs, reason = "the SDK's macro exports a function")]

use std::time::UNIX_EPOCH;

use loudou_floor::{USER, take};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

struct Check;

impl Context for Check {}

impl HttpContext for Check {
    fn on_http_request_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        let Some(user) = self.get_http_request_header(USER) else {
            return Action::Continue;
        };
        let now = self.get_current_time().duration_since(UNIX_EPOCH);
        let now_ns = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let (bytes, version) = self.get_shared_data(&user);
            let state = bytes.and_then(|bytes| bytes.try_into().ok());
            let Some(next) = take(state.map_or(0, u64::from_le_bytes), now_ns) else {
                self.send_http_response(429, Vec::new(), None);
                return Action::Pause;
            };
            let written = self.set_shared_data(&user, Some(&next.to_le_bytes()), version);
            if written.is_ok() {
                return Action::Continue;
            }
        }
    }
}

proxy_wasm::main! {{
    proxy_wasm::set_http_context(|_, _| Box::new(Check));
}}
