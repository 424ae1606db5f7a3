//! The Envoy screen can be scrolled completely at every size.

use super::*;

/// Returns a state with a store that lost counts, and with many findings, some of them long.
fn troubled(size: (u16, u16)) -> State {
    let mut state = state(size, 20);
    let data = state.data.as_mut().expect("data");
    let status = &mut data.status;
    status.store.used = 4_000;
    status.store.reloads = 2;
    status.store.lost_counts = 3;
    status.warnings = (0..12)
        .map(|number| {
            format!("warning {number:02} of the filter, in more words than a narrow line has")
        })
        .collect();
    type_keys(&mut state, "6");
    state
}

#[test]
fn many_findings() {
    for (name, keys) in [("many", ""), ("many_end", "G")] {
        let mut state = troubled(USUAL);
        type_keys(&mut state, keys);
        compare(name, &state, USUAL);
    }
}

/// On the smallest terminal, the list keys lead to everything and back.
#[test]
fn everything_can_be_reached() {
    let size = (40, 10);
    let mut state = troubled(size);
    let top = text(&state, size);
    let mut seen = top.clone();
    for _ in 0..60 {
        type_keys(&mut state, "j");
        seen.push_str(&text(&state, size));
    }
    for words in [
        "conflicts",
        "3 counts",
        "memory",
        "reloads",
        "held",
        "admin role",
        "warning 11",
    ] {
        assert!(seen.contains(words), "{words}");
    }
    let end = text(&state, size);
    assert!(
        end.contains("reply-per-user refuses"),
        "the last finding: {end}"
    );
    // One step back is visible at once.
    type_keys(&mut state, "k");
    assert_ne!(text(&state, size), end);
    for (keys, is_end) in [
        ("G", true),
        ("g", false),
        ("<pgdn><pgup>", false),
        ("<end>", true),
    ] {
        type_keys(&mut state, keys);
        assert_eq!(
            text(&state, size),
            if is_end { &end } else { &top }.clone(),
            "{keys}"
        );
    }
    // If the findings become fewer, the screen is not empty.
    if let Some(data) = &mut state.data {
        data.status.warnings.clear();
    }
    assert!(text(&state, size).contains("reply-per-user refuses"));
}

/// The estimate equals the estimate of `loudou check` for the running rules, and grows with the buckets in
/// use.
#[test]
fn the_memory_is_an_estimate() {
    let size = (120, 40);
    let mut state = troubled(size);
    let line = |state: &State| {
        let text = text(state, size);
        let line = text
            .lines()
            .find(|line| line.contains("memory "))
            .map(ToOwned::to_owned);
        line.expect("a line")
    };
    let before = line(&state);
    assert!(before.contains("an estimate: "), "{before}");
    if let Some(data) = &mut state.data {
        data.status.store.used = 40;
    }
    assert_ne!(line(&state), before);
    // There is no estimate if this version does not know a rule.
    if let Some(data) = &mut state.data {
        data.rules.rules[0].rule = json!({ "name": "later" });
        data.running = crate::app::running::Running::default();
    }
    assert!(!text(&state, size).contains("an estimate"));
}
