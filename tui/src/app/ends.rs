//! End of a ban or an override of a key.

use loudou_api::BanBy;
use loudou_words::meaning::enforced_ban;

use super::rows::Row;
use super::state::State;

/// End of a key's enforced ban or, without a ban, of its edited override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) is_ban: bool,
    /// Remaining time, or `None` if there is no end.
    pub(crate) left_ns: Option<u64>,
}

impl End {
    /// Returns the end for a row. An override of the configuration has no end, and is not returned
    /// unless it bans the key.
    pub(crate) fn of(state: &State, row: &Row) -> Option<Self> {
        let ban = enforced_ban(&row.view);
        let edit = row.view.own.as_ref().and_then(|own| {
            let edited = &state.rule_named(&row.id.rule)?.overrides;
            let found = edited.iter().find(|edited| edited.key == own.pattern);
            found.map(|edited| &edited.edit)
        });
        let until_ns = match (ban, edit) {
            (None, None) => return None,
            (Some(ban), _) if ban.by != BanBy::Override => ban.until_ns,
            (_, edit) => edit.and_then(|edit| edit.expires_at_ns),
        };
        let now_ns = state.server_ns().saturating_add(state.age().get());
        Some(Self {
            is_ban: ban.is_some(),
            left_ns: until_ns.map(|until| until.saturating_sub(now_ns)),
        })
    }
}
