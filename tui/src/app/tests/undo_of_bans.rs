//! Undo of bans that another user may have changed in the meantime.

use loudou_api::{BanAnswer, BanBy, BanView, BucketView};
use loudou_limiter::Nanos;

use super::of_key::{ban, to};
use super::{SIZE, messages, send, sending_of};
use crate::app::effects::Sending;
use crate::app::fixture::{S, banned, snapshot, state, type_keys};
use crate::app::msg::Msg;
use crate::app::state::{Mode, State};
use loudou_client::change::Change;
use loudou_client::change::ban::{Ban, BanTo};
use loudou_client::change::verb::Answer;

/// Applies the answer of a server that made the change, with the ban of the bucket before and
/// after.
pub(super) fn done(
    state: &mut State,
    change: Box<Sending>,
    before: Option<BanView>,
    after: Option<BanView>,
) {
    let bucket = BucketView {
        ban: after,
        ..BucketView::default()
    };
    let answer = BanAnswer {
        now_ns: state.server_ns(),
        before,
        bucket: Some(bucket),
        changed: true,
        fleet: None,
    };
    send(
        state,
        Msg::Changed(change, Ok(Answer::Ban(Box::new(answer)))),
    );
}

/// Applies poll number `poll`, in which `mallory` has this ban.
pub(super) fn poll(state: &mut State, poll: u64, ban: Option<BanView>) {
    let mut snapshot = snapshot(poll);
    for (_, bucket) in &mut snapshot.buckets {
        if bucket.key == "mallory" {
            bucket.ban = ban;
        }
    }
    send(state, Msg::Polled(Ok(Box::new(snapshot))));
}

/// Returns the condition of a change: the ban that must be in effect.
fn tag(sending: &Sending) -> Option<&str> {
    let Change::Ban(ban) = &sending.change else {
        panic!("{sending:?}")
    };
    ban.if_match.as_deref()
}

pub(super) fn question(state: &State) -> (&str, String) {
    let Mode::Confirm(pending) = &state.mode else {
        panic!("{:?}", state.mode)
    };
    (&pending.question, pending.detail.join("; "))
}

/// Returns a state in which `mallory` was banned for 10 minutes, from 1002 s on.
fn banned_here() -> State {
    let mut state = state(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "b10m<ret><ret>"));
    done(&mut state, change, None, ban(BanBy::Operator, 1_602));
    state
}

#[test]
fn a_ban_that_changed_since_is_not_lifted_without_a_question() {
    let own = ban(BanBy::Operator, 1_602);
    let plain = "Undo the last change for mallory?";
    // Before another poll, nothing is known. After it, the ban is unchanged.
    let mut state = banned_here();
    type_keys(&mut state, "u");
    assert_eq!(question(&state).0, plain);
    type_keys(&mut state, "n");
    poll(&mut state, 3, own);
    type_keys(&mut state, "u");
    assert_eq!(question(&state).0, plain);
    type_keys(&mut state, "n");
    poll(&mut state, 4, ban(BanBy::Operator, 5_004));
    type_keys(&mut state, "u");
    assert_eq!(
        question(&state),
        (
            "The ban of mallory has since been changed by an operator. Undo anyway?",
            "change: mallory is banned for 10m; your change: banned by an operator for 9m58s more; \
             now: banned by an operator for 1h7m more"
                .to_owned()
        )
    );
    let undo = sending_of(type_keys(&mut state, "y"));
    assert_eq!(to(&undo), BanTo::Free(None));
    // The undo is only made if the ban is still the one in the question.
    assert_eq!(tag(&undo), Some("\"ban-operator-5004000000000\""));
    // This also applies while the screen is frozen.
    let mut state = banned_here();
    type_keys(&mut state, " ");
    poll(&mut state, 3, ban(BanBy::Penalty, 1_602));
    type_keys(&mut state, "u");
    assert!(
        question(&state).0.contains("by the rule's penalty"),
        "{state:?}"
    );
}

#[test]
fn a_ban_that_is_over_or_lifted_drops_off_what_can_be_undone() {
    for (number, ban) in [(3, None), (700, None), (700, ban(BanBy::Penalty, 2_000))] {
        let mut state = banned_here();
        poll(&mut state, number, ban);
        assert!(type_keys(&mut state, "u").is_empty());
        assert!(matches!(state.mode, Mode::Browse), "{number} {ban:?}");
        assert!(state.undos.is_empty());
        assert!(messages(&state).contains("nothing left to undo: mallory is banned for 10m"));
    }
    // The ban was longer before, and another user lifted it.
    let mut state = state(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "b10m<ret><ret>"));
    let (before, after) = (ban(BanBy::Penalty, 2_000), ban(BanBy::Operator, 1_602));
    done(&mut state, change, before, after);
    poll(&mut state, 3, None);
    type_keys(&mut state, "u");
    assert_eq!(
        question(&state).0,
        "The ban of mallory has since been lifted. Undo anyway?"
    );
}

#[test]
fn a_key_banned_anew_since_it_was_let_free() {
    let mut state = banned(SIZE, 3);
    let change = sending_of(type_keys(&mut state, "/mallory<ret>b<ret>"));
    done(&mut state, change, ban(BanBy::Penalty, 1_250), None);
    poll(&mut state, 4, ban(BanBy::Operator, 9_000));
    type_keys(&mut state, "u");
    let asked = "mallory has since been banned by an operator. Undo anyway?";
    assert_eq!(question(&state).0, asked);
}

#[test]
fn an_undone_ban_leaves_the_one_before_as_the_last() {
    let mut state = banned_here();
    let first = ban(BanBy::Operator, 1_602);
    poll(&mut state, 3, first);
    let second = ban(BanBy::Operator, 2_203);
    // The undo of the current ban would unban the key, so the second ban is made as if another user
    // had made it.
    let longer = Box::new(Sending {
        change: Change::Ban(Ban {
            rule: "reply-per-user".to_owned(),
            key: "mallory".to_owned(),
            to: BanTo::Banned(Some(Nanos::from_secs(1_200))),
            replaces: false,
            if_match: None,
            reason: String::new(),
        }),
        is_undo: false,
        undoes: None,
        broadcast: None,
    });
    done(&mut state, longer, first, second);
    poll(&mut state, 4, second);
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    assert_eq!(to(&undo), BanTo::Banned(Some(Nanos::from_secs(598))));
    let Change::Ban(shorter) = &undo.change else {
        panic!("{undo:?}")
    };
    assert!(shorter.replaces);
    // The ban was restored slightly later than expected.
    let rest = Some(BanView {
        until_ns: Some(1_602 * S + 5_000_000),
        by: BanBy::Operator,
    });
    done(&mut state, undo, second, rest);
    poll(&mut state, 5, rest);
    assert_eq!(state.undos.len(), 1);
    type_keys(&mut state, "u");
    assert_eq!(question(&state).0, "Undo the last change for mallory?");
}

#[test]
fn an_undo_takes_off_its_own_change_only() {
    let mut state = banned_here();
    let undo = sending_of(type_keys(&mut state, "u<ret>"));
    // Before that is answered, another key is banned.
    let change = sending_of(type_keys(&mut state, "jb<ret><ret>"));
    done(&mut state, change, None, Some(BanView::default()));
    done(&mut state, undo, ban(BanBy::Operator, 1_602), None);
    assert_eq!(state.undos.len(), 1);
    type_keys(&mut state, "u");
    assert!(!question(&state).0.contains("mallory"), "{state:?}");
}
