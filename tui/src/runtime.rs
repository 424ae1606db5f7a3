//! Where the screen will be started.

use std::time::Duration;

use crate::client::Client;

/// What the screen needs to know.
#[derive(Debug)]
pub struct Options {
    /// The client of the admin listener.
    pub client: Client,
    /// Refuse to change anything.
    pub read_only: bool,
    /// Draw with ASCII characters alone.
    pub ascii: bool,
    /// Use colours.
    pub color: bool,
    /// How often to poll.
    pub interval: Duration,
}

/// Runs the screen until it is left.
pub fn run(options: Options) -> anyhow::Result<()> {
    let Options { client, .. } = options;
    anyhow::bail!("the screen is not built yet; {} is not shown", client.url())
}
