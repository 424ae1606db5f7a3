//! A filter that lets every request pass, by way of the SDK.
#![cfg(target_arch = "wasm32")]
#![expect(missing_docs, reason = "the SDK's macro exports a function")]

use proxy_wasm::traits::{Context, HttpContext};

struct Empty;

impl Context for Empty {}

impl HttpContext for Empty {}

proxy_wasm::main! {{
    proxy_wasm::set_http_context(|_, _| Box::new(Empty));
}}
