//! The functions that Envoy calls: the callbacks of the proxy-wasm ABI 0.2.1 that the filter needs.
//!
//! Envoy skips callbacks that are not exported. Every entry into the sandbox costs more than the work
//! inside, so there are no others.
#![expect(unsafe_code, reason = "the ABI is C functions by name")]

use std::cell::RefCell;

use super::abi::EnvoyHost;
use super::{Action, Vm};
use crate::waiting::Will;

thread_local! {
    /// A sandbox has one thread.
    static VM: RefCell<Vm> = RefCell::default();
    /// Separate from the state, which a callback that panics still borrows.
    static WILLS: RefCell<Vec<Will>> = const { RefCell::new(Vec::new()) };
}

/// Registers a will, which is executed if the sandbox dies.
pub(super) fn deposit(will: Will) {
    WILLS.with(|wills| {
        if let Ok(mut wills) = wills.try_borrow_mut() {
            match wills.iter_mut().find(|will| will.is_void()) {
                Some(void) => *void = will,
                None => wills.push(will),
            }
        }
    });
}

/// The last action of the sandbox: logs the panic and executes the wills.
fn die(panic: &str) {
    super::abi::log_panic(panic);
    WILLS.with(|wills| {
        if let Ok(wills) = wills.try_borrow() {
            wills.iter().for_each(|will| will.execute(&EnvoyHost));
        }
    });
}

/// Calls into the state. It is never borrowed already: a host function that is called from inside a
/// callback calls back at most for memory.
fn with<T>(otherwise: T, call: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with(|vm| match vm.try_borrow_mut() {
        Ok(mut vm) => call(&mut vm),
        Err(_) => otherwise,
    })
}

unsafe extern "C" {
    fn __wasm_call_ctors();
}

/// The version of the ABI, which the name declares.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// The very first call, made once.
#[unsafe(no_mangle)]
extern "C" fn _initialize() {
    // SAFETY: the linker creates this function; it must be called once, before everything else.
    unsafe { __wasm_call_ctors() };
    std::panic::set_hook(Box::new(|panic| die(&panic.to_string())));
}

/// Memory for the host to write an answer into; [`super::abi`] takes it back as a boxed slice.
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

/// The context is over; it may be deleted at once.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(context: u32) -> u32 {
    with((), |vm| vm.done(context));
    1
}
