//! The functions that Envoy calls. The filter exports only the callbacks of the proxy-wasm ABI
//! 0.2.1 that it needs.
//!
//! Envoy skips callbacks that the Wasm module does not export. Entering the VM costs more than most
//! callbacks themselves, so each additional export would slow down every request.
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use std::cell::RefCell;

use super::abi::EnvoyHost;
use super::{Action, Vm};
use crate::waiting::PanicCleanup;

thread_local! {
    /// State of the VM. A VM has only one thread, so there is only one instance.
    static VM: RefCell<Vm> = RefCell::default();
    /// Cleanup actions for a panic. These actions are separate from `VM`, because `VM` is still
    /// borrowed when a callback panics.
    static PANIC_CLEANUPS: RefCell<Vec<PanicCleanup>> = const { RefCell::new(Vec::new()) };
}

/// Registers cleanup actions to run if the VM panics. Replaces cleanup actions that are no longer
/// needed, if there are any.
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

/// Calls `call` with the VM's state. Borrowing the state never fails: host functions call back into
/// the module only through `proxy_on_memory_allocate`, which does not use the state.
fn with<T>(otherwise: T, call: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with(|vm| match vm.try_borrow_mut() {
        Ok(mut vm) => call(&mut vm),
        Err(_) => otherwise,
    })
}

unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// Tells Envoy the ABI version, by the name of the function.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// Initializes the module. Envoy calls this function once, before all others.
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // SAFETY: the linker generates this function. This function must be called once, before all
    // other code.
    unsafe { __wasm_call_ctors() };
    std::panic::set_hook(Box::new(|panic| panic_hook(&panic.to_string())));
}

/// Allocates a buffer that the host fills with a result. [`super::abi`] takes ownership of the
/// buffer as a boxed slice.
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

/// Handles the end of a context. Returning 1 allows Envoy to delete the context immediately.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(context: u32) -> u32 {
    with((), |vm| vm.done(context));
    1
}
