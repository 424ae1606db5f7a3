//! A simulated server with buckets, for tests of polls.

use loudou_api::{
    BucketNames, BucketView, BucketsPage, Events, ProblemAnswer, RuleTotals, Rules, Status,
    StoreStatus, Top, TopEntry,
};

use super::MINE;
use loudou_client::fake::Answer;
use loudou_words::num::count;

/// A server with the buckets `k0`, `k1` and so on.
#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) instance: String,
    pub(super) generation: u64,
    /// Number of generation changes between two answers.
    pub(super) edits: u64,
    pub(super) buckets: usize,
    /// Number of buckets on one page of a search.
    pub(super) page: usize,
    /// Number of names that one call reads.
    pub(super) reads: Option<usize>,
    /// Pause that the server demands between two pages of a search.
    pub(super) wait_ns: u64,
    /// True if the server refuses searches for that time.
    pub(super) is_busy: bool,
    /// True if the server has no call that reads several buckets.
    pub(super) is_old: bool,
    /// Refused keys with their counts.
    pub(super) refused: Vec<(usize, u64)>,
}

impl World {
    pub(super) fn new(buckets: usize) -> Self {
        Self {
            instance: MINE.to_owned(),
            generation: 1,
            buckets,
            page: 500,
            ..Self::default()
        }
    }

    fn bucket(&self, key: &str) -> Option<BucketView> {
        let number: usize = key.strip_prefix('k')?.parse().ok()?;
        (number < self.buckets).then(|| BucketView {
            rule: "r".to_owned(),
            key: key.to_owned(),
            ..BucketView::default()
        })
    }

    pub(super) fn answer(&mut self, request: &str) -> Answer {
        let (line, body) = (request.lines().next().unwrap_or(""), request.lines().last());
        let path = line.split(' ').nth(1).unwrap_or("").to_owned();
        let answer = match path.split(['?']).next().unwrap_or("") {
            "/v1/status" => Answer::json("200 OK", &self.status()),
            "/v1/rules" => Answer::json("200 OK", &self.rules()),
            "/v1/events" => {
                let instance = self.instance.clone();
                Answer::json(
                    "200 OK",
                    &Events {
                        instance,
                        ..Events::default()
                    },
                )
            }
            "/v1/top" => Answer::json("200 OK", &self.top(&path)),
            "/v1/buckets" if line.starts_with("POST") && self.is_old => {
                problem("405 Method Not Allowed", 405)
            }
            "/v1/buckets" if line.starts_with("POST") => {
                let names = serde_json::from_str(body.unwrap_or("")).expect("names");
                Answer::json("200 OK", &self.read(&names))
            }
            "/v1/buckets" if self.is_busy => {
                let busy: ProblemAnswer = ProblemAnswer {
                    status: 429,
                    retry_after_ns: Some(self.wait_ns),
                    ..ProblemAnswer::default()
                };
                Answer::json("429 Too Many Requests", &busy)
            }
            "/v1/buckets" if !Self::knows(&path) => problem("404 Not Found", 404),
            "/v1/buckets" => Answer::json("200 OK", &self.search(&path)),
            one => match self.bucket(one.rsplit('/').next().unwrap_or("")) {
                Some(bucket) => Answer::json("200 OK", &bucket),
                None => problem("404 Not Found", 404),
            },
        };
        if self.edits > 0 {
            self.edits -= 1;
            self.generation += 1;
        }
        answer
    }

    fn status(&self) -> Status {
        Status {
            instance: self.instance.clone(),
            generation: self.generation,
            now_ns: 9,
            store: StoreStatus {
                used: count(self.buckets),
                ..StoreStatus::default()
            },
            rules: vec![RuleTotals::default()],
            ..Status::default()
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            instance: self.instance.clone(),
            generation: self.generation,
            ..Rules::default()
        }
    }

    fn top(&self, path: &str) -> Top {
        let refused = self.refused.iter().filter(|_| path.contains("by=refused"));
        let entry = |(key, count): &(usize, u64)| TopEntry {
            rule: "r".to_owned(),
            key: format!("k{key}"),
            count: *count,
            ..TopEntry::default()
        };
        Top {
            top: refused.map(entry).collect(),
            ..Top::default()
        }
    }

    fn read(&self, names: &BucketNames) -> BucketsPage {
        let most = self.reads.unwrap_or(usize::MAX).min(names.buckets.len());
        let looked = names.buckets.iter().take(most);
        BucketsPage {
            buckets: looked.filter_map(|(_, key)| self.bucket(key)).collect(),
            next_cursor: (most < names.buckets.len()).then(|| most.to_string()),
            ..self.page()
        }
    }

    /// Returns true unless a search is for a rule that does not exist.
    fn knows(path: &str) -> bool {
        !path.contains("rule=") || path.contains("rule=r&") || path.ends_with("rule=r")
    }

    fn search(&self, path: &str) -> BucketsPage {
        let value = |name: &str| {
            let (_, value) = path.split_once(&format!("{name}="))?;
            value.split('&').next().map(ToOwned::to_owned)
        };
        let from: usize = value("cursor")
            .and_then(|from| from.parse().ok())
            .unwrap_or(0);
        let limit: usize = value("limit")
            .and_then(|limit| limit.parse().ok())
            .unwrap_or(100);
        let end = (from + self.page.min(limit)).min(self.buckets);
        let part = value("key").unwrap_or_default();
        let keys = (from..end).map(|key| format!("k{key}"));
        let found = keys.filter(|key| key.contains(&part) && !path.contains("state="));
        BucketsPage {
            buckets: found.filter_map(|key| self.bucket(&key)).collect(),
            next_cursor: (end < self.buckets).then(|| end.to_string()),
            wait_ns: self.wait_ns,
            pages: 100,
            pages_done: u32::try_from(end * 100 / self.buckets.max(1)).unwrap_or(0),
            ..self.page()
        }
    }

    fn page(&self) -> BucketsPage {
        BucketsPage {
            instance: self.instance.clone(),
            now_ns: 9,
            generation: self.generation,
            ..BucketsPage::default()
        }
    }
}

fn problem(line: &str, status: u16) -> Answer {
    let problem: ProblemAnswer = ProblemAnswer {
        status,
        ..ProblemAnswer::default()
    };
    Answer::json(line, &problem)
}
