//! Undoing the user's changes: the question at the Envoy that is shown, and the undo of a change for all at the others.

use super::effects::Undoable;
use super::previewed;
use super::question::Pending;
use super::rows::BucketName;
use super::state::{Mode, State};
use crate::change::Change;
use crate::change::ban_undo::Seen;

/// The question's sentence about a change for all.
const FOR_ALL: &str = "Made at several Envoys: Enter undoes it only at this one.";

/// Opens the question whether to undo the user's last change. Expired changes are dropped.
pub(crate) fn ask(state: &mut State) {
    if let Some(pending) = state.unasked.take() {
        state.mode = Mode::Confirm(pending);
        return;
    }
    while let Some(Undoable { undo, broadcast }) = state.undos.last() {
        let seen = match (undo.of(), undo.made_at_ns()) {
            ((rule, Some(key)), Some(after_ns)) => {
                state.seen_after(&BucketName::new(rule, key), after_ns)
            }
            _ => Seen::Unknown,
        };
        if let Some((mut question, change)) = undo.ask(state.polled_ns(), seen) {
            if let Change::Edit(edit) = &change {
                question.detail.extend(previewed::lines(state, edit));
            }
            let told = broadcast.map(|_| FOR_ALL.to_owned());
            question.detail.extend(told);
            let pending = Pending::undo(question, change, *broadcast);
            state.mode = Mode::Confirm(Box::new(pending));
            return;
        }
        let text = format!("nothing left to undo: {}", undo.change());
        state.toast(false, text);
        state.undos.pop();
    }
}

/// The undo of this Envoy's part of the change for all of this number; `None` if nothing is left of that. Nobody is
/// asked here, so that it is refused where others have changed the result.
pub(crate) fn of_broadcast(state: &State, number: u64) -> Option<Change> {
    let mut made = state.undos.iter().rev();
    let made = made.find(|made| made.broadcast == Some(number))?;
    let (_, change) = made.undo.ask(state.polled_ns(), Seen::Unknown)?;
    Some(change)
}
