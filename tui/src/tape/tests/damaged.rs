//! Recordings that are damaged, newer, or made to harm.

use std::fmt::Write as _;
use std::io::Write as _;

use super::*;

/// A change of the lines of a recording.
type Change<'a> = &'a dyn Fn(&mut Vec<String>);

/// The message about a recording of which `change` changes the lines.
fn changed(change: impl Fn(&mut Vec<String>)) -> String {
    let text = String::from_utf8(recorded(&answers(4), false, Some(End::Done))).expect("text");
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    change(&mut lines);
    match open((lines.join("\n") + "\n").as_bytes()) {
        Err(bad) => bad.to_string(),
        Ok(mut tape) => {
            for mark in tape.marks.clone() {
                if let Err(bad) = tape.read(&mark) {
                    return bad.to_string();
                }
            }
            match tape.ending {
                Ending::Damaged(bad) => bad.to_string(),
                ending => format!("{ending:?} after {}", tape.marks.len()),
            }
        }
    }
}

#[test]
fn damaged_files_are_reported_by_line() {
    let cases: [(&str, Change<'_>); 13] = [
        ("unchanged", &|_| {}),
        ("another file", &|lines| lines[0] = "rules:".to_owned()),
        ("another JSON", &|lines| {
            lines[0] = "{\"rules\": []}".to_owned();
        }),
        ("newer", &|lines| {
            lines[0] = "{\"loudou_recording\": 2, \"version\": \"0.9\\u001b[2J\"}".to_owned();
        }),
        ("half a head", &|lines| {
            lines[0] = "{\"loudou_recording\": 1}".to_owned();
        }),
        ("no Envoys", &|lines| {
            let urls = format!("{URLS:?}").replace(", ", ",");
            lines[0] = lines[0].replace(&urls, "[]");
        }),
        ("no answers", &|lines| lines.truncate(1)),
        ("a damaged line", &|lines| lines[2].insert_str(40, "}{")),
        ("an empty line", &|lines| lines.insert(2, String::new())),
        ("back in time", &|lines| lines.swap(2, 4)),
        ("another Envoy", &|lines| {
            lines[2] = lines[2].replace(":9912", ":9913\\u001b[2J");
        }),
        ("neither", &|lines| {
            lines[3] = lines[3].replace("\"failed\"", "\"f\"");
        }),
        ("no status", &|lines| {
            lines[2] = lines[2].replace("\"status\"", "\"s\"");
        }),
    ];
    let mut seen = String::new();
    for (name, change) in cases {
        let text = changed(change);
        writeln!(seen, "{name}: {text}").expect("a string");
    }
    insta::assert_snapshot!(seen);
}

/// A newer writer may add fields, and reasons to end.
#[test]
fn unknown_fields_are_ignored() {
    let seen = changed(|lines| {
        lines[0] = lines[0].replacen('{', "{\"new\":[1],", 1);
        lines[1] = lines[1].replacen('{', "{\"new\":{\"a\":null},", 1);
        lines[1] = lines[1].replace("\"truncated\":", "\"new\":7,\"truncated\":");
        lines[5] = lines[5].replace("\"done\"", "\"for lunch\"");
    });
    assert_eq!(seen, "Said(Other) after 4");
}

/// What a hostile file can make large: a line, a text, a list.
#[test]
fn sizes_are_bounded() {
    let long = |text: &str, many: usize| text.repeat(many);
    let seen = changed(|lines| lines[2] = long(" ", 17 << 20));
    assert_eq!(seen, "line 3: longer than 16.0 MiB");
    let seen = changed(|lines| {
        let key = format!("\"key\":\"{}", long("x", 1 << 20));
        lines[2] = lines[2].replacen("\"key\":\"", &key, 1);
    });
    assert_eq!(seen, "line 3: a text of 1.0 MiB; at most 64.0 KiB are read");
    let seen = changed(|lines| {
        let gone = long("{\"rule\":\"r\",\"key\":\"k\"},", 10_001);
        let gone = format!("\"gone\":[{}]", gone.trim_end_matches(','));
        lines[2] = lines[2].replace("\"gone\":[]", &gone);
    });
    let many = "line 3: `snapshot.gone` has 10001 items; at most 10000 are read";
    assert_eq!(seen, many);
    // Half a gigabyte of zeros in a megabyte.
    let mut zeros = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..512 {
        zeros.write_all(&vec![0; 1 << 20]).expect("writes");
    }
    let bad = open(&zeros.finish().expect("writes")).err();
    let why = bad.map(|bad| bad.to_string()).unwrap_or_default();
    assert!(why.starts_with("line 1: this is not a recording"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any change of any bytes: an error or a recording, and never a panic.
    #[test]
    fn damaged_bytes_do_not_panic(
        is_compressed in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = recorded(&answers(5), is_compressed, Some(End::Done));
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()));
        if let Ok(mut tape) = open(&bytes) {
            for mark in tape.marks.clone() {
                drop(tape.read(&mark));
            }
        }
    }
}
