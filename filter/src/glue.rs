//! The only module that knows proxy-wasm: Envoy's callbacks on one side, the roles on the other.
//!
//! Nothing is decided here. Host calls go through [`abi`], whose functions turn every status into a
//! value; the SDK's own wrappers panic on a status they do not expect, and a panic takes this VM
//! from every request of the worker.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

use self::abi::EnvoyHost;
use crate::admin::{AdminPlane, Begin};
use crate::data::{DataPlane, Fate};
use crate::host::{Host, LogLevel};
use crate::plugin::{self, Plugin};
use crate::waiting::Ticket;

mod abi;

/// How long after being configured, and after a failure, the data role tries to become active.
const START_TICK_MS: u32 = 50;

mod entry {
    proxy_wasm::main! {{
        std::panic::set_hook(Box::new(|panic| super::abi::log_panic(&panic.to_string())));
        proxy_wasm::set_root_context(|_| Box::new(super::Root::Unconfigured));
    }}
}

/// A plugin on this worker.
enum Root {
    Unconfigured,
    Data(Rc<RefCell<DataPlane>>),
    Admin(Rc<RefCell<AdminPlane>>),
}

impl Context for Root {
    fn on_done(&mut self) -> bool {
        abi::set_tick_period_ms(0);
        true
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        let host = EnvoyHost;
        let bytes = abi::plugin_configuration().unwrap_or_default();
        match plugin::read(&bytes) {
            Ok((plugin, warnings)) => {
                for warning in warnings {
                    host.log(LogLevel::Warn, &format!("configuration: {warning}"));
                }
                self.configure(plugin);
                true
            }
            Err(problems) => {
                for problem in &problems {
                    host.log(LogLevel::Error, &format!("configuration: {problem}"));
                }
                let count = problems.len();
                host.log(
                    LogLevel::Error,
                    &format!("configuration refused: {count} problem(s), see above"),
                );
                false
            }
        }
    }

    fn on_tick(&mut self) {
        match self {
            Self::Data(plane) => {
                if let Ok(mut plane) = plane.try_borrow_mut() {
                    plane.tick(&EnvoyHost);
                }
            }
            Self::Admin(_) | Self::Unconfigured => abi::set_tick_period_ms(0),
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        match self {
            Self::Data(plane) => Some(Box::new(DataStream {
                plane: Rc::clone(plane),
                id,
                response_headers: Vec::new(),
                ticket: None,
            })),
            Self::Admin(plane) => Some(Box::new(AdminStream {
                plane: Rc::clone(plane),
                waits: false,
            })),
            Self::Unconfigured => None,
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Root {
    fn configure(&mut self, plugin: Plugin) {
        let host = EnvoyHost;
        let about = format!("loudou {} ({})", crate::VERSION, crate::GIT);
        match plugin {
            Plugin::Data(file) => {
                let (rules, store) = (file.rules.len(), &file.store);
                let line = format!(
                    "{about}: data role, {rules} rules, {} buckets, share {}",
                    store.buckets, store.share
                );
                host.log(LogLevel::Info, &line);
                *self = Self::Data(Rc::new(RefCell::new(DataPlane::new(file, host.now()))));
                abi::set_tick_period_ms(START_TICK_MS);
            }
            Plugin::Admin(settings) => {
                let tokens = settings.tokens.len();
                host.log(
                    LogLevel::Info,
                    &format!("{about}: admin role, {tokens} tokens"),
                );
                *self = Self::Admin(Rc::new(RefCell::new(AdminPlane::new(settings))));
            }
        }
    }
}

/// One request that is limited.
struct DataStream {
    plane: Rc<RefCell<DataPlane>>,
    id: u32,
    response_headers: Vec<(&'static str, String)>,
    /// Its place while it waits, and afterwards.
    ticket: Option<Ticket>,
}

impl DataStream {
    /// What comes after the headers of a request that waits, waits with them.
    fn rest(&self) -> Action {
        let waits = |ticket| {
            let plane = self.plane.try_borrow();
            plane.is_ok_and(|plane| plane.waits(ticket))
        };
        if self.ticket.is_some_and(waits) {
            Action::Pause
        } else {
            Action::Continue
        }
    }
}

impl Context for DataStream {
    fn on_done(&mut self) -> bool {
        if let Some(ticket) = self.ticket.take()
            && let Ok(mut plane) = self.plane.try_borrow_mut()
        {
            plane.leave(&EnvoyHost, ticket);
        }
        true
    }
}

impl HttpContext for DataStream {
    fn on_http_request_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        #[cfg(feature = "trap-for-tests")]
        trap_when_asked();
        let Ok(mut plane) = self.plane.try_borrow_mut() else {
            return Action::Continue;
        };
        match plane.decide(&EnvoyHost, self.id) {
            Fate::Pass(headers) => {
                self.response_headers = headers;
                Action::Continue
            }
            Fate::Hold(ticket, headers) => {
                self.response_headers = headers;
                self.ticket = Some(ticket);
                Action::Pause
            }
            Fate::Refuse(reply) => {
                EnvoyHost.reply(&reply);
                Action::Pause
            }
        }
    }

    fn on_http_request_body(&mut self, _size: usize, _end_of_stream: bool) -> Action {
        self.rest()
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.rest()
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        for (name, value) in self.response_headers.drain(..) {
            EnvoyHost.add_response_header(name, &value);
        }
        Action::Continue
    }
}

/// One call of the admin API.
struct AdminStream {
    plane: Rc<RefCell<AdminPlane>>,
    waits: bool,
}

impl Context for AdminStream {}

impl HttpContext for AdminStream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        #[cfg(feature = "trap-for-tests")]
        trap_when_asked();
        let Ok(mut plane) = self.plane.try_borrow_mut() else {
            return Action::Continue;
        };
        match plane.begin(&EnvoyHost, !end_of_stream) {
            Begin::Answer(reply) => EnvoyHost.reply(&reply),
            Begin::AwaitBody => self.waits = true,
        }
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        // Past the largest body there is nothing to wait for.
        if self.waits && (end_of_stream || size > crate::admin::MAX_BODY) {
            self.waits = false;
            if let Ok(mut plane) = self.plane.try_borrow_mut() {
                EnvoyHost.reply(&plane.finish(&EnvoyHost));
            }
        }
        Action::Pause
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if self.waits {
            self.waits = false;
            if let Ok(mut plane) = self.plane.try_borrow_mut() {
                EnvoyHost.reply(&plane.finish(&EnvoyHost));
            }
        }
        Action::Pause
    }
}

/// What no request can make the filter do, so that a test can have it.
#[cfg(feature = "trap-for-tests")]
fn trap_when_asked() {
    let asked = EnvoyHost.request_header("x-loudou-trap").is_some();
    assert!(!asked, "a test asked for it");
}
