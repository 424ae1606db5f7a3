//! Actions of the mouse.

use super::{SIZE, send};
use crate::app::columns::Column;
use crate::app::effects::Effect;
use crate::app::fixture::{state, type_keys};
use crate::app::msg::Msg;
use crate::app::press::{Code, Mouse, MouseAction, Press, Spot};
use crate::app::screen::Screen;
use crate::app::state::{Mode, State};

/// Clicks on `spot` at its position in the last frame.
pub(super) fn click(state: &mut State, spot: Spot) -> Vec<Effect> {
    let theme = crate::ui::Theme::new(false, false);
    let spots = crate::ui::tests::look::spots(state, &theme, SIZE);
    let (x, y) = spots
        .of(spot)
        .unwrap_or_else(|| panic!("{spot:?} is not drawn"));
    let spot = spots.at(x, y);
    send(
        state,
        Msg::Mouse(Mouse {
            action: MouseAction::Click,
            x,
            y,
            spot,
        }),
    )
}

fn wheel(state: &mut State, action: MouseAction) {
    let mouse = Mouse {
        action,
        x: 5,
        y: 5,
        spot: None,
    };
    send(state, Msg::Mouse(mouse));
}

#[test]
fn a_click_on_a_footer_key_is_the_key() {
    let mut state = state(SIZE, 3);
    click(&mut state, Spot::Key(Press::char('?')));
    assert!(matches!(state.mode, Mode::Help(0)));
    wheel(&mut state, MouseAction::WheelDown);
    assert!(matches!(state.mode, Mode::Help(3)), "{:?}", state.mode);
    wheel(&mut state, MouseAction::WheelUp);
    assert!(matches!(state.mode, Mode::Help(0)));
    click(&mut state, Spot::Key(Press::plain(Code::Esc)));
    assert!(matches!(state.mode, Mode::Browse));
}

#[test]
fn a_click_on_a_question_answers_it() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "R");
    assert!(matches!(state.mode, Mode::Confirm(_)));
    // The screen below does not react.
    let theme = crate::ui::Theme::new(false, false);
    let spots = crate::ui::tests::look::spots(&state, &theme, SIZE);
    assert_eq!(spots.of(Spot::Tab(Screen::Rules)), None);
    let effects = click(&mut state, Spot::Key(Press::plain(Code::Enter)));
    assert!(matches!(effects[..], [Effect::Change(_)]), "{effects:?}");
}

#[test]
fn a_click_chooses_fields_and_values() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "o");
    let Mode::OfKey(form) = &state.mode else {
        panic!("{:?}", state.mode);
    };
    let before = form.fields[0].value();
    assert_eq!(form.focus, 0);
    click(&mut state, Spot::Field(1));
    let Mode::OfKey(form) = &state.mode else {
        panic!("{:?}", state.mode);
    };
    assert_eq!(form.focus, 1);
    click(&mut state, Spot::Choice(0, 1));
    let Mode::OfKey(form) = &state.mode else {
        panic!("{:?}", state.mode);
    };
    assert_eq!(form.focus, 0);
    assert_ne!(form.fields[0].value(), before);
    wheel(&mut state, MouseAction::WheelDown);
    assert!(matches!(&state.mode, Mode::OfKey(form) if form.focus == 1));
}

#[test]
fn a_click_chooses_a_field_of_a_request() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "x");
    click(&mut state, Spot::Field(1));
    assert!(matches!(&state.mode, Mode::Explain(explain) if explain.focus == 1));
    click(&mut state, Spot::Field(0));
    assert!(matches!(&state.mode, Mode::Explain(explain) if explain.focus == 0));
}

#[test]
fn a_click_chooses_a_limit_of_a_bucket() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "<ret>");
    assert_eq!((state.screen, state.limit), (Screen::Bucket, None));
    for limit in [1, 0] {
        click(&mut state, Spot::Line(limit));
        assert_eq!(state.limit, Some(limit));
    }
}

#[test]
fn a_click_on_a_line_of_a_menu_takes_it() {
    let mut state = state(SIZE, 3);
    type_keys(&mut state, "s");
    click(&mut state, Spot::Line(1));
    assert!(matches!(state.mode, Mode::Browse));
    assert_eq!(state.table.sort.column, Column::Rule);
    type_keys(&mut state, ":help");
    click(&mut state, Spot::Line(0));
    assert!(matches!(state.mode, Mode::Help(_)));
}

#[test]
fn a_click_on_a_tab_opens_its_screen() {
    let mut state = state((120, 40), 3);
    let theme = crate::ui::Theme::new(false, false);
    let spots = crate::ui::tests::look::spots(&state, &theme, (120, 40));
    let (x, y) = spots.of(Spot::Tab(Screen::Rules)).expect("a tab");
    let spot = spots.at(x, y);
    let mouse = Mouse {
        action: MouseAction::Click,
        x,
        y,
        spot,
    };
    send(&mut state, Msg::Mouse(mouse));
    assert_eq!(state.screen, Screen::Rules);
}
