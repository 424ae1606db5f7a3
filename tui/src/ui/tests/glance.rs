//! The Buckets screen names an incident: each row, and the head, has one meaning.

use loudou_api::{BucketState, BucketView, EditView, LimitView, OverrideView};
use loudou_limiter::Nanos;
use loudou_words::meaning::Standing;
use loudou_words::num::count;
use ratatui::style::Modifier;

use super::{Theme, draw, text};
use crate::app::fixture::{S, banned, snapshot, state, type_keys};
use crate::app::msg::{Msg, Snapshot};
use crate::app::state::State;
use crate::app::targets::TargetSummary;
use crate::app::update::update;

const SIZE: (u16, u16) = (140, 24);

/// Applies the answer to poll number `poll`, changed by `change`.
fn feed(state: &mut State, poll: u64, change: impl FnOnce(&mut Snapshot)) {
    let mut snapshot = snapshot(poll);
    change(&mut snapshot);
    let msg = Msg::Polled(Ok(Box::new(snapshot)));
    update(state, msg, Nanos::from_secs(poll));
}

/// Returns the line of a key.
fn line(state: &State, key: &str, size: (u16, u16)) -> String {
    let text = text(state, size);
    let found = text.lines().find(|line| line.contains(key));
    found
        .unwrap_or_else(|| panic!("no {key}: {text}"))
        .to_owned()
}

/// Time in which the funnel leaks a unit.
const UNIT_MS: u64 = 5_000;

/// A bucket of a funnel with 3 units at 12/m, for a key that sends a request each `every_ms`.
struct Client {
    every_ms: u64,
    next_ms: u64,
    /// Time until the funnel is empty. A request adds [`UNIT_MS`].
    level_ms: u64,
    bucket: BucketView,
    /// The counts of admitted and refused requests at each poll.
    counts: Vec<[u64; 2]>,
}

impl Client {
    fn new(every_ms: u64) -> Self {
        let limit = LimitView {
            name: "burst".to_owned(),
            algorithm: "funnel".to_owned(),
            capacity: 3,
            rate: "12/m".to_owned(),
            drain_ns: 15 * S,
            drains: true,
            ..LimitView::default()
        };
        let bucket = BucketView {
            rule: "reply-per-user".to_owned(),
            key: "erin".to_owned(),
            limits: vec![limit],
            ..BucketView::default()
        };
        Self {
            every_ms,
            next_ms: 0,
            level_ms: 0,
            bucket,
            counts: Vec::new(),
        }
    }

    /// Returns true if at least half of the requests of the last 60 polls were refused.
    fn is_mostly_refused(&self) -> bool {
        let (last, first) = (self.counts.len() - 1, self.counts.len().saturating_sub(61));
        let [admitted, refused] =
            [0, 1].map(|kind| self.counts[last][kind] - self.counts[first][kind]);
        refused >= admitted
    }

    /// Returns the bucket at poll number `poll`.
    fn at(&mut self, poll: u64, now_ns: u64) -> BucketView {
        let (bucket, until_ms) = (&mut self.bucket, poll * 1_000);
        for ms in until_ms.saturating_sub(999)..=until_ms {
            self.level_ms = self.level_ms.saturating_sub(1);
            if ms < self.next_ms {
                continue;
            }
            self.next_ms += self.every_ms;
            let at_ns = now_ns - (until_ms - ms) * 1_000_000;
            bucket.last_seen_ns = at_ns;
            if self.level_ms <= 2 * UNIT_MS {
                self.level_ms += UNIT_MS;
                bucket.admitted += 1;
            } else {
                bucket.refused += 1;
                bucket.refused_at_ns = Some(at_ns);
            }
        }
        self.counts.push([bucket.admitted, bucket.refused]);
        let is_recent = |at_ns: u64| now_ns - at_ns < 10 * S;
        bucket.state = if bucket.refused_at_ns.is_some_and(is_recent) {
            BucketState::Refusing
        } else if self.level_ms > 0 {
            BucketState::Busy
        } else {
            BucketState::Idle
        };
        let limit = &mut bucket.limits[0];
        limit.remaining = 3_u64.saturating_sub(self.level_ms.div_ceil(UNIT_MS));
        limit.used = 3 - limit.remaining;
        limit.reset_after_ns = self.level_ms * 1_000_000;
        let wait_ms = self.level_ms.saturating_sub(2 * UNIT_MS);
        limit.retry_after_ns = (wait_ms > 0).then_some(wait_ms * 1_000_000);
        bucket.clone()
    }
}

/// For a key that requests a bit more than its limit, or that stops to, one rule decides the word
/// of the state, the bar and the history.
#[test]
fn state_bar_and_history_agree() {
    for every_ms in [700, 3_400, 4_300, 4_900, 5_600, 30_000] {
        let mut state = state(SIZE, 0);
        let mut client = Client::new(every_ms);
        for poll in 0..140 {
            if poll == 70 {
                client.next_ms = u64::MAX;
            }
            feed(&mut state, poll, |snapshot| {
                let now_ns = snapshot.status.now_ns;
                snapshot.buckets = vec![(now_ns, client.at(poll, now_ns))];
            });
            if poll < 3 {
                continue;
            }
            let line = line(&state, "erin", SIZE);
            let says = |word: &str| line.contains(word);
            let is_full = says("100%");
            assert_eq!(is_full, says("refusing") || says("full"), "{line}");
            let history = says("▒") || says("▓");
            assert_eq!(
                history,
                says("refusing") || says("refused"),
                "{poll} {line}"
            );
            let buffer = draw(&state, &Theme::new(true, false), SIZE);
            let buffer = buffer.backend().buffer();
            let colour = |x: u16| buffer[(x, 3)].fg;
            let bar = (0..140).find(|x| ["█", "▏"].contains(&buffer[(*x, 3)].symbol()));
            let theme = Theme::new(true, false);
            let expected = match () {
                () if says("refusing") && client.is_mostly_refused() => theme.bar(1.0),
                () if says("refusing") || says("refused") || says("full") => theme.bar(0.8),
                () => theme.bar(0.0),
            };
            if let Some(x) = bar.filter(|x| *x < 60) {
                assert_eq!(Some(colour(x)), expected.fg, "{line}");
            }
        }
    }
}

/// The history of a key that requests a bit more than its limit is about as high as its limit.
#[test]
fn a_key_just_over_its_limit_is_not_drawn_far_above_it() {
    for (every_ms, glyphs) in [(4_300, "▄▅"), (9_000, "▂▃")] {
        let mut state = state(SIZE, 0);
        let mut client = Client::new(every_ms);
        for poll in 0..80 {
            feed(&mut state, poll, |snapshot| {
                let now_ns = snapshot.status.now_ns;
                snapshot.buckets = vec![(now_ns, client.at(poll, now_ns))];
            });
        }
        let terminal = draw(&state, &Theme::new(true, false), SIZE);
        let line = terminal.backend().to_string();
        let line = line
            .lines()
            .find(|line| line.contains("erin"))
            .expect("a row");
        let history: String = line.chars().filter(|c| ('▁'..='▇').contains(c)).collect();
        let fits = history.chars().all(|c| glyphs.contains(c));
        assert!(fits && !history.is_empty(), "{line}");
    }
}

/// A row shows since when its key is refused, and until when it is banned or overridden. The column
/// `retry` shows the wait of a limit, and never the end of a ban.
#[test]
fn a_row_has_its_beginning_and_its_end() {
    for (width, ban, raised) in [
        (80, "⊘ 3m50s", "≠ 54m"),
        (180, "penalty 3m50s", "override 54m"),
    ] {
        let size = (width, 24);
        let refused = line(&state(size, 20), "mallory", size);
        assert!(
            refused.contains(" 11m ") || refused.contains(" 12m "),
            "{refused}"
        );
        assert!(width == 80 || refused.contains(" 1.4s "), "{refused}");
        let mut state = banned(size, 20);
        let banned = line(&state, "mallory", size);
        assert!(banned.contains(ban), "{banned}");
        assert!(
            banned.contains(" 11m ") || banned.contains(" 12m "),
            "{banned}"
        );
        assert_eq!(banned.matches("3m50s").count(), 1, "{banned}");
        assert!(!banned.contains(" 1.4s "), "{banned}");
        let now_ns = state.server_ns();
        let data = state.data.as_mut().expect("data");
        data.rules.rules[0].overrides = vec![OverrideView {
            key: "mal*".to_owned(),
            edit: EditView {
                expires_at_ns: Some(now_ns + 54 * 60 * S),
                ..EditView::default()
            },
        }];
        for row in data.rows.iter_mut().filter(|row| row.id.key == "mallory") {
            row.view.ban = None;
        }
        let overridden = line(&state, "mallory", size);
        assert!(overridden.contains(raised), "{overridden}");
        let data = state.data.as_mut().expect("data");
        data.rules.rules[0].overrides[0].edit.expires_at_ns = None;
        let overridden = line(&state, "mallory", size);
        assert!(overridden.contains(" never "), "{overridden}");
    }
    let mut state = state(SIZE, 20);
    let rows = &mut state.data.as_mut().expect("data").rows;
    for row in rows.iter_mut().filter(|row| row.id.key == "mallory") {
        row.view.refused_since_ns = None;
    }
    let unknown = line(&state, "mallory", SIZE);
    assert!(unknown.contains(" ? "), "{unknown}");
}

/// Below 100 columns, a key far above its limit differs from a key a bit above it.
#[test]
fn a_narrow_screen_has_the_demand_of_a_refused_key() {
    for (every_ms, factor) in [(1_250, " ×4.0 "), (455, " ×11 ")] {
        let mut state = state((80, 24), 0);
        let mut client = Client::new(every_ms);
        for poll in 0..80 {
            feed(&mut state, poll, |snapshot| {
                let now_ns = snapshot.status.now_ns;
                snapshot.buckets = vec![(now_ns, client.at(poll, now_ns))];
            });
        }
        let row = line(&state, "erin", (80, 24));
        assert!(row.contains(factor), "{row}");
    }
}

/// Without colours, no text of the selected row is dim, because the row is reversed.
#[test]
fn the_selected_row_is_readable_without_colours() {
    let state = state(SIZE, 20);
    let terminal = draw(&state, &Theme::new(false, false), SIZE);
    let buffer = terminal.backend().buffer();
    let reversed = (0..SIZE.0).map(|x| &buffer[(x, 3)].modifier);
    let reversed = reversed.filter(|modifier| modifier.contains(Modifier::REVERSED));
    assert!(reversed.clone().count() > 50);
    assert!(
        reversed
            .into_iter()
            .all(|modifier| !modifier.contains(Modifier::DIM))
    );
}

/// A burst of one second is seen as a burst for a minute, also if the burst created the bucket.
#[test]
fn a_burst_is_not_a_slow_steady_key() {
    for (size, is_new) in [((80, 24), true), ((140, 24), true), ((80, 24), false)] {
        let mut state = state(size, 0);
        let mut lines = Vec::new();
        for poll in 0..40 {
            feed(&mut state, poll, |snapshot| {
                let clients = [
                    ("burst", if poll < 10 { 0 } else { 200 }),
                    ("steady", 5 * poll),
                ];
                let now_ns = snapshot.status.now_ns;
                let buckets = clients.map(|(key, admitted)| {
                    let mut bucket = Client::new(1).bucket;
                    (bucket.key, bucket.admitted) = (key.to_owned(), admitted);
                    (now_ns, bucket)
                });
                let mut all = buckets.to_vec();
                all.retain(|(_, bucket)| !is_new || bucket.key != "burst" || poll >= 10);
                snapshot.status.store.used = count(all.len());
                snapshot.truncated = is_new && poll > 0;
                snapshot.buckets = all;
            });
            if poll > 11 {
                lines.push(["burst", "steady"].map(|key| line(&state, key, size)));
            }
        }
        for [burst, steady] in lines {
            assert!(burst.contains(" 200 "), "{burst}");
            assert!(
                !steady.contains(" 200 ") && steady.matches(" 5.0 ").count() == 2,
                "{steady}"
            );
        }
    }
}

/// With one of two Envoys away, all parts of the head say so.
#[test]
fn the_head_says_one_thing_about_several_envoys() {
    let target = |url: &str, up| TargetSummary {
        url: url.to_owned(),
        up,
        ..TargetSummary::default()
    };
    let theme = Theme::new(true, false);
    for columns in 40..=200 {
        let size = (columns, 24);
        let mut state = state(size, 20);
        for (up, counts, colour) in [
            (
                Some(true),
                ["2 of 2 Envoys connected", "● 2/2 up"],
                theme.good,
            ),
            (
                Some(false),
                ["1 of 2 Envoys connected", "◐ 1/2 up"],
                theme.warn,
            ),
        ] {
            let own = state.settings.url.clone();
            state.targets = vec![
                target(&own, Some(true)),
                target("http://127.0.0.1:42971", up),
            ];
            let terminal = draw(&state, &theme, size);
            let text = terminal.backend().to_string();
            let head = text.lines().next().expect("a head");
            assert!(counts.iter().any(|words| head.contains(words)), "{head}");
            assert!(columns < 66 || head.contains("127.0.0.1:9911"), "{head}");
            assert!(!head.contains("Envoy 1"), "{head}");
            let buffer = terminal.backend().buffer();
            let end = &buffer[(columns - 2, 0)];
            assert_eq!(Some(end.fg), colour.fg, "{head}");
            assert_eq!(text.contains(":42971 is away"), up == Some(false), "{text}");
        }
    }
}

/// While a flood of keys evicts buckets, the list has no more buckets than the store.
#[test]
fn there_are_no_more_buckets_than_the_store_holds() {
    let mut state = state(SIZE, 0);
    for poll in 0..8_u64 {
        feed(&mut state, poll, |snapshot| {
            let store = &mut snapshot.status.store;
            (store.used, store.buckets) = (1_024, 1_024);
            snapshot.truncated = true;
            let now_ns = snapshot.status.now_ns;
            let keys = (0..400).map(|number| format!("x{poll}-{number}"));
            let keys = keys.chain(["alice".to_owned()]);
            snapshot.buckets = keys
                .map(|key| {
                    let mut bucket = Client::new(1).bucket;
                    bucket.key = key;
                    (now_ns, bucket)
                })
                .collect();
        });
        let rows = &state.data.as_ref().expect("data").rows;
        assert!(rows.len() <= 1_024 && rows.iter().any(|row| row.id.key == "alice"));
        assert!(rows.iter().any(|row| row.id.key == format!("x{poll}-0")));
    }
    let text = text(&state, (199, 24));
    assert!(text.contains(" 1024 buckets "), "{text}");
    assert!(text.contains("store 1024 of 1024 buckets 100%"), "{text}");
}

/// Feeds 100 polls in which every client but five slow ones sends a single request, under a new key.
fn flooded(size: (u16, u16)) -> State {
    let mut state = state(size, 0);
    let mut slow: Vec<Client> = (0..5).map(|number| Client::new(40_000 + number)).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        client.bucket.key = format!("z-slow-{number}");
        client.bucket.admitted = 7;
    }
    for poll in 0..100_u64 {
        feed(&mut state, poll, |snapshot| {
            let status = &mut snapshot.status;
            let store = &mut status.store;
            (store.used, store.buckets) = (1_000 + 200 * poll, 65_536);
            status.rules[0].admitted = 1_000 + 201 * poll;
            status.rules[1].admitted = 0;
            status.rules[2].admitted = 0;
            status.rules[2].shadow_refused = 0;
            status.rules[0].refused = 0;
            let now_ns = snapshot.status.now_ns;
            snapshot.truncated = poll > 0;
            let invented = (0..200).map(|number| {
                let mut bucket = Client::new(1).bucket;
                (bucket.key, bucket.admitted) = (format!("a{poll}-{number}"), 1);
                bucket
            });
            // The list reads slow keys only once, because other keys have more requests.
            let known = slow.iter_mut().map(|client| client.at(poll, now_ns));
            let known = known.filter(|_| poll < 2);
            snapshot.buckets = known
                .chain(invented)
                .map(|bucket| (now_ns, bucket))
                .collect();
        });
    }
    state
}

/// A flood of keys with one request each is a line of its own, and the other keys stay on top.
#[test]
fn a_flood_of_new_keys_hides_no_client() {
    for (size, words) in [
        ((40, 10), "⚠ 99% of requests have a new key: 200"),
        (
            (80, 24),
            "⚠ 99% of requests have a new key: 200 new keys/s, most in reply-per-user;",
        ),
        (
            (140, 24),
            "200 new keys/s, most in reply-per-user; store 32% full, none evicted in use",
        ),
    ] {
        let state = flooded(size);
        let text = text(&state, size);
        assert!(text.contains(words), "{text}");
        let keys = text
            .lines()
            .filter_map(|line| line.find("z-slow").map(|_| line));
        assert_eq!(keys.count(), 5, "{text}");
    }
}

/// On a narrow terminal without colours, the state is one glyph, which distinguishes a key that was
/// refused from one that was not.
#[test]
fn the_glyph_of_a_refused_key_is_its_own() {
    for (ascii, glyphs) in [(false, ["✗", "◐"]), (true, ["-", "+"])] {
        let theme = Theme::new(false, ascii);
        let states = [Standing::Refused, Standing::Busy].map(|state| theme.state(state).0);
        assert_eq!(states.map(String::from), glyphs);
    }
}

/// A filter for full buckets finds the buckets whose bar is full.
#[test]
fn a_filter_by_level_agrees_with_the_bar() {
    let mut state = state(SIZE, 20);
    type_keys(&mut state, "/level >= 100%<ret>");
    let row = line(&state, "mallory", SIZE);
    assert!(row.contains("✖ refusing"), "{row}");
    assert_eq!(state.table.visible.len(), 1);
}
