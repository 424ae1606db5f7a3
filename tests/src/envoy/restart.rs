//! Stopping Envoy and starting it again on the same ports.

use anyhow::Result;

use super::{Envoy, wasm_of};
use crate::config::Config;

impl Envoy {
    /// Stops it and starts another one with this configuration on the same ports, which clients see as a
    /// restart.
    pub fn restart(self, config: &Config) -> Result<Self> {
        let ports = [self.data.port(), self.admin.port()];
        self.stop()?;
        Self::start_with(config, Some(ports), wasm_of(config)?)
    }
}
