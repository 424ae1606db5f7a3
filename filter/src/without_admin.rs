//! Replaces `admin.rs` in modules that are built without the feature `admin`. Every configuration
//! that uses the API is rejected, so none of these types can exist at run time.

#![expect(
    unreachable_pub,
    clippy::boxed_local,
    clippy::needless_pass_by_ref_mut,
    clippy::needless_pass_by_value,
    clippy::unused_self,
    reason = "everything is declared as in the admin role"
)]

use loudou_limiter::Nanos;
use loudou_rules::config::{EmbeddedAdmin, Path, Problem};
use serde_json::Value;

use crate::RecordCaches;
use crate::host::{Host, Reply};

/// Timer period of the admin role, which never runs here.
pub const START_TICK_MS: u32 = 0;
/// Maximum size of a request body, in bytes. None is read.
pub const MAX_BODY: usize = 0;

/// Settings of the admin role. None are accepted.
#[derive(Clone, Debug)]
pub enum Settings {}

/// Settings of an embedded API. None are accepted.
#[derive(Clone, Debug)]
pub enum Embedded {}

/// The admin role, which does not exist.
#[derive(Debug)]
pub enum AdminPlane {}

/// A call that waits for its body. There are none.
#[derive(Debug)]
pub enum Call {}

/// Next step for an API request once its headers have been read.
#[derive(Debug)]
pub enum Begin {
    /// Send this response now.
    Answer(Reply),
    /// Wait for the body.
    AwaitBody(Box<Call>),
}

/// Rejects the settings of the admin role.
pub fn role(document: &Value) -> Result<Settings, Vec<Problem>> {
    let admin = document.get("admin").unwrap_or_default();
    let value = admin.get("role").unwrap_or_default();
    Err(left_out(&Path::root().field("admin").field("role"), value))
}

/// Never called, because there are no settings.
pub fn share(settings: &Settings) -> &str {
    match *settings {}
}

/// Rejects the settings of an embedded API, if there are any.
pub fn embedded(admin: Option<EmbeddedAdmin>) -> Result<Option<Embedded>, Vec<Problem>> {
    let Some(admin) = admin else {
        return Ok(None);
    };
    let place = Path::root().field("admin").field("at");
    Err(left_out(&place, &Value::String(admin.at)))
}

fn left_out(place: &Path, value: &Value) -> Vec<Problem> {
    let message = "this module was built without the admin API (the feature `admin`): leave `admin` out and call another \
                   Envoy of the fleet, or take the module that has the API";
    vec![Problem::error(place.clone(), value, message)]
}

impl AdminPlane {
    /// Never called, because there are no settings.
    pub fn new(settings: Settings) -> Self {
        match settings {}
    }

    /// Never called, because there are no settings.
    pub fn embedded(settings: Embedded, _now: Nanos) -> Self {
        match settings {}
    }

    /// Never called.
    #[must_use]
    pub fn sharing(self, _shelves: &mut RecordCaches) -> Self {
        match self {}
    }

    /// Never called.
    pub fn is_asked(&self, _host: &dyn Host) -> bool {
        match *self {}
    }

    /// Never called.
    pub fn begin_if_local(&mut self, _host: &dyn Host, _has_body: bool) -> Begin {
        match *self {}
    }

    /// Never called.
    pub fn begin(&mut self, _host: &dyn Host, _has_body: bool) -> Begin {
        match *self {}
    }

    /// Never called.
    pub fn finish(&mut self, _host: &dyn Host, call: Box<Call>) -> Reply {
        match *call {}
    }

    /// Never called.
    pub fn due(&self) -> Option<Nanos> {
        match *self {}
    }

    /// Never called.
    pub fn about(&self) -> String {
        match *self {}
    }

    /// Never called.
    pub fn tick(&mut self, _host: &dyn Host) {
        match *self {}
    }
}
