//! Undoes the user's changes. The user is asked to confirm an undo at the Envoy on the screen. If a
//! broadcast is undone at all Envoys, the user is not asked again for the other Envoys.

use loudou_api::{BanAnswer, BanView};

use super::effects::{ChangeOutcome, InDoubt, Sending, Undoable};
use super::previewed;
use super::question::Pending;
use super::rows::BucketName;
use super::state::{Mode, State};
use loudou_client::ClientError;
use loudou_client::change::ban_all::BanAll;
use loudou_client::change::ban_undo::Seen;
use loudou_client::change::in_doubt::{DoubtUndo, ServerState};
use loudou_client::change::verb::Question;
use loudou_client::change::{Change, Undo};

/// Line of the question about undoing a change that was made at several Envoys.
const FOR_ALL: &str = "Made at several Envoys: Enter undoes it only at this one.";
/// Line of the question about undoing a change for which no answer arrived.
const UNKNOWN: &str = "It may or may not be in force: Envoy has not answered since.";
/// Maximum number of changes that can be undone.
const MAX_UNDOS: usize = 50;

/// Asks whether to undo the user's last change. If that change expired or was not made, reports
/// this and removes the change, so that the next press of the undo key concerns the change before
/// it.
pub(crate) fn ask(state: &mut State) {
    if let Some(pending) = state.unasked.take() {
        state.mode = Mode::Confirm(pending);
        return;
    }
    let Some(Undoable { tried, broadcast }) = state.undos.last().cloned() else {
        return;
    };
    let seen = |rule: &str, key: &str, after_ns: u64| {
        state.seen_after(&BucketName::new(rule, key), after_ns)
    };
    match tried {
        ChangeOutcome::Made(undo) => {
            if let Some((question, change)) = undo.ask(state.polled_ns(), seen) {
                open(state, question, change, broadcast);
            } else {
                drop_last(state, format!("nothing left to undo: {}", undo.change()));
            }
        }
        ChangeOutcome::Sent(change, _) => {
            state.toast(false, format!("no answer yet to {}", change.name()));
        }
        ChangeOutcome::NotMade(change, why) => {
            drop_last(
                state,
                format!("nothing to undo of {}: {why}", change.name()),
            );
        }
        ChangeOutcome::InDoubt(doubt) => ask_in_doubt(state, *doubt, broadcast),
    }
}

/// Asks whether to undo a change that may or may not have been made, because no answer arrived.
fn ask_in_doubt(state: &mut State, mut doubt: InDoubt, broadcast: Option<u64>) {
    let (name, now_ns) = (doubt.change.name(), state.polled_ns());
    let (rule, key) = (doubt.change.verb().rule(), doubt.change.verb().key());
    let ban = key.map_or(Seen::Unknown, |key| {
        state.seen_after(&BucketName::new(rule, key), doubt.since_ns)
    });
    let server = ServerState {
        before: doubt.before,
        ban,
        rule: state.rule_read(rule),
        is_read: now_ns > doubt.since_ns,
        now_ns,
    };
    let undo = match doubt.change.doubt(&server) {
        DoubtUndo::Undo(undo) => undo,
        DoubtUndo::NotMade => {
            let text =
                format!("nothing to undo: there was no answer to {name}, and it is not in force");
            return drop_last(state, text);
        }
        DoubtUndo::Endless => {
            let text = format!("there was no answer to {name}, which cannot be undone");
            return drop_last(state, text);
        }
    };
    let Some((mut question, change)) = undo.ask(now_ns, |_, _, _| ban) else {
        return drop_last(state, format!("nothing left to undo: {name}"));
    };
    question.title = format!("There was no answer to {name}. Undo it?");
    let words = server.words(&doubt.change);
    question.detail = vec![words.map_or_else(|| UNKNOWN.to_owned(), |now| format!("now: {now}"))];
    doubt.asked = Some(undo);
    if let Some(last) = state.undos.last_mut() {
        last.tried = ChangeOutcome::InDoubt(Box::new(doubt));
    }
    open(state, question, change, broadcast);
}

/// Opens the question that asks the user to confirm an undo.
fn open(state: &mut State, mut question: Question, change: Change, broadcast: Option<u64>) {
    if let Change::Edit(edit) = &change {
        question.detail.extend(previewed::with_waits(state, edit));
    }
    question
        .detail
        .extend(broadcast.map(|_| FOR_ALL.to_owned()));
    let pending = Pending::undo(question, change, broadcast);
    state.mode = Mode::Confirm(Box::new(pending));
}

/// Removes the last change, because it cannot be undone, and shows a message.
fn drop_last(state: &mut State, text: String) {
    state.undos.pop();
    let text = match state.undos.last().map(Undoable::of) {
        None => text,
        Some((rule, of_key)) => {
            let of = of_key.unwrap_or(rule);
            format!("{text}; u again: the change of {of} before it")
        }
    };
    state.toast(false, text);
}

/// Records a change that is being sent.
pub(crate) fn sent(state: &mut State, sending: &Sending) {
    if sending.is_undo {
        return;
    }
    let buckets = sending.change.buckets().into_iter();
    let before = buckets.filter_map(|(rule, key)| {
        let bucket = BucketName::new(rule, key);
        match state.seen_after(&bucket, 0) {
            Seen::Read(ban) => Some((bucket, ban?)),
            Seen::Gone | Seen::Unknown => None,
        }
    });
    let before = before.collect();
    push(
        state,
        ChangeOutcome::Sent(Box::new(sending.change.clone()), before),
        None,
    );
}

/// Records that a change was made at this Envoy, with its undo if it has one.
pub(crate) fn made(state: &mut State, sending: &Sending, undo: Option<Undo>) {
    take_sent(state, &sending.change);
    if let Some(undo) = undo {
        push(state, ChangeOutcome::Made(undo), sending.broadcast);
    }
}

/// Records that a change was not made at this Envoy.
pub(crate) fn not_made(state: &mut State, sending: &Sending, why: &str) {
    if sending.is_undo {
        return;
    }
    take_sent(state, &sending.change);
    let tried = ChangeOutcome::NotMade(Box::new(sending.change.clone()), why.to_owned());
    push(state, tried, sending.broadcast);
}

/// Records that no answer to a change arrived, so that the change is in doubt.
pub(crate) fn in_doubt(state: &mut State, sending: &Sending) {
    if sending.is_undo {
        return;
    }
    let before = take_sent(state, &sending.change);
    part_in_doubt(state, sending, sending.change.clone(), &before);
}

/// Records the results of a ban in several rules. Each ban for which no answer arrived is recorded
/// separately as in doubt.
pub(crate) fn made_in_parts(
    state: &mut State,
    sending: &Sending,
    (all, results): (&BanAll, &[Result<BanAnswer, ClientError>]),
    undo: Option<Undo>,
) {
    let before = take_sent(state, &sending.change);
    let is_doubtful =
        |result: &Result<_, ClientError>| result.as_ref().is_err_and(ClientError::is_in_doubt);
    for (ban, result) in all.bans.iter().zip(results) {
        if is_doubtful(result) {
            part_in_doubt(state, sending, Change::Ban(ban.clone()), &before);
        }
    }
    // The undo key concerns the last attempted change, even if it failed.
    if let (None, Some(error)) = (
        &undo,
        results.iter().find_map(|result| result.as_ref().err()),
    ) && !results.iter().any(is_doubtful)
    {
        return not_made(state, sending, &error.to_string());
    }
    made(state, sending, undo);
}

fn part_in_doubt(
    state: &mut State,
    sending: &Sending,
    change: Change,
    before: &[(BucketName, BanView)],
) {
    let buckets = change.buckets();
    let is_it =
        |bucket: &BucketName| buckets.contains(&(bucket.rule.as_str(), bucket.key.as_str()));
    let before = before.iter().find(|(bucket, _)| is_it(bucket));
    let doubt = InDoubt {
        before: before.map(|(_, ban)| *ban),
        change,
        since_ns: state.polled_ns(),
        asked: None,
    };
    push(
        state,
        ChangeOutcome::InDoubt(Box::new(doubt)),
        sending.broadcast,
    );
}

/// Adds a change, and drops the oldest change if there are too many. A change that was not made is
/// kept only while it is the last change.
fn push(state: &mut State, tried: ChangeOutcome, broadcast: Option<u64>) {
    state
        .undos
        .retain(|made| !matches!(made.tried, ChangeOutcome::NotMade(..)));
    if state.undos.len() >= MAX_UNDOS {
        state.undos.remove(0);
    }
    state.undos.push(Undoable { tried, broadcast });
    // A deferred question about an earlier undo is dropped, because the last change is undone
    // first.
    state.unasked = None;
}

/// Removes a change that is waiting for its answer, and returns the bans that its buckets had
/// before.
fn take_sent(state: &mut State, change: &Change) -> Vec<(BucketName, BanView)> {
    let of = |change: &Change| {
        let verb = change.verb();
        (change.name(), verb.rule().to_owned())
    };
    let is_it = |made: &Undoable| matches!(&made.tried, ChangeOutcome::Sent(sent, _) if of(sent) == of(change));
    let at = state.undos.iter().position(is_it);
    match at.map(|at| state.undos.remove(at).tried) {
        Some(ChangeOutcome::Sent(_, before)) => before,
        _ => Vec::new(),
    }
}

/// Returns the change that undoes a broadcast at this Envoy, or `None` if there is nothing to undo.
/// The user is not asked. If someone else has changed the result in the meantime, the filter
/// refuses the undo.
pub(crate) fn of_broadcast(state: &State, number: u64) -> Option<Change> {
    let mut made = state.undos.iter().rev();
    let made = made.find(|made| made.broadcast == Some(number))?;
    let (_, change) = made
        .undo()?
        .ask(state.polled_ns(), |_, _, _| Seen::Unknown)?;
    Some(change)
}
