//! Runs one input: it must not panic, and must stay within its time and memory.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};

use crate::memory;
use crate::targets::Target;

/// The last panic, as its hook saw it.
static PANIC: Mutex<Option<String>> = Mutex::new(None);
/// How often an input that was too slow runs again: the shortest time counts, because other programs on
/// the machine can only make it longer.
const AGAIN: usize = 3;

/// Keeps reports of panics, instead of printing them.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info| {
        if let Ok(mut last) = PANIC.lock() {
            *last = Some(info.to_string());
        }
    }));
}

/// Runs an input; the error describes what is wrong.
pub fn run(target: &Target, input: &[u8]) -> Result<(), String> {
    let (allowed_ns, allowed_bytes) = (target.most_ns(input), target.most_bytes(input));
    let mut shortest = u64::MAX;
    for _ in 0..AGAIN {
        let (ns, bytes) = once(target, input)?;
        if bytes > allowed_bytes {
            return Err(format!(
                "takes {bytes} bytes of memory; allowed: {allowed_bytes}"
            ));
        }
        shortest = shortest.min(ns);
        if shortest <= allowed_ns {
            return Ok(());
        }
    }
    let (took, allowed) = (shortest / 1_000, allowed_ns / 1_000);
    Err(format!("takes {took} us of CPU time; allowed: {allowed}"))
}

/// The CPU time in nanoseconds, and the memory.
fn once(target: &Target, input: &[u8]) -> Result<(u64, usize), String> {
    let before = memory::mark();
    let start = cpu_ns();
    let ran = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let ns = cpu_ns().saturating_sub(start);
    let bytes = memory::peak().saturating_sub(before);
    ran.map(|()| (ns, bytes)).map_err(|_payload| {
        let last = PANIC.lock().ok().and_then(|mut last| last.take());
        last.unwrap_or_else(|| "panics".to_owned())
    })
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
