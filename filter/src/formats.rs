//! Format versions of the shared data values that other builds of the filter may have written. For
//! each value, this module lists the version that this build writes and the versions that it can
//! read.
//!
//! | value | key | version | reads |
//! | --- | --- | --- | --- |
//! | rule record | `rules` | [`RECORD`] | this version, with optional parts from a later build |
//! | bucket pages | version and number | [`loudou_store::page::KIND`] | this version |
//! | events | `tail` | [`EVENTS`] | this version (segments have none) |
//! | ban expiry times | `banends` | [`BAN_ENDS`] | this version |
//! | fleet changes | `changes` | [`CHANGES`] | this version |
//!
//! No version has changed since the first release, so this build has no code for reading earlier
//! versions. A build that changes a value's version must use a new key, read the value under the
//! old key if the new key is missing, and list both versions here. If a value under one of this
//! build's keys has an unexpected version, this build does not overwrite it, because the build that
//! wrote it may still be running. The admin status shows a warning about the value.

use loudou_store::{SharedData, Table, page};

use crate::bytes::take_number;
use crate::host::Host;
use crate::record::Record;

/// Format version of the rule record.
pub(crate) const RECORD: u8 = 4;
/// Magic bytes at the start of a rule record, preceding its version.
pub(crate) const RECORD_NAME: [u8; 7] = *b"loudou:";
/// Format version of the tail of the event list.
pub(crate) const EVENTS: u64 = 1;
/// Format version of the ban expiry times.
pub(crate) const BAN_ENDS: u64 = 1;
/// Format version of the fleet's changes.
pub(crate) const CHANGES: u64 = 1;

/// Values that start with their version. Each entry consists of the key, a description, the
/// version, and what does not work if the value is unreadable.
const NUMBERED: [(&str, &str, u64, &str); 3] = [
    ("tail", "events", EVENTS, "events are in Envoy's log only"),
    (
        "banends",
        "ends of bans",
        BAN_ENDS,
        "bans end in time, without an event",
    ),
    (
        "changes",
        "changes of the fleet",
        CHANGES,
        "changes stay at this Envoy",
    ),
];

/// Returns a hash of all format versions. Hosts that persist shared data across restarts use it to
/// detect incompatible values.
pub fn of_all_values() -> u32 {
    let versions = [RECORD.into(), EVENTS, BAN_ENDS, CHANGES, page::KIND.into()];
    let versions = versions
        .iter()
        .map(|version| u32::try_from(*version).unwrap_or(0));
    versions.fold(0, |all, version| all.wrapping_mul(31).wrapping_add(version))
}

/// Returns true if this build can read the bucket table and all versioned values. Hosts that
/// persist shared data call this function before using values written by an earlier process.
pub fn are_sound(store: &mut dyn SharedData, share: &str) -> bool {
    let mut bytes = Vec::new();
    let mut read = |name: &str| {
        let key = [share, ":", name].concat();
        let found = store.get(key.as_bytes(), &mut bytes);
        found.ok().flatten().map(|_cas| bytes.clone())
    };
    let is_record = read("rules").is_none_or(|record| Record::is_sound(&record));
    let mut numbered = NUMBERED.iter();
    let are_numbered = numbered
        .all(|(name, _, version, _)| read(name).is_none_or(|value| !is_other(&value, *version)));
    is_record && are_numbered && Table::find(store, share).is_ok()
}

/// Returns true if the value with this key is valid only for the current Envoy process and must therefore not be kept
/// across restarts. These values are the ID of the newest connection, because every process numbers its connections
/// from the start, and the list of workers that are behind.
pub fn is_of_process(key: &[u8]) -> bool {
    key.ends_with(b":newest") || key.ends_with(b":behind")
}

/// Returns true if a value starts with a version other than `version`.
pub(crate) fn is_other(mut value: &[u8], version: u64) -> bool {
    take_number(&mut value).is_some_and(|found| found != version)
}

/// Returns a warning for each value whose format version this build cannot read.
pub(crate) fn warnings(host: &dyn Host, share: &str) -> Vec<String> {
    let value = |name: &str| {
        let mut bytes = Vec::new();
        let found = host.shared_get([share, ":", name].concat().as_bytes(), &mut bytes);
        found.ok().flatten().map(|_cas| bytes)
    };
    let mut all = Vec::new();
    let record = value("rules");
    let found = record.and_then(|record| record.strip_prefix(&RECORD_NAME)?.first().copied());
    if let Some(found) = found.filter(|found| *found != RECORD) {
        let missing =
            "edits and overrides do not apply on workers of this version, and are not shown";
        all.push(warning("rules", (found.into(), RECORD.into()), missing));
    }
    for (name, what, version, missing) in NUMBERED {
        let found = value(name).and_then(|value| take_number(&mut value.as_slice()));
        let other = found.filter(|found| *found != version);
        all.extend(other.map(|found| warning(what, (found, version), missing)));
    }
    all
}

fn warning(what: &str, (found, version): (u64, u64), missing: &str) -> String {
    format!(
        "another version of Loudou wrote the {what} in format {found}; this one reads format {version}, and leaves \
         them as they are: {missing}. Load one version in all listeners, or restart Envoy"
    )
}
