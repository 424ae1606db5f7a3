//! Bans that are not enforced, and the authors of bans and overrides.

use loudou_api::{BanBy, BanView, EditView, Event, EventKind, OverrideView};

use super::{Theme, draw};
use crate::app::fixture::{banned, type_keys};
use crate::app::state::State;

const SIZE: (u16, u16) = (120, 40);

fn text(state: &State) -> String {
    draw(state, &Theme::new(false, false), SIZE)
        .backend()
        .to_string()
}

#[test]
fn a_ban_of_a_rule_in_shadow_mode_is_shown_as_off() {
    let mut state = banned(SIZE, 20);
    type_keys(&mut state, "/mallory<ret>");
    assert!(text(&state).contains("⊘ banned"));
    for row in &mut state.data.as_mut().expect("data").rows {
        row.view.shadow = true;
    }
    let list = text(&state);
    assert!(list.contains("◌ ban off") && !list.contains("⊘"), "{list}");
    assert!(!list.contains("3m50s"), "{list}");
    type_keys(&mut state, "<ret>");
    let bucket = text(&state);
    assert!(bucket.contains("◌ ban off"), "{bucket}");
    let line = "for 3m50s more, not enforced: the";
    assert!(bucket.contains(line), "{bucket}");
    assert!(bucket.contains("rule is in shadow mode or off"), "{bucket}");
    assert!(!bucket.contains("retry after 3m50s"), "{bucket}");
}

/// Returns the Bucket screen of mallory, with a ban by this operator, and an edit of the override.
fn by(author: &str, reason: &str) -> String {
    let mut state = banned(SIZE, 20);
    type_keys(&mut state, "/mallory<ret><ret>");
    let data = state.data.as_mut().expect("data");
    for row in data.rows.iter_mut().filter(|row| row.id.key == "mallory") {
        row.view.ban = Some(BanView::default());
    }
    data.events.insert(
        0,
        Event {
            kind: EventKind::Ban,
            rule: Some("reply-per-user".to_owned()),
            key: Some("mallory".to_owned()),
            by: author.to_owned(),
            reason: reason.to_owned(),
            ..Event::default()
        },
    );
    let edited = OverrideView {
        key: "mal*".to_owned(),
        edit: EditView {
            by: author.to_owned(),
            reason: reason.to_owned(),
            expires_at_ns: Some(data.status.now_ns + 1_200_000_000_000),
            ..EditView::default()
        },
    };
    data.rules.rules[0].overrides = vec![edited];
    text(&state)
}

#[test]
fn a_ban_and_an_override_have_their_author() {
    let shown = by("ops", "scraping");
    for line in [
        "banned by an operator until unbanned",
        "ban made by ops: scraping",
        "override of mal*: scale 0.5, expires in 20m",
        "override made by ops: scraping",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let shown = by("ops\u{1b}[2J", "");
    assert!(
        shown.contains("ban made by ops\\u{1b}[2J: no reason given"),
        "{shown}"
    );
    assert!(!shown.contains('\u{1b}'), "{shown}");
}

/// The author of a ban that was lifted since is not shown.
#[test]
fn the_author_of_an_earlier_ban_is_not_shown() {
    let mut state = banned(SIZE, 20);
    type_keys(&mut state, "/mallory<ret><ret>");
    let event = |kind| Event {
        kind,
        rule: Some("reply-per-user".to_owned()),
        key: Some("mallory".to_owned()),
        by: "ops".to_owned(),
        ..Event::default()
    };
    let data = state.data.as_mut().expect("data");
    data.events = vec![event(EventKind::Unban), event(EventKind::Ban)];
    for row in &mut data.rows {
        row.view.ban = Some(BanView::default());
    }
    assert!(!text(&state).contains("made by"), "{}", text(&state));
    // A ban by a penalty has no author.
    let data = state.data.as_mut().expect("data");
    data.events.remove(0);
    assert!(text(&state).contains("ban made by ops"));
    let data = state.data.as_mut().expect("data");
    for ban in data.rows.iter_mut().filter_map(|row| row.view.ban.as_mut()) {
        ban.by = BanBy::Penalty;
    }
    assert!(!text(&state).contains("made by"));
}
