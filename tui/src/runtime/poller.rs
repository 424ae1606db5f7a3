//! The poller's thread: reads status, rules, buckets and events, one poll after the other.

use std::sync::mpsc::{Receiver, SyncSender};

use loudou_api::{BucketView, Events, MAX_PAGE};
use loudou_limiter::Nanos;

use super::panic_if_asked;
use crate::app::effects::PollRequest;
use crate::app::msg::{Failure, Msg, Snapshot};
use crate::client::{BucketsQuery, Client, ClientError};
use crate::clock::Clock;

/// The most buckets of one poll; the screen says when there are more.
const MOST_BUCKETS: usize = 5_000;
/// The most pages: a server may answer with short ones.
const MOST_PAGES: usize = 200;
/// The longest that pages are asked for.
const LONGEST: Nanos = Nanos::from_secs(5);

/// Polls as often as asked, until nobody asks any more.
pub(super) fn run(
    client: &Client,
    clock: Clock,
    requests: &Receiver<PollRequest>,
    answers: &SyncSender<Msg>,
) {
    for request in requests {
        panic_if_asked("poller");
        let snapshot = poll(client, clock, request).map(Box::new);
        if answers
            .send(Msg::Polled(snapshot.map_err(failure)))
            .is_err()
        {
            return;
        }
    }
}

/// A client's error, for the app.
pub(super) fn failure(error: ClientError) -> Failure {
    let text = error.to_string();
    let in_doubt = matches!(
        error,
        ClientError::TimedOut { .. } | ClientError::Unexpected { .. }
    );
    let problem = match error {
        ClientError::Problem { problem, .. } => Some(problem),
        _ => None,
    };
    Failure {
        text,
        problem,
        in_doubt,
    }
}

fn poll(client: &Client, clock: Clock, request: PollRequest) -> Result<Snapshot, ClientError> {
    let status = client.status()?;
    let rules = if request.generation == Some(status.generation) {
        None
    } else {
        Some(client.rules()?)
    };
    let events = events(client, request.after_seq)?;
    let (buckets, truncated) = buckets(client, clock)?;
    Ok(Snapshot {
        status,
        buckets,
        truncated,
        rules,
        events: events.events,
        last_seq: events.last_seq,
        events_lost: events.lost,
    })
}

fn events(client: &Client, after: u64) -> Result<Events, ClientError> {
    let events = client.events(after)?;
    // A server that was started anew counts from 1 again.
    if events.last_seq < after {
        client.events(0)
    } else {
        Ok(events)
    }
}

type Buckets = Vec<(u64, BucketView)>;

/// Pages up to a bound, and whether there are more.
fn buckets(client: &Client, clock: Clock) -> Result<(Buckets, bool), ClientError> {
    let mut buckets = Vec::new();
    let mut query = BucketsQuery {
        limit: Some(MAX_PAGE),
        ..BucketsQuery::default()
    };
    let start = clock.now();
    for _ in 0..MOST_PAGES {
        let page = client.buckets(&query)?;
        let now_ns = page.now_ns;
        buckets.extend(page.buckets.into_iter().map(|bucket| (now_ns, bucket)));
        query.cursor = page.next_cursor;
        let all = query.cursor.is_none();
        let enough = buckets.len() >= MOST_BUCKETS || clock.now().since(start) > LONGEST;
        if all || enough {
            let truncated = !all || buckets.len() > MOST_BUCKETS;
            buckets.truncate(MOST_BUCKETS);
            return Ok((buckets, truncated));
        }
    }
    Ok((buckets, true))
}
