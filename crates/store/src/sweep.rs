//! Converting untouched buckets to the version in force, so that the history of a rule can be forgotten.
//!
//! A rule that is edited again and again would otherwise have to remember every change as long as any
//! bucket lives. The sweep visits the pages in small steps; the caller keeps its position.

use alloc::vec::Vec;

use loudou_limiter::Clock;

use crate::attempt::GaveUp;
use crate::names::{self, Names};
use crate::page::{Page, Slot};
use crate::rule::{Age, LiveRule};
use crate::shared_data::{MAX_RETRIES, SharedData, Written};
use crate::table::Table;

impl Table {
    /// Converts the buckets of `rule` in a page to the version in force; returns their number. A bucket
    /// whose name is lost stays unchanged: its key, and so its limits, are unknown.
    pub fn bring_page_forward(
        &self,
        store: &mut dyn SharedData,
        index: u32,
        rule: &dyn LiveRule,
        clock: Clock,
    ) -> Result<usize, GaveUp> {
        let key = self.page_key(index);
        let mut bytes = Vec::new();
        for _ in 0..=MAX_RETRIES {
            let Some(cas) = store.get(&key, &mut bytes)? else {
                return Ok(0);
            };
            let mut page = Page::decode(&bytes).map_err(|_unknown| GaveUp::UnknownPage)?;
            let is_behind =
                |slot: &Slot| slot.rule_tag == rule.tag() && rule.age(slot.version) == Age::Older;
            if !page.slots.iter().any(is_behind) {
                return Ok(0);
            }
            store.get(&self.key(names::KIND, index), &mut bytes)?;
            let names = Names::decode(&bytes);
            let mut brought: usize = 0;
            let Page { origins, slots } = &mut page;
            for slot in slots.iter_mut().filter(|slot| is_behind(slot)) {
                if let Some(name) = names.get(slot.fingerprint) {
                    let limits = rule.limits_of(name);
                    let origin = origins.wrapping_add(1);
                    if slot.bring_forward(rule, (name, limits), origin, clock) {
                        *origins = origin;
                    }
                    brought = brought.saturating_add(1);
                }
            }
            page.encode(&mut bytes);
            if brought == 0 || store.set(&key, &bytes, cas)? == Written::Done {
                return Ok(brought);
            }
        }
        Err(GaveUp::Conflicts)
    }
}
