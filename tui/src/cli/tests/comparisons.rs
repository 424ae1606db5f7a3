//! `loudou replay --compare` with several rule files.

use std::io::Write as _;

use serde_json::{Value, json};

use super::*;

/// Returns a rule file with a header as key, and a funnel of this capacity.
fn rules(capacity: u32) -> tempfile::NamedTempFile {
    let limit = json!({ "name": "l", "algorithm": "funnel", "capacity": capacity, "rate": "1/s" });
    let rules = json!({ "version": 1, "rules": [
        { "name": "per-user", "key": [{ "header": "x-user-id" }], "limits": [limit] },
    ] });
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    write!(file, "{rules}").expect("room");
    file
}

/// Returns a trace of ten users. User number u sends u requests at once, every minute.
fn trace() -> String {
    let requests = (0..10_u64).flat_map(|minute| (0..10_u64).map(move |user| (minute, user)));
    let lines = requests.flat_map(|(minute, user)| {
        let line = json!({ "at_ns": minute * 60_000_000_000, "headers": { "x-user-id": format!("u{user}") } });
        (0..user).map(move |_| format!("{line}\n"))
    });
    lines.collect()
}

fn replay(options: &str) -> Ran {
    let trace = trace();
    let loudou = Loudou {
        bytes: trace.as_bytes(),
        ..Loudou::default()
    };
    loudou.run(&format!("replay {options}"))
}

fn document(options: &str) -> Value {
    let ran = replay(&format!("{options} --output json"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).expect("JSON")
}

/// Each file decides as in a separate run. The changes are the differences between it and the first
/// file.
#[test]
fn files_beside_each_other_decide_as_each_alone() {
    let files = [5, 9, 2, 5].map(rules);
    let names = files
        .each_ref()
        .map(|file| file.path().display().to_string());
    let [first, others @ ..] = &names;
    let compared = others.each_ref().map(|name| format!("--compare {name}"));
    let together = document(&format!("--config {first} {}", compared.join(" ")));
    // Number of requests that a capacity admits out of those that ten users send in ten minutes.
    let passed = |capacity: u64| {
        (0..10)
            .map(|user: u64| user.min(capacity) * 10)
            .sum::<u64>()
    };
    assert_eq!(together["requests"]["admitted"], json!(passed(5)));
    for (index, (name, capacity)) in others.iter().zip([9, 2, 5]).enumerate() {
        let alone = document(&format!("--config {name}"));
        let one = &together["compare"][index];
        for field in [
            "config",
            "requests",
            "rules",
            "refused_keys",
            "timeline",
            "waits",
            "store",
        ] {
            assert_eq!(one[field], alone[field], "{field} of {capacity}");
        }
        let count = |of: &str| one["changes"][of].as_u64().expect("a number");
        let (more, less) = (
            passed(5).min(passed(capacity)),
            passed(5).max(passed(capacity)),
        );
        assert_eq!(count("changed"), less - more, "{capacity}");
        let newly = passed(5).saturating_sub(passed(capacity));
        assert_eq!(count("admit_refuse"), newly, "{capacity}");
    }
}

#[test]
fn several_files_in_a_table() {
    let files = [5, 9, 2].map(rules);
    let names = files
        .each_ref()
        .map(|file| file.path().display().to_string());
    let [first, second, third] = &names;
    let ran = replay(&format!(
        "--config {first} --compare {second} --compare {third}"
    ));
    let mut seen = ran.seen();
    for (name, word) in names
        .iter()
        .zip(["first.yaml", "second.yaml", "third.yaml"])
    {
        seen = seen.replace(name, word);
    }
    assert_snapshot!("replay_compare_several", seen);
    let many = format!("--compare {second} ").repeat(8);
    let ran = replay(&format!("--config {first} {many}"));
    assert_eq!(ran.code, 2);
    assert_eq!(ran.err, "loudou: --compare takes at most 7 files, not 8\n");
}
