//! Computes the memory that a rule file requires in Envoy: a part shared by all workers, and a part
//! for each worker.
//!
//! The shared part is derived from the implementation of Envoy's shared data, a libc++
//! `unordered_map`. Each value requires a node with its key and version, a share of the map's
//! bucket array, and a string, which every write allocates at its exact length. The allocator
//! (tcmalloc) rounds each allocation up to a size class. `tests/tests/memory.rs` compares the total
//! with the allocated memory reported by Envoy. The total excludes freed blocks that the allocator
//! retains. After a flood of new 24-byte keys, the process exceeded the computed size by a third of
//! the shared part. With 100-byte keys, it was larger by as much again.
//!
//! A worker's part is the memory of its sandbox. A sandbox never shrinks, so this is the memory
//! that the worker needed to read the configuration. Edits need less memory, because a worker
//! rereads only the parts that changed. The constants were fitted to measurements of sandboxes in
//! Envoy, and are also checked by `tests/tests/memory.rs`. Earlier versions of limits, which are
//! kept for live buckets after edits, are not included.

use alloc::vec::Vec;

use loudou_limiter::algorithm::Algorithm;
use loudou_limiter::calendar::{Calendar, MAX_ZONE};
use loudou_limiter::{Limit, Limits};
use loudou_store::names::MAX_KEY;
use loudou_store::page::{PAGE_HEAD, SLOTS, lease_bytes, slot_bytes};
use loudou_store::{names, top, upstreams};
use serde::Serialize;

use crate::config::scaled;
use crate::rule::{Mode, Override, Rule, RuleFile, Scope};

/// Key size, in bytes, to assume if nothing is known about the keys.
pub const USUAL_KEY: usize = 24;

/// Size classes of Envoy 1.40's allocator, in bytes, as listed by `/memory/tcmalloc`.
const CLASSES: &[usize] = &[
    8, 16, 32, 64, 80, 96, 112, 128, 160, 176, 208, 256, 288, 352, 448, 512, 576, 704, 896, 1024,
    1152, 1408, 1792, 2048, 2688, 3456, 4096, 4736, 6144, 8192, 9472, 12288, 16384, 20480, 28672,
    32768, 40960, 49152, 65536, 73728, 81920, 98304, 114_688, 131_072, 155_648, 204_800, 262_144,
];
/// Page size of the allocator, in bytes. Allocations larger than any size class occupy whole pages.
const PAGE_OF_ALLOCATOR: usize = 8192;
/// Size of a map node, in bytes. The node's hash, key, string and version occupy 72 bytes. Loudou's
/// keys are short enough to be stored inline.
const NODE: usize = 80;
/// Size of the map's bucket array per value, in bytes. The array contains one to two pointers per
/// value.
const INDEX: usize = 16;
/// Maximum size, in bytes, of a string that needs no allocation.
const INLINE: usize = 22;
/// Maximum additional size of a slot whose key is banned or has strikes, in bytes.
const BAN_HISTORY: usize = 18;
/// Additional size, in bytes, of a slot that stores the start of a run of refusals, excluding the
/// returned units.
const REFUSED_SINCE: usize = 5;
/// Maximum size of a stored event, in bytes.
pub const EVENT: usize = 1_024;
/// Maximum number of stored events for operator actions.
pub const EVENTS_OF_OPERATORS: usize = 1_024;
/// Maximum number of stored filter events.
pub const EVENTS_OF_FILTER: usize = 256;
/// Number of events per shared data value.
pub const EVENTS_OF_SEGMENT: usize = 64;
/// Size, in bytes, of the number and the length stored before each event.
const EVENT_HEAD: usize = 16;
/// Maximum number of bans whose expiry times are stored, in order to report when the bans expire.
pub const BAN_ENDS: usize = 1_024;
/// Maximum size, in bytes, of a stored ban expiry, including the key and the names of the rule and
/// the author.
const BAN_END: usize = 32 + MAX_KEY + 2 * 63;
/// Maximum size of the changes shared by a fleet, in bytes: names, values and authors of 8 192
/// changes, the largest response that can contain the last change, and another 80 bytes per change.
pub const FLEET_CHANGES: usize = (4 << 20) + (512 << 10) + 8_192 * 80;
/// Number of copies that Envoy keeps of a plugin's configuration.
const CONFIGURATIONS: usize = 4;
/// Size, in bytes, of a rule's counters and their names in Envoy's statistics.
const METRICS: usize = 3_000;

// The following sizes, in bytes, were measured as the resident part of a sandbox's linear memory
// after eight edits. Each of the files measured had 256 rules with either one or eight limits, with
// or without a regular expression, and 3 072 to 16 384 overrides of each kind.

/// Size of a sandbox without rules.
const SANDBOX: usize = 170 << 10;
/// Memory used by a worker's counts for `loudou top` if all keys have the maximum size.
const TOP: usize = 640 << 10;
/// Size of a rule, excluding its limits and overrides.
const RULE: usize = 5_000;
/// Size of a limit in a rule or an override.
const LIMIT: usize = 930;
/// Additional size of a limit with a calendar window: twice the calendar with a time zone of
/// maximum size, because an edit keeps the previous limit, plus the additional text of the limit.
const CALENDAR: usize = 2 * (size_of::<Calendar>() + MAX_ZONE) + 2 * MAX_ZONE;
/// Ratio of a match's memory to its size as JSON.
const MATCH: usize = 16;
/// Number of copies of a regular expression's tables.
const REGEX: usize = 3;
/// Size of an override that has no further data, such as `banned` or `unlimited`.
const WORD: usize = 136;
/// Number of copies of an override's key.
const KEY: usize = 3;
/// Additional size of an override with a scale.
const SCALE: usize = 420;
/// Additional size per limit of the rule and distinct scale.
const SCALED: usize = 270;
/// Additional size of an override with limits, excluding the limits themselves.
const OWN: usize = 290;

/// Memory required by a rule file in Envoy, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory shared by all workers if all buckets are in use, belong to the rule with the largest
    /// buckets, and have keys of [`USUAL_KEY`] bytes.
    pub full: u64,
    /// Upper bound on the shared memory, assuming that all keys have the maximum size and are
    /// banned or have strikes.
    pub most: u64,
    /// Additional memory for each worker and for Envoy's main thread.
    pub worker: u64,
    /// Upper bound on each worker's memory for held requests; 0 if no rule may hold requests.
    pub held: u64,
}

/// Returns the maximum size, in bytes, of a bucket with these limits in its page.
pub fn bucket_bytes(limits: &Limits) -> usize {
    slot_bytes(limits.words())
}

/// Like [`bucket_bytes`], but includes the lease if the bucket is shared by a fleet.
fn scoped_bytes(limits: &Limits, scope: Scope) -> usize {
    let lease = match scope {
        Scope::Envoy => 0,
        Scope::Fleet => lease_bytes(limits.iter().len()),
    };
    bucket_bytes(limits).saturating_add(lease)
}

/// Returns the maximum size, in bytes, of a bucket with the rule's limits, including its lease.
pub fn bucket_bytes_of(rule: &Rule) -> usize {
    scoped_bytes(&rule.limits.largest(), rule.scope)
}

/// Returns the maximum size, in bytes, of any of a rule's buckets, excluding bans and strikes.
fn rule_bytes(rule: &Rule) -> usize {
    let bytes = |limits: &Limits| scoped_bytes(limits, rule.scope);
    let largest = rule.limits.largest();
    let own = rule.overrides.values().map(|own| match own {
        Override::Limits(limits) => bytes(limits),
        Override::Scale(scale) => scaled(&largest, *scale).map_or(0, |limits| bytes(&limits)),
        Override::Unlimited | Override::Banned => 0,
    });
    own.max().unwrap_or(0).max(bytes(&largest))
}

/// Like [`rule_bytes`], but includes the strikes of a penalty.
fn usual_bytes(rule: &Rule) -> usize {
    let strikes = if rule.penalty.is_some() {
        BAN_HISTORY
    } else {
        0
    };
    rule_bytes(rule).saturating_add(strikes)
}

/// Returns the size that the allocator actually reserves for an allocation of this many bytes.
fn allocated(bytes: usize) -> usize {
    let class = CLASSES.iter().find(|class| **class >= bytes);
    class.copied().unwrap_or_else(|| {
        let pages = bytes.div_ceil(PAGE_OF_ALLOCATOR);
        pages.saturating_mul(PAGE_OF_ALLOCATOR)
    })
}

/// Returns the memory required by a shared data value of this many bytes.
fn value(bytes: usize) -> usize {
    let string = match bytes {
        0..=INLINE => 0,
        // The string ends with a zero byte and grows in steps of 16 bytes.
        _ => allocated(bytes.saturating_add(1).next_multiple_of(16)),
    };
    string.saturating_add(NODE).saturating_add(INDEX)
}

/// Returns the size of a value as JSON, in bytes.
fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Returns the memory required by a rule file, assuming that all buckets have the maximum size.
pub fn memory(file: &RuleFile) -> Memory {
    let banned = largest(file, rule_bytes).saturating_add(BAN_HISTORY + REFUSED_SINCE);
    let full = store(file, largest(file, usual_bytes), USUAL_KEY);
    let most = store(file, banned, MAX_KEY).saturating_add(wide(audit()));
    let most = most.saturating_add(wide(changes(file)));
    Memory {
        full: full.saturating_add(counts(file, USUAL_KEY, upstreams::PROMISED)),
        most: most.saturating_add(counts(file, MAX_KEY, upstreams::PLACES)),
        worker: worker(file),
        held: held(file),
    }
}

/// Returns the memory shared by all workers while this many buckets are in use. Assumes buckets of
/// the maximum size with keys of [`USUAL_KEY`] bytes, spread evenly over the pages.
pub fn in_use(file: &RuleFile, buckets: u64) -> u64 {
    let bucket = largest(file, usual_bytes);
    let written = pages(file).min(buckets);
    let each = buckets.checked_div(written).unwrap_or(0);
    let more = buckets.checked_rem(written).unwrap_or(0);
    let of_pages = |count: u64, slots: u64| {
        let slots = usize::try_from(slots).unwrap_or(SLOTS).min(SLOTS);
        count.saturating_mul(page_memory(bucket, slots, (slots, USUAL_KEY)))
    };
    of_pages(written.saturating_sub(more), each)
        .saturating_add(of_pages(more, each.saturating_add(1)))
        .saturating_add(of_rules(file))
        .saturating_add(counts(file, USUAL_KEY, upstreams::PROMISED))
}

/// Returns the maximum size of a bucket of any rule, in bytes.
fn largest(file: &RuleFile, bytes: fn(&Rule) -> usize) -> usize {
    let buckets = file.rules.iter().map(bytes);
    buckets.max().unwrap_or_else(|| slot_bytes(0))
}

/// Returns the maximum memory required by stored events and ban expiry times. This memory does not
/// depend on the rules.
pub fn audit() -> usize {
    let segment = EVENTS_OF_SEGMENT.saturating_mul(EVENT.saturating_add(EVENT_HEAD));
    let segments = EVENTS_OF_OPERATORS.saturating_add(EVENTS_OF_FILTER) / EVENTS_OF_SEGMENT;
    // The tail contains the unfinished segments of both event rings.
    let tail = value(segment.saturating_mul(2));
    let ends = value(BAN_ENDS.saturating_mul(BAN_END));
    value(segment)
        .saturating_mul(segments)
        .saturating_add(tail)
        .saturating_add(ends)
}

/// Returns the maximum memory of the changes shared by a fleet, or 0 if it shares no rules.
fn changes(file: &RuleFile) -> usize {
    let is_shared = file.rules.iter().any(|rule| rule.scope == Scope::Fleet);
    if is_shared { value(FLEET_CHANGES) } else { 0 }
}

/// Returns the memory required by all pages when full, including the names of their buckets and the
/// rules' data.
fn store(file: &RuleFile, bucket: usize, key: usize) -> u64 {
    // The names of evicted buckets are kept until their space is needed, so this assumes the
    // maximum number of names.
    let page = page_memory(bucket, SLOTS, (names::ENTRIES, key));
    pages(file)
        .saturating_mul(page)
        .saturating_add(of_rules(file))
}

fn pages(file: &RuleFile) -> u64 {
    u64::from(file.store.buckets).div_ceil(wide(SLOTS))
}

/// Returns the memory required by a page with this many slots and by its names.
fn page_memory(bucket: usize, slots: usize, (names, key): (usize, usize)) -> u64 {
    let page = bucket.saturating_mul(slots).saturating_add(PAGE_HEAD);
    wide(value(page).saturating_add(value(names::bytes(names, key))))
}

/// Returns the memory required by the rules' data.
fn of_rules(file: &RuleFile) -> u64 {
    let json = json_bytes(file);
    let configured = allocated(json).saturating_mul(CONFIGURATIONS);
    let metrics = file.rules.len().saturating_mul(METRICS);
    let rules = value(json).saturating_add(configured);
    wide(rules.saturating_add(metrics))
}

/// Returns the memory of the counts for `loudou top` and, with this many upstreams, for `when`.
fn counts(file: &RuleFile, name: usize, upstreams: usize) -> u64 {
    let watches = file.rules.iter().any(|rule| rule.when.is_some());
    let upstreams = if watches { upstreams } else { 0 };
    let upstreams = value(upstreams::bytes(name)).saturating_mul(upstreams);
    wide(value(top::shared_bytes(name)).saturating_add(upstreams))
}

/// Returns an upper bound on a worker's memory for held requests, or 0 if no rule may hold
/// requests.
fn held(file: &RuleFile) -> u64 {
    let may_hold = |rule: &Rule| {
        let own = rule.overrides.values().any(|own| match own {
            Override::Limits(limits) => limits.may_hold(),
            Override::Scale(_) | Override::Unlimited | Override::Banned => false,
        });
        own || rule.limits.may_hold() || waits_for_relay(rule)
    };
    if file.rules.iter().any(may_hold) {
        u64::from(file.store.waiting.memory_mib) << 20
    } else {
        0
    }
}

/// Returns true if requests may wait for tokens from the relay.
fn waits_for_relay(rule: &Rule) -> bool {
    rule.scope == Scope::Fleet && rule.mode == Mode::Enforce
}

/// Returns the memory required by a worker's sandbox.
fn worker(file: &RuleFile) -> u64 {
    let rules = file.rules.iter().map(rule_in_worker);
    rules.fold(wide(SANDBOX.saturating_add(TOP)), |sum, rule| {
        sum.saturating_add(wide(rule))
    })
}

/// Returns the additional memory required by the calendar windows of these limits.
fn calendars_in_worker(limits: &Limits) -> usize {
    let has_calendar = |limit: &&Limit| match limit.algorithm() {
        Algorithm::FixedWindow(window) => window.calendar().is_some(),
        _ => false,
    };
    let count = limits.iter().filter(has_calendar).count();
    CALENDAR.saturating_mul(count)
}

fn rule_in_worker(rule: &Rule) -> usize {
    let calendars = calendars_in_worker(&rule.limits);
    let scaled_limits = SCALED
        .saturating_mul(rule.limits.iter().len())
        .saturating_add(calendars);
    let all_of = |limits: &Limits| {
        let own = LIMIT.saturating_mul(limits.iter().len());
        own.saturating_add(calendars_in_worker(limits))
    };
    let written = json_bytes(&rule.matches).saturating_mul(MATCH);
    let patterns = rule.matches.patterns();
    let patterns = patterns.iter().map(|(_, pattern)| pattern.bytes());
    let regexes = patterns
        .fold(0, usize::saturating_add)
        .saturating_mul(REGEX);
    let own = RULE
        .saturating_add(all_of(&rule.limits))
        .saturating_add(written)
        .saturating_add(regexes);
    let mut different: Vec<u32> = Vec::new();
    rule.overrides.iter().fold(own, |sum, (key, own)| {
        let own = match own {
            Override::Unlimited | Override::Banned => 0,
            Override::Scale(scale) => {
                let place = different.binary_search(&scale.thousandths());
                let scaled = place.map_or_else(
                    |place| {
                        different.insert(place, scale.thousandths());
                        scaled_limits
                    },
                    |_known| 0,
                );
                scaled.saturating_add(SCALE)
            }
            Override::Limits(limits) => all_of(limits).saturating_add(OWN),
        };
        sum.saturating_add(own)
            .saturating_add(WORD)
            .saturating_add(key.len().saturating_mul(KEY))
    })
}

#[cfg(test)]
mod tests;
