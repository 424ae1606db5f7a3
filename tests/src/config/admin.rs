//! Where the admin API of a test is, and who may call it.

use serde_json::{Value, json};

use super::{Config, set};

impl Config {
    /// Sets the hosts that requests to the admin plugin may name.
    #[must_use]
    pub fn hosts(mut self, hosts: Value) -> Self {
        if let Some(admin) = self.admin_plugin.get_mut("admin") {
            set(admin, "hosts", hosts);
        }
        self
    }

    /// Replaces the tokens of the admin plugin; an empty array is "no tokens".
    #[must_use]
    pub fn tokens(mut self, tokens: Value) -> Self {
        if let Some(admin) = self.admin_plugin.get_mut("admin") {
            set(admin, "tokens", tokens);
        }
        self
    }

    /// The data plugin answers the admin API itself below this path, with the tokens of the admin plugin.
    #[must_use]
    pub fn admin_at(mut self, path: &str) -> Self {
        let tokens = self.admin_plugin.pointer("/admin/tokens").cloned();
        let admin = json!({ "at": path, "tokens": tokens });
        set(&mut self.data_plugin, "admin", admin);
        self
    }

    /// One more listener for the admin plugin, at this address.
    #[must_use]
    pub fn also_admin(mut self, address: Value, transport: Option<Value>) -> Self {
        self.more_admin.push((address, transport));
        self
    }

    /// The admin listener is without `allow_on_headers_stop_iteration`, so that no body arrives.
    #[must_use]
    pub const fn without_bodies(mut self) -> Self {
        self.has_bodies = false;
        self
    }
}
