//! Bans that are not enforced, and the authors of bans and overrides.

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
