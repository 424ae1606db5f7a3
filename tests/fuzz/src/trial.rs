//! Runs one input, which must stay within its time and memory.

use rustix::time::{ClockId, clock_gettime};

use crate::memory;
use crate::targets::Target;

/// How often an input that was too slow runs again: the shortest time counts, because other programs on
/// the machine can only make it longer.
const AGAIN: usize = 3;

/// Runs an input; the error says which bound it exceeds. Panics if the target does.
pub fn run(target: &Target, input: &[u8]) -> Result<(), String> {
    let (allowed_ns, allowed_bytes) = (target.most_ns(input), target.most_bytes(input));
    let mut shortest = u64::MAX;
    for _ in 0..AGAIN {
        let (ns, bytes) = once(target, input);
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
fn once(target: &Target, input: &[u8]) -> (u64, usize) {
    let before = memory::mark();
    let start = cpu_ns();
    (target.run)(input);
    let ns = cpu_ns().saturating_sub(start);
    (ns, memory::peak().saturating_sub(before))
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let rest = u64::try_from(time.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
