//! The functions that Envoy calls: only those callbacks of the proxy-wasm ABI 0.2.1 that the filter
//! needs.
//!
//! Envoy skips a callback that the module does not export. Entering the VM costs more than most
//! callbacks do, so every further export would slow down each request.
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use std::cell::RefCell;

use super::abi::EnvoyHost;
use super::{Action, Vm};
use crate::waiting::PanicCleanup;

thread_local! {
    /// A VM has one thread, so this is its only state.
    static VM: RefCell<Vm> = RefCell::default();
    /// Separate from `VM`, because a callback that panics still borrows `VM`.
    static PANIC_CLEANUPS: RefCell<Vec<PanicCleanup>> = const { RefCell::new(Vec::new()) };
}

/// Registers actions to take if the VM dies, in place of actions that are no longer needed.
pub(super) fn register_cleanup(cleanup: PanicCleanup) {
    PANIC_CLEANUPS.with(|wills| {
        if let Ok(mut wills) = wills.try_borrow_mut() {
            match wills.iter_mut().find(|cleanup| cleanup.is_void()) {
                Some(void) => *void = cleanup,
                None => wills.push(cleanup),
            }
        }
    });
}

/// Panic hook: logs the panic and runs the registered [`PanicCleanup`]s.
fn panic_hook(panic: &str) {
    super::abi::log_panic(panic);
    PANIC_CLEANUPS.with(|wills| {
        if let Ok(wills) = wills.try_borrow() {
            wills.iter().for_each(|cleanup| cleanup.execute(&EnvoyHost));
        }
    });
}

/// Runs `call` with the state. The borrow never fails, because the only export that a host function
/// calls is `proxy_on_memory_allocate`, which does not use the state.
fn with<T>(otherwise: T, call: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with(|vm| match vm.try_borrow_mut() {
        Ok(mut vm) => call(&mut vm),
        Err(_) => otherwise,
    })
}

unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// Declares the ABI version by its name.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// First call into the module. Envoy makes it once.
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // SAFETY: the linker creates this function. It must be called once, before everything else.
    unsafe { __wasm_call_ctors() };
    std::panic::set_hook(Box::new(|panic| panic_hook(&panic.to_string())));
}

/// Allocates memory that the host fills with a result. [`super::abi`] takes it back as a boxed
/// slice.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(size: usize) -> *mut u8 {
    Box::into_raw(Box::<[u8]>::new_uninit_slice(size)).cast()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(context: u32, root: u32) {
    with((), |vm| vm.create(context, root));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(root: u32, _size: u32) -> u32 {
    with(0, |vm| vm.configure(root).into())
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_tick(root: u32) {
    with((), |vm| vm.tick(root));
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(context: u32, _count: u32, end_of_stream: u32) -> Action {
    with(Action::Continue, |vm| {
        vm.request_headers(context, end_of_stream != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(context: u32, size: u32, end_of_stream: u32) -> Action {
    with(Action::Continue, |vm| {
        vm.request_body(context, size, end_of_stream != 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(context: u32, _count: u32) -> Action {
    with(Action::Continue, |vm| vm.request_trailers(context))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(context: u32, _count: u32, _end_of_stream: u32) -> Action {
    with(Action::Continue, |vm| vm.response_headers(context))
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_http_call_response(
    root: u32,
    call: u32,
    _headers: u32,
    size: u32,
    _trailers: u32,
) {
    with((), |vm| vm.called(root, call, size));
}

/// Ends a context. Returning 1 allows Envoy to delete it at once.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(context: u32) -> u32 {
    with((), |vm| vm.done(context));
    1
}
