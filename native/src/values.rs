//! Opens the stored values of each namespace, which all configurations with the same namespace
//! share within the process.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use loudou_filter::formats;
use loudou_filter::host::LogLevel;
use loudou_rules::rule::{RuleFile, StoreSettings};
use loudou_rules::size::bucket_bytes_of;
use loudou_store::page::{PAGE_HEAD, SLOTS};
use loudou_store::{Cas, SharedData, StoreFailed, Written};

use crate::host::log;
use crate::metrics;
use crate::shared::{self, Gauge, Opened, Process, Shared};

/// The stored values of a namespace.
#[derive(Debug)]
pub(crate) struct Values {
    /// Values that outlive the process if the rule file configures a file for them.
    kept: Shared,
    of_process: Shared,
    file: Option<String>,
    /// Reason why `kept` is not stored in the configured file; `None` if it is, or if no file is
    /// configured.
    problem: Option<String>,
}

static ALL: Mutex<Option<HashMap<String, &'static Values>>> = Mutex::new(None);

impl Values {
    /// Returns the values of a namespace, if they are open.
    pub(crate) fn find(namespace: &str) -> Option<&'static Self> {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.as_ref()?.get(namespace).copied()
    }

    /// Returns the values of a rule file's namespace, and opens them if necessary. If the system refuses the memory,
    /// logs an error and returns `None`.
    pub(crate) fn open(file: &RuleFile) -> Option<&'static Self> {
        let settings = &file.store;
        let buckets = file.rules.iter().map(bucket_bytes_of);
        let page = buckets.max().unwrap_or(0).saturating_mul(SLOTS);
        let page = page.saturating_add(PAGE_HEAD);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        let values = match all.get(&settings.namespace) {
            Some(values) => {
                values.compare(settings);
                values
            }
            None => match Self::new(settings, page) {
                Ok(values) => {
                    let values: &'static Self = Box::leak(Box::new(values));
                    values.keep_gauges(&settings.namespace);
                    all.insert(settings.namespace.clone(), values);
                    values
                }
                Err(error) => {
                    let line = format!("the system refuses memory for the buckets: {error}");
                    log(LogLevel::Error, &line);
                    return None;
                }
            },
        };
        values.kept.expect_pages(page);
        Some(values)
    }

    /// Opens the values; `page` is the maximum size of a page in bytes.
    fn new(settings: &StoreSettings, page: usize) -> std::io::Result<Self> {
        let mut values = Self {
            kept: Shared::anonymous(settings.buckets)?,
            of_process: Shared::anonymous(1)?,
            file: settings.file.clone(),
            problem: None,
        };
        let Some(path) = &settings.file else {
            return Ok(values);
        };
        let process = Process::read(formats::of_all_values());
        let is_sound = |shared: &Shared| formats::are_sound(&mut Kept(shared), &settings.namespace);
        let opened = shared::open(Path::new(path), settings.buckets, process, &is_sound);
        let opened = opened.and_then(|Opened { shared, note }| {
            shared.expect_pages(page);
            let reserved = shared.reserve(settings.buckets);
            let full = |error| format!("it cannot be made large enough for store.buckets: {error}");
            reserved.map_err(full)?;
            Ok((shared, note))
        });
        match opened {
            Ok((shared, note)) => {
                if let Some(note) = note {
                    log(LogLevel::Warn, &format!("store.file {path:?}: {note}"));
                }
                values.kept = shared;
            }
            Err(error) => {
                let problem = format!(
                    "store.file {path:?} cannot be used, so buckets, bans and edits end with this process: {error}"
                );
                log(LogLevel::Error, &problem);
                values.problem = Some(problem);
            }
        }
        Ok(values)
    }

    /// Warns if the new configuration names a different file.
    fn compare(&self, settings: &StoreSettings) {
        if self.file != settings.file {
            let line = format!(
                "store.file: {:?} takes effect when Envoy restarts; until then {:?} applies",
                settings.file.as_deref().unwrap_or("none"),
                self.file.as_deref().unwrap_or("none")
            );
            log(LogLevel::Warn, &line);
        }
    }

    fn keep_gauges(&'static self, namespace: &str) {
        let gauges = [
            (Gauge::Generation, "generation"),
            (Gauge::Used, "store.used"),
            (Gauge::Bans, "bans"),
        ];
        for (gauge, name) in gauges {
            if let Some(gauge) = self.kept.gauge(gauge) {
                metrics::keep(&format!("{namespace}.{name}"), gauge);
            }
        }
    }

    /// Returns the store that contains this key: `kept`, or the store whose values end with the
    /// process.
    pub(crate) fn of(&self, key: &[u8]) -> &Shared {
        if formats::is_of_process(key) {
            &self.of_process
        } else {
            &self.kept
        }
    }

    /// Returns the problem with the configured file, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        if let (true, Some(path)) = (self.kept.is_full(), &self.file) {
            return Some(format!(
                "store.file {path:?} cannot grow, so new buckets and changes are not kept, and rules that need them \
                 are decided by on_error: make room on the disk"
            ));
        }
        self.problem.clone()
    }
}

/// Read-only access to stored values.
struct Kept<'a>(&'a Shared);

impl SharedData for Kept<'_> {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Cas>, StoreFailed> {
        Ok(self.0.get(key, value))
    }

    fn set(&mut self, _: &[u8], _: &[u8], _: Cas) -> Result<Written, StoreFailed> {
        Err(StoreFailed)
    }
}
