//! A recording that goes back: every screen is then as if it had been played only so far.

use std::io::Cursor;
use std::sync::mpsc::{Sender, channel, sync_channel};

use loudou_api::{Event, EventKind, Rules};

use super::*;
use crate::app::fixture::{S, rules, snapshot, type_keys};
use crate::app::play::Control;
use crate::app::state::{Settings, State};
use crate::app::update::update;
use crate::tape::tests::recorded;
use crate::ui::tests::text;

const SIZE: (u16, u16) = (120, 40);

/// The second Envoy is away from this poll on.
const AWAY: u64 = 70;

/// Two Envoys in turn, a poll a second: rules change at polls 40 and 41, and the first Envoy restarts after poll 9.
fn tape() -> Tape {
    let answers = (0..120_u64).map(|poll| {
        let envoy = usize::from(poll % 2 == 1);
        if envoy == 1 && poll >= AWAY {
            let text = "cannot reach it".to_owned();
            return (
                envoy,
                Err(Failure {
                    text,
                    ..Failure::default()
                }),
            );
        }
        let mut snapshot = snapshot(poll);
        snapshot.last_seq = 200;
        if envoy == 0 && poll >= 10 {
            snapshot.status.instance = "ffff".to_owned();
        }
        if poll < 2 || poll == 10 || [40, 41].contains(&poll) {
            let mut rules = rules();
            rules[0].rule["limits"][0]["capacity"] = (15 + poll).into();
            snapshot.rules = Some(Rules {
                instance: snapshot.status.instance.clone(),
                generation: 7 + poll,
                rules,
                ..Rules::default()
            });
            snapshot.events = vec![Event {
                seq: 4 + poll,
                at_ns: snapshot.status.now_ns - S,
                kind: EventKind::Edit,
                by: format!("at {poll}"),
                ..Event::default()
            }];
        }
        (envoy, Ok(Box::new(snapshot)))
    });
    let bytes = recorded(&answers.collect::<Vec<_>>(), true, Some(End::Done));
    Tape::open(Box::new(Cursor::new(bytes))).expect("opens")
}

/// The screens of two Envoys that watch a recording.
fn states(play: &Play) -> Vec<State> {
    let state = |number: usize| {
        let settings = Settings {
            url: format!("http://127.0.0.1:991{number}"),
            read_only: true,
            interval: Nanos::from_secs(2),
            ..Settings::default()
        };
        let mut state = State::new(settings, SIZE);
        state.play = Some(play.clone());
        state
    };
    vec![state(1), state(2)]
}

/// Applies what the player sent.
fn apply(states: &mut [State], inbox: &Receiver<Inbound>) -> Vec<String> {
    let mut notes = Vec::new();
    for inbound in inbox.try_iter() {
        match inbound {
            Inbound::Played(at, Some(envoy), msg) => {
                let effects = update(&mut states[envoy], msg, at);
                assert!(effects.is_empty(), "{effects:?}");
            }
            Inbound::Sought(rewinds) => notes.push(format!("sought {rewinds}")),
            Inbound::Ended(why) => notes.push(why),
            Inbound::Played(..) | Inbound::Live(..) => panic!("not of a player"),
        }
    }
    notes
}

/// A player whose clock stands still, what it sends, and the way of orders to it.
fn player(tape: Tape) -> (Player, Receiver<Inbound>, Sender<Play>) {
    let (first, last) = (tape.marks[0], tape.marks[tape.marks.len() - 1]);
    let play = Play::new(at(&first), at(&last), first.stamp.unix_ms, Nanos::ZERO);
    let (screen, inbox) = sync_channel(10_000);
    let (user, orders) = channel();
    let player = Player {
        tape,
        clock: Clock::standing(),
        orders,
        screen,
        play,
        next: 0,
    };
    (player, inbox, user)
}

/// All screens of both Envoys at a time.
fn screens(states: &mut [State], at: Nanos, play: &Play) -> String {
    let mut all = String::new();
    for state in states {
        update(state, Msg::Tick, at);
        state.toasts.clear();
        state.play = Some(play.clone());
        for keys in ["", "3", "5"] {
            type_keys(state, &format!("<esc>{keys}"));
            all.push_str(&text(state, SIZE));
        }
        type_keys(state, "<esc>");
    }
    all
}

fn sent(play: &mut Play, control: Control, seconds: u64) {
    for _ in 0..seconds {
        play.control(control, Nanos::ZERO);
    }
}

#[test]
fn going_back_is_as_if_it_had_been_played_only_so_far() {
    for second in [5, 8, 39, 41, 65, 90, 115] {
        // Played up to there.
        let (mut until, inbox, _user) = player(tape());
        sent(&mut until.play, Control::Ahead(1), second - 1);
        let mut straight = states(&until.play);
        let due = |player: &Player| {
            let mark = player.tape.marks.get(player.next);
            mark.is_some_and(|mark| at(mark) <= Nanos::from_secs(second))
        };
        while due(&until) {
            assert!(until.step().is_ok());
            apply(&mut straight, &inbox);
        }
        // Played to the end, and back.
        let (mut whole, inbox, _user) = player(tape());
        sent(&mut whole.play, Control::Ahead(60), 2);
        let mut back = states(&whole.play);
        while whole.play.end.is_none() {
            assert!(whole.step().is_ok());
            apply(&mut back, &inbox);
        }
        assert_eq!(whole.play.end.as_deref(), Some("its time was over"));
        sent(&mut whole.play, Control::Back(1), 120 - second);
        assert!(whole.go_back().is_ok());
        let notes = apply(&mut back, &inbox);
        assert_eq!(notes, [format!("sought {}", 120 - second)]);
        assert_eq!(whole.next, until.next);
        let now = whole.play.at(Nanos::ZERO);
        assert_eq!(now, Nanos::from_secs(second));
        let expected = screens(&mut straight, now, &until.play);
        let seen = screens(&mut back, now, &until.play);
        let lines = seen.lines().zip(expected.lines());
        let differ: Vec<_> = lines.filter(|(seen, expected)| seen != expected).collect();
        assert!(differ.is_empty(), "at {second} s: {differ:#?}");
        if second == 41 {
            assert!(seen.contains("at 40"), "{seen}");
        }
        // And it goes on from there.
        assert!(whole.feed_next().is_ok());
        assert!(apply(&mut back, &inbox).is_empty());
    }
}

/// A line that is JSON, but no answer: the recording ends before it, as often as it gets there.
#[test]
fn a_damaged_answer_is_the_end() {
    let bytes = recorded(
        &(0..4_u64)
            .map(|poll| (0, Ok(Box::new(snapshot(poll)))))
            .collect::<Vec<_>>(),
        false,
        None,
    );
    let text = String::from_utf8(bytes).expect("text");
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    lines[3] = lines[3].replace("\"now_ns\":", "\"now_ns\":-");
    let bytes = (lines.join("\n") + "\n").into_bytes();
    let tape = Tape::open(Box::new(Cursor::new(bytes))).expect("opens");
    let (mut player, inbox, _user) = player(tape);
    let mut states = states(&player.play);
    for _ in 0..2 {
        sent(&mut player.play, Control::Ahead(60), 1);
        while player.play.end.is_none() {
            assert!(player.step().is_ok());
        }
        let notes = apply(&mut states, &inbox);
        let last = notes.last().map(String::as_str).unwrap_or_default();
        assert!(last.starts_with("line 4 is damaged: column "), "{notes:?}");
        sent(&mut player.play, Control::Back(1), 1);
        assert!(player.go_back().is_ok());
    }
}

/// Where nobody is left to see it, the player ends.
#[test]
fn without_a_screen_there_is_no_player() {
    let (player, inbox, _user) = player(tape());
    drop(inbox);
    player.run();
}
