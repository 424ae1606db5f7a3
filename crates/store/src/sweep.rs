//! Converts buckets that are not receiving requests to the current version of their rule, so that
//! older versions of the rule can be discarded.
//!
//! Without the sweep, a frequently edited rule would have to keep all its earlier versions as long
//! as any bucket might still use them. The sweep visits the pages in small steps; its current
//! position is stored by the caller.

use alloc::vec::Vec;

use loudou_limiter::Clock;

use crate::attempt::{GaveUp, StoreStats};
use crate::change::PageChange;
use crate::names::{self, Names};
use crate::page::SlotHead;
use crate::shared_data::{SharedData, Written};
use crate::table::{Age, LiveRule};
use crate::table::{BucketId, Table};

impl Table {
    /// Converts the buckets of `rule` in a page to the rule's current version, and returns the
    /// number of buckets converted. A bucket whose name is lost remains unchanged, because its key,
    /// and therefore its limits, are unknown.
    pub fn bring_page_forward(
        &self,
        store: &mut dyn SharedData,
        index: u32,
        rule: &dyn LiveRule,
        clock: Clock,
    ) -> Result<usize, GaveUp> {
        let id = BucketId {
            rule_tag: rule.tag(),
            fingerprint: 0,
            page: index,
        };
        let mut change = PageChange::new(self, id, "");
        let mut bytes = Vec::new();
        loop {
            change.read(store)?;
            let page = &mut change.page;
            let is_behind = |head: &SlotHead| {
                head.rule_tag == rule.tag() && rule.age(head.version) == Age::Older
            };
            let behind: Vec<SlotHead> = page.heads().filter(is_behind).collect();
            if behind.is_empty() {
                return Ok(0);
            }
            store.get(&self.key(names::KIND, index), &mut bytes)?;
            let names = Names::decode(&bytes);
            let mut brought: usize = 0;
            for head in behind {
                if let Some(name) = names.get(head.fingerprint)
                    && let Some((place, mut slot)) = page.find(head.fingerprint)
                {
                    let limits = rule.limits_in(name, Some((&slot.bucket, slot.version)));
                    let origin = page.origins().wrapping_add(1);
                    if slot.bring_forward(rule, (name, &limits), origin, clock) {
                        page.set_origins(origin);
                    }
                    page.replace(place, &slot);
                    brought = brought.saturating_add(1);
                }
            }
            if brought == 0 || change.write(store, &mut StoreStats::default())? == Written::Done {
                return Ok(brought);
            }
        }
    }
}
