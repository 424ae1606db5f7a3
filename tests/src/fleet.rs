//! Starts several Envoys that share limits through one relay and one Valkey.

use std::thread;

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::config::Config;
use crate::envoy::Envoy;
use crate::http::Request;
use crate::load::Counts;
use crate::relay::Relay;
use crate::valkey::Valkey;

/// A running fleet.
#[derive(Debug)]
pub struct Fleet {
    /// Envoys of the fleet.
    pub envoys: Vec<Envoy>,
    /// Relay of the Envoys.
    pub relay: Relay,
    /// Engine of the relay.
    pub valkey: Valkey,
}

impl Fleet {
    /// Starts `envoys` Envoys with these rules and these fleet settings.
    pub fn start(envoys: usize, rules: &Value, settings: &Value) -> Result<Self> {
        Self::of(envoys, Config::new(rules.clone()), settings)
    }

    /// Starts `envoys` Envoys with this configuration and these fleet settings.
    pub fn of(envoys: usize, config: Config, settings: &Value) -> Result<Self> {
        let valkey = Valkey::start()?;
        let relay = Relay::start_with(&valkey, &["--timeout-ms", "900"])?;
        let config = config.fleet(settings, relay.address());
        let envoys = (0..envoys).map(|_| Envoy::start(&config));
        Ok(Self {
            envoys: envoys.collect::<Result<_>>()?,
            relay,
            valkey,
        })
    }

    /// Sends `requests` requests to each Envoy, to all Envoys in parallel. See
    /// [`load()`](crate::load::load).
    pub fn load(
        &self,
        requests: u64,
        connections: usize,
        request: impl Fn(u64) -> Request + Sync,
    ) -> Result<Counts> {
        let request = &request;
        thread::scope(|scope| {
            let load = |envoy: &'_ Envoy| envoy.load(requests, connections, request);
            let threads: Vec<_> = self
                .envoys
                .iter()
                .map(|envoy| scope.spawn(move || load(envoy)))
                .collect();
            let mut all = Counts::default();
            for thread in threads {
                let counts = thread
                    .join()
                    .map_err(|_panic| anyhow!("a client panicked"))??;
                all.merge(&counts);
            }
            Ok(all)
        })
    }

    /// Returns the sum of a counter over all Envoys.
    pub fn counter(&self, name: &str) -> Result<u64> {
        self.envoys.iter().map(|envoy| envoy.counter(name)).sum()
    }

    /// Ends a test that passed.
    pub fn stop(self) -> Result<()> {
        self.envoys.into_iter().try_for_each(Envoy::stop)
    }
}
