//! Reads bucket lists at the pace requested by the filter, so that reading does not slow the filter
//! down.

use loudou_api::BucketsPage;
use loudou_limiter::Nanos;

use super::{BucketsQuery, Client, ClientError};
use crate::clock::pause;

/// HTTP status returned for a call that was sent too early.
const TOO_EARLY: u16 = 429;
/// Maximum pause, even if the server requests a longer one.
const MAX_PAUSE: Nanos = Nanos::from_secs(2);
/// Maximum number of retries per call. Retries are needed because other clients may read buckets at
/// the same time.
const MAX_RETRIES: usize = 30;

/// A reader's pace. It is shared by all lists that the reader requests.
#[derive(Debug, Default)]
pub struct Pace {
    /// Pause before the next call.
    wait: Nanos,
}

impl Pace {
    /// Reads the next page. Waits first, for the duration that the filter requested with the
    /// previous page.
    pub fn buckets(
        &mut self,
        client: &Client,
        query: &BucketsQuery,
    ) -> Result<BucketsPage, ClientError> {
        for _ in 0..MAX_RETRIES {
            pause(self.wait);
            match client.buckets(query) {
                Ok(page) => {
                    self.wait = bounded(page.wait_ns);
                    return Ok(page);
                }
                Err(error) => self.wait = too_early(&error).ok_or(error)?,
            }
        }
        client.buckets(query)
    }
}

/// If a call was rejected because it was sent too early, returns how long to wait before retrying.
pub fn too_early(error: &ClientError) -> Option<Nanos> {
    let problem = error
        .problem()
        .filter(|_| error.status() == Some(TOO_EARLY))?;
    problem.retry_after_ns.map(bounded)
}

fn bounded(ns: u64) -> Nanos {
    Nanos::new(ns).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loudou_api::ProblemAnswer;

    use super::*;
    use crate::clock::Clock;
    use crate::fake::{Answer, Fake};

    fn read(answers: Vec<Answer>, calls: usize) -> (Vec<Result<BucketsPage, ClientError>>, Nanos) {
        let fake = Fake::new(answers);
        let client = fake.client(Duration::from_secs(10));
        let (mut pace, clock) = (Pace::default(), Clock::start());
        let read = (0..calls).map(|_| pace.buckets(&client, &BucketsQuery::default()));
        (read.collect(), clock.now())
    }

    fn page(wait_ns: u64) -> Answer {
        let page = BucketsPage {
            wait_ns,
            ..BucketsPage::default()
        };
        Answer::json("200 OK", &page)
    }

    fn refused(retry_after_ns: Option<u64>) -> Answer {
        let problem: ProblemAnswer = ProblemAnswer {
            status: TOO_EARLY,
            retry_after_ns,
            ..ProblemAnswer::default()
        };
        Answer::json("429 Too Many Requests", &problem)
    }

    #[test]
    fn a_reader_waits_between_pages_but_not_before_the_first() {
        let wait = 50_000_000;
        let (pages, took) = read(vec![page(wait), page(wait), page(0)], 3);
        assert!(pages.iter().all(Result::is_ok), "{pages:?}");
        assert!(took.get() >= 2 * wait, "{took}");
    }

    #[test]
    fn a_call_that_came_too_early_is_made_again() {
        let wait = 20_000_000;
        let (pages, took) = read(vec![refused(Some(wait)), refused(Some(wait)), page(0)], 1);
        assert!(pages.iter().all(Result::is_ok), "{pages:?}");
        assert!(took.get() >= 2 * wait, "{took}");
        // A call is not retried if the maximum number of retries has been reached or the filter
        // does not specify a delay.
        let (pages, _) = read((0..=MAX_RETRIES).map(|_| refused(Some(1))).collect(), 1);
        assert_eq!(pages[0].as_ref().expect_err("refused").status(), Some(429));
        let (pages, _) = read(vec![refused(None)], 1);
        assert_eq!(pages[0].as_ref().expect_err("refused").status(), Some(429));
    }

    #[test]
    fn no_server_makes_a_reader_wait_for_long() {
        assert_eq!(bounded(u64::MAX), MAX_PAUSE);
    }
}
