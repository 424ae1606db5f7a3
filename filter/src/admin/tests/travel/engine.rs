//! A model of the relay and its engine, which handles only changes.

use std::collections::BTreeMap;

use loudou_api::{Change, LeaseAnswer, LeaseRequest, RejectedChange};

/// The engine as `docs/reference/relay.md` describes it.
#[derive(Default)]
pub(super) struct Engine {
    pub(super) epoch: u64,
    generation: u64,
    /// When each was made, its generation, when it ends, and itself.
    pub(super) changes: BTreeMap<String, (i64, u64, Option<i64>, Change)>,
    pub(super) is_down: bool,
    /// Names that each answer refuses, in addition to the reported ones.
    pub(super) refuses: Vec<String>,
}

impl Engine {
    pub(super) fn answer(&mut self, request: &LeaseRequest, now: i64) -> LeaseAnswer {
        self.changes
            .retain(|_, (_, _, ends, _)| ends.is_none_or(|ends| ends > now));
        let epoch = format!("e{}", self.epoch);
        let known = if request.epoch == epoch {
            request.generation
        } else {
            0
        };
        let ms = |number: u64| i64::try_from(number).expect("small");
        for change in &request.changes {
            let mut made = now - ms(change.age_ms);
            if let Some((old_made, generation, _, old)) = self.changes.get(&change.name) {
                if *generation <= known {
                    made = made.max(old_made + 1);
                } else if *old_made > made {
                    continue;
                } else if old.value == change.value {
                    self.changes
                        .entry(change.name.clone())
                        .and_modify(|kept| kept.0 = made);
                    continue;
                }
            }
            self.generation += 1;
            let ends = match change.ends_in_ms {
                _ if change.value.is_null() => Some(now + 3_600_000),
                0 => None,
                span => Some(now + ms(span)),
            };
            let kept = (made, self.generation, ends, change.clone());
            self.changes.insert(change.name.clone(), kept);
        }
        let mut news: Vec<_> = self
            .changes
            .values()
            .filter(|(_, generation, ..)| *generation > known)
            .collect();
        news.sort_by_key(|(_, generation, ..)| *generation);
        let told = |(made, generation, ends, change): &&(i64, u64, Option<i64>, Change)| Change {
            age_ms: u64::try_from(now - made).unwrap_or(0),
            ends_in_ms: ends.map_or(0, |ends| u64::try_from(ends - now).expect("later")),
            generation: *generation,
            instance: "00000000000000aa".to_owned(),
            ..change.clone()
        };
        // Few in an answer, so that there is more.
        let more = news.len() > 2;
        news.truncate(2);
        LeaseAnswer {
            envoys: 3,
            generation: news.last().map_or(self.generation, |news| news.1),
            epoch,
            changes: news.iter().map(told).collect(),
            more,
            rejected: self.refuses.iter().map(|name| refused(name)).collect(),
            ..LeaseAnswer::default()
        }
    }

    /// It comes back without its data.
    pub(super) fn forget(&mut self) {
        (self.epoch, self.generation) = (self.epoch + 1, 0);
        self.changes.clear();
    }
}

fn refused(name: &str) -> RejectedChange {
    RejectedChange {
        name: name.to_owned(),
        why: "no room".to_owned(),
    }
}
