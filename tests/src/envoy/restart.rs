//! Stopping Envoy and starting it again where it was.

use anyhow::{Context as _, Result};
use serde_json::json;

use super::{Envoy, wasm_of};
use crate::config::Config;

impl Envoy {
    /// Stops it, and starts another one with this configuration on the same ports: what a restart is to
    /// clients.
    pub fn restart(self, config: &Config) -> Result<Self> {
        let ports = [self.data.port(), self.admin.port()];
        self.stop()?;
        let wasm = wasm_of(config)?;
        let mut listeners = config.lds(&wasm);
        for (index, port) in ports.iter().enumerate() {
            let place = format!("/resources/{index}/address/socket_address/port_value");
            let value = listeners.pointer_mut(&place);
            *value.context("a listener without a port")? = json!(port);
        }
        Self::start_with(config, &listeners, wasm)
    }
}
