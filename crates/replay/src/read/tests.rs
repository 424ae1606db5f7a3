use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use loudou_limiter::Nanos;
use proptest::prelude::*;

use super::*;
use crate::decisions::Decided;
use crate::sort::Scratch;
use crate::window::Bound;

/// Watches nothing.
struct Quiet;

impl Observer for Quiet {
    fn decided(&mut self, _: &Decided<'_>) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: Progress) -> io::Result<()> {
        Ok(())
    }
}

/// An instant, the index of an input, and the number of a line in it.
type Line = (u64, u32, u64);

/// All lines in the order in which they are decided, and what was read.
fn lines(inputs: &[(&str, Vec<u8>)], reading: &Reading<'_>) -> Result<(Vec<Line>, Intake), Error> {
    let inputs = inputs.iter();
    let inputs = inputs.map(|(name, bytes)| Input::new(name, &bytes[..]));
    let mut recording = read(inputs.collect(), reading, &mut Quiet)?;
    let mut lines = Vec::new();
    while let Some((place, line)) = recording.next().map_err(Error::Sort)? {
        let at = match line {
            LogLine::Request(request) => request.at,
            LogLine::Edit(edit) => edit.at,
        };
        lines.push((at.get(), place.input, place.line));
    }
    Ok((lines, recording.intake))
}

fn trace(times: &[u64]) -> Vec<u8> {
    let lines = times.iter().map(|at| format!("{{\"at_ns\":{at}}}\n"));
    lines.collect::<String>().into_bytes()
}

proptest! {
    #[test]
    fn the_same_in_memory_and_on_disk(
        times in prop::collection::vec(prop::collection::vec(0_u64..100, 0..60), 1..4),
        memory in 1_usize..2_000,
    ) {
        let names = ["a", "b", "c"];
        let inputs: Vec<(&str, Vec<u8>)> =
            names.into_iter().zip(times.iter().map(|times| trace(times))).collect();
        let small = Reading { memory, ..Reading::default() };
        let (found, about) = lines(&inputs, &small).expect("reads");
        let (wanted, _) = lines(&inputs, &Reading::default()).expect("reads");
        prop_assert_eq!(&found, &wanted);
        let mut sorted = found.clone();
        sorted.sort_unstable();
        prop_assert_eq!(found, sorted);
        let mut back = 0;
        for times in &times {
            let mut newest = 0;
            for at in times {
                back += u64::from(*at < newest);
                newest = newest.max(*at);
            }
        }
        prop_assert_eq!(about.steps_back, back);
    }
}

#[test]
fn edits_stay_at_their_instant() {
    let edit =
        |at: u64| format!("{{\"at_ns\":{at},\"set\":{{\"rule\":\"r\",\"mode\":\"off\"}}}}\n");
    let request = |at: u64| format!("{{\"at_ns\":{at}}}\n");
    let text = [
        request(5),
        edit(9),
        request(9),
        edit(2),
        request(7),
        edit(9),
    ]
    .concat();
    let inputs = [("t", text.into_bytes())];
    let (all, _) = lines(&inputs, &Reading::default()).expect("reads");
    let order: Vec<(u64, u64)> = all.iter().map(|(at, _, line)| (*at, *line)).collect();
    assert_eq!(order, [(2, 4), (5, 1), (7, 5), (9, 2), (9, 3), (9, 6)]);

    // An edit from before the window is in effect when it begins, and one from after it is not.
    let window = Window {
        from: Some(Bound::At(Nanos::new(6))),
        to: Some(Bound::At(Nanos::new(9))),
    };
    let reading = Reading {
        window,
        ..Reading::default()
    };
    let (part, about) = lines(&inputs, &reading).expect("reads");
    let order: Vec<(u64, u64)> = part.iter().map(|(at, _, line)| (*at, *line)).collect();
    assert_eq!(
        (order.as_slice(), about.outside),
        (&[(6, 4), (7, 5)][..], 2)
    );
}

#[test]
fn compressed_input_that_is_cut_off() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(&trace(&[1, 2, 3])).expect("writes");
    let whole = encoder.finish().expect("writes");
    let (cut, _) = whole.split_at(whole.len() - 14);
    let inputs = [("cut.gz", cut.to_vec()), ("whole", trace(&[0, 9]))];
    let (found, about) = lines(&inputs, &Reading::default()).expect("reads");
    let times: Vec<u64> = found.iter().map(|(at, ..)| *at).collect();
    assert_eq!(times, [0, 1, 2, 9]);
    assert!(about.inputs[0].damaged.is_some() && about.inputs[1].damaged.is_none());
    let strict = Reading {
        strict: true,
        ..Reading::default()
    };
    assert!(matches!(lines(&inputs, &strict), Err(Error::Read(name, _)) if name == "cut.gz"));
}

#[test]
fn times_far_away_and_times_that_are_none() {
    let line = |time: &str| format!("10.0.0.1 - - [{time}] \"GET / HTTP/1.1\" 200 1\n");
    let text = [
        "31/Dec/2024:23:59:60 +0000",
        "01/Jan/2025:00:00:00 +0000",
        "31/Dec/2024:23:59:59 +0000",
        "01/Jan/1970:00:00:00 +0000",
        "31/Dec/2500:00:00:00 +0000",
        "31/Mar/2024:02:30:00 +0100",
        "31/Mar/2024:03:30:00 +0200",
        // None of these is a time.
        "31/Dec/9999:23:59:59 +0000",
        "30/Feb/2024:00:00:00 +0000",
        "01/Jan/1969:00:00:00 +0000",
        "-",
    ];
    let inputs = [("log", text.map(line).concat().into_bytes())];
    let (found, about) = lines(&inputs, &Reading::default()).expect("reads");
    let order: Vec<u64> = found.iter().map(|(_, _, line)| *line).collect();
    assert_eq!(order, [4, 6, 7, 3, 1, 2, 5]);
    assert_eq!(
        found[1].0, found[2].0,
        "the same instant in winter time and in summer time"
    );
    assert_eq!((about.untimed, about.bad), (4, 4));
}

/// Garbage of every kind between two requests: what can be read is, in bounded memory.
#[test]
fn hostile_lines() {
    let long = "x".repeat(MAX_LINE + 1).into_bytes();
    let partial = format!(
        "2024-01-01T00:00:00.000000000Z stdout P {}",
        "y".repeat(1_000)
    );
    let text = [
        &b"{\"at_ns\":2}"[..],
        b"\0\0\0",
        b"\xff\xfe{",
        &long,
        partial.as_bytes(),
        b"{\"log\":\"\\ud800\",\"stream\":\"stdout\"}",
        b"[pod/",
        b"{\"at_ns\":99999999999999999999}",
        b"{\"at_ns\":1}",
    ]
    .join(&b'\n');
    let (found, about) = lines(&[("log", text)], &Reading::default()).expect("reads");
    let order: Vec<u64> = found.iter().map(|(_, _, line)| *line).collect();
    assert_eq!(order, [9, 1]);
    assert_eq!((about.bad, about.lines, about.steps_back), (7, 9, 1));
    assert_eq!(about.first_bad.len(), 5);
}

#[test]
fn a_scratch_file_that_cannot_be_opened() {
    let no = || -> io::Result<Box<dyn Scratch>> { Err(io::ErrorKind::PermissionDenied.into()) };
    let reading = Reading {
        memory: 1,
        scratch: &no,
        ..Reading::default()
    };
    let error = lines(&[("t", trace(&[1]))], &reading).map(|_| ());
    assert!(matches!(error, Err(Error::Sort(_))), "{error:?}");
}
