//! The admin API that the data role answers itself, where there can be no listener for the admin role.
//!
//! It is below a path of the configuration, which no rule sees, and only for connections from loopback to loopback.

use loudou_limiter::Nanos;

use super::DataPlane;
use crate::admin::{AdminPlane, Begin};
use crate::host::Host;

impl DataPlane {
    /// The same, which answers the admin API, too.
    #[must_use]
    pub fn with_admin(mut self, admin: AdminPlane) -> Self {
        self.admin = Some(Box::new(admin));
        self
    }

    /// Whether it answers the admin API.
    pub const fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// The next step for a request to the admin API, which never waits for a body; `None` for every other request.
    #[cold]
    pub fn call(&mut self, host: &dyn Host, has_body: bool) -> Option<Begin> {
        let admin = self.admin.as_mut().filter(|admin| admin.is_asked(host))?;
        let begin = admin.begin_if_local(host, has_body);
        self.timer.fire_by(host, admin.due(), host.now());
        Some(begin)
    }

    pub(super) fn tick_admin(&mut self, host: &dyn Host, now: Nanos) {
        if let Some(admin) = &mut self.admin
            && admin.due().is_some_and(|due| due <= now)
        {
            admin.tick(host);
        }
    }
}
