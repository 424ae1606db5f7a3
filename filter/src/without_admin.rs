//! Replaces `admin.rs` in builds without the `admin` feature. Configurations that use the admin API
//! are rejected, so values of these types never exist at run time.

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

/// Timer period of the admin role. Never used.
pub const START_TICK_MS: u32 = 0;
/// Maximum size of a request body, in bytes. 0, because no bodies are read.
pub const MAX_BODY: usize = 0;

/// Settings of the admin role. This type has no values.
#[derive(Clone, Debug)]
pub enum Settings {}

/// Settings of an embedded admin API. This type has no values.
#[derive(Clone, Debug)]
pub enum Embedded {}

/// The admin role. This type has no values.
#[derive(Debug)]
pub enum AdminPlane {}

/// An API call that is waiting for its body. This type has no values.
#[derive(Debug)]
pub enum Call {}

/// What to do after reading the headers of an API request.
#[derive(Debug)]
pub enum Begin {
    /// Send this response now.
    Answer(Reply),
    /// Wait until the request body is complete.
    AwaitBody(Box<Call>),
}

/// Rejects the settings of the admin role.
pub fn role(document: &Value) -> Result<Settings, Vec<Problem>> {
    let admin = document.get("admin").unwrap_or_default();
    let value = admin.get("role").unwrap_or_default();
    Err(left_out(&Path::root().field("admin").field("role"), value))
}

/// Never called, because the parameter's type has no values.
pub fn share(settings: &Settings) -> &str {
    match *settings {}
}

/// Rejects the settings of an embedded admin API, if there are any.
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
    /// Never called, because the parameter's type has no values.
    pub fn new(settings: Settings) -> Self {
        match settings {}
    }

    /// Never called, because the parameter's type has no values.
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
