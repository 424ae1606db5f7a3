//! `loudou replay` compared with an independent bucket. The logs have typical defects, and every
//! decision must be equal.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use loudou_tests::logs::{LogWrapper, Sent, Style, files, gzip, traffic};
use loudou_tests::replayed::Folder;
use serde_json::{Value, json};

/// Limit of all tests: 5 at once, then one every two seconds.
const CAPACITY: u64 = 5;
const EACH_MS: u64 = 2_000;

/// Numbers of passed and refused requests, by time in milliseconds and key.
type Verdicts = BTreeMap<(u64, String), [u64; 2]>;

/// Computes the verdicts with one plain bucket per client. A bucket fills by one request, and
/// drains with time.
fn expected(requests: impl IntoIterator<Item = (u64, String)>) -> Verdicts {
    let mut sorted: Vec<(u64, String)> = requests.into_iter().collect();
    sorted.sort();
    let mut buckets: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut verdicts = Verdicts::new();
    for (at_ms, client) in sorted {
        let (level_ms, last_ms) = buckets.entry(client.clone()).or_insert((0, at_ms));
        *level_ms = level_ms.saturating_sub(at_ms - *last_ms);
        *last_ms = at_ms;
        let fits = *level_ms + EACH_MS <= CAPACITY * EACH_MS;
        let [passed, refused] = verdicts.entry((at_ms, client)).or_default();
        if fits {
            *level_ms += EACH_MS;
            *passed += 1;
        } else {
            *refused += 1;
        }
    }
    verdicts
}

/// Returns a folder with the rule, whose limit has this algorithm.
fn folder(algorithm: &str) -> Result<Folder> {
    Folder::new(&json!([{
        "name": "per-client", "key": ["source"],
        "limits": [{ "name": "l", "algorithm": algorithm, "capacity": CAPACITY, "rate": "30/60s" }],
    }]))
}

/// Runs a replay and returns its verdicts.
fn verdicts(folder: &Folder, traces: &[&str], options: &[&str]) -> Result<Verdicts> {
    let options = [options, &["--output", "jsonl"]].concat();
    let (out, _) = folder.replay(traces, &options)?;
    let mut verdicts = Verdicts::new();
    let mut last = 0;
    for line in out.lines() {
        let line: Value = serde_json::from_str(line)?;
        let at_ns = line
            .get("at_ns")
            .and_then(Value::as_u64)
            .context("an instant")?;
        ensure!(at_ns >= last, "{at_ns} after {last}");
        last = at_ns;
        let key = line
            .get("key")
            .and_then(Value::as_str)
            .context("a key")?
            .to_owned();
        let [passed, refused] = verdicts.entry((at_ns / 1_000_000, key)).or_default();
        match line.get("verdict").and_then(Value::as_str) {
            Some("admit") => *passed += 1,
            Some("refuse") => *refused += 1,
            other => bail!("{other:?}"),
        }
    }
    Ok(verdicts)
}

/// Fails at the first difference.
fn same(found: &Verdicts, wanted: &Verdicts, of: &str) -> Result<()> {
    let different = |(key, counts): &(&(u64, String), &[u64; 2])| found.get(key) != Some(counts);
    let first = wanted.iter().find(different);
    ensure!(
        first.is_none() && found.len() == wanted.len(),
        "{of}: {first:?}, not {:?}; {} of {} instants",
        first.and_then(|(key, _)| found.get(key)),
        found.len(),
        wanted.len()
    );
    let refused: u64 = wanted.values().map(|[_, refused]| refused).sum();
    ensure!(
        refused > 100,
        "{of}: only {refused} refused: nothing is tested"
    );
    Ok(())
}

fn of_style(sent: &[Sent], style: Style) -> Verdicts {
    let requests = sent.iter();
    expected(requests.map(|sent| (style.start_ms(sent), sent.address())))
}

/// Fails if the summary reports lines of the logs that could not be read.
fn all_read(summary: &str, style: Style) -> Result<()> {
    let summary: Value = serde_json::from_str(summary)?;
    let trace = summary.get("trace").context("a trace")?;
    let others = trace.get("other_lines").and_then(Value::as_object);
    let others = others.context("an object")?;
    let others: u64 = others.values().filter_map(Value::as_u64).sum();
    let has_others = !matches!(style, Style::Trace | Style::Envoy | Style::Alb);
    ensure!(
        trace.get("bad_lines") == Some(&json!(0))
            && trace.get("requests") == Some(&json!(4_000))
            && has_others == (others > 20),
        "{style:?}: {trace}"
    );
    Ok(())
}

/// Every decision must equal the decision of a plain bucket. The test uses every log format, in
/// every envelope. The logs are from three replicas in two time zones, and each log is rotated into
/// three files.
#[test]
fn no_decision_differs_from_a_plain_bucket() -> Result<()> {
    let arounds = [
        LogWrapper::Nothing,
        LogWrapper::Kubectl,
        LogWrapper::Cri,
        LogWrapper::Docker,
    ];
    for (index, style) in Style::ALL.into_iter().enumerate() {
        let algorithm = if index % 2 == 0 {
            "funnel"
        } else {
            "token_bucket"
        };
        for around in [arounds[0], arounds[index % 4]] {
            let folder = folder(algorithm)?;
            let seed = u64::try_from(index)? + 1;
            let sent = traffic(seed, 4_000, 60, 40);
            let files = files(&sent, style, around, 3, 3)?;
            for (name, bytes) in &files {
                folder.write(name, bytes)?;
            }
            let found = verdicts(&folder, &["access-*.log*"], &[])?;
            same(
                &found,
                &of_style(&sent, style),
                &format!("{style:?} {around:?}"),
            )?;

            // The result must not depend on the order of the arguments, nor on who expands a
            // pattern, the shell or the program.
            let mut names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            names.reverse();
            let json = ["--output", "json"];
            let reversed = folder.replay(&names, &json)?;
            ensure!(
                reversed == folder.replay(&["access-*"], &json)?,
                "{style:?}"
            );
            all_read(&reversed.0, style)?;
        }
    }
    Ok(())
}

/// A replay must sort a stream of concatenated logs, such as the output of `cat`.
#[test]
fn replicas_concatenated_in_one_stream() -> Result<()> {
    let folder = folder("funnel")?;
    let sent = traffic(7, 4_000, 60, 40);
    let parts = files(&sent, Style::Envoy, LogWrapper::Nothing, 2, 1)?;
    let whole: Vec<u8> = parts.iter().flat_map(|(_, bytes)| bytes).copied().collect();
    folder.write("all.log", &whole)?;
    folder.write("all.log.gz", &gzip(&whole)?)?;
    let wanted = of_style(&sent, Style::Envoy);
    for name in ["all.log", "all.log.gz"] {
        same(&verdicts(&folder, &[name], &[])?, &wanted, name)?;
    }
    let (table, _) = folder.replay::<&str>(&["all.log"], &[])?;
    let (before, _) = table.split_once("admitted").context("a table")?;
    ensure!(
        before.contains("% (") && before.contains("of the lines were out of order"),
        "{table}"
    );
    Ok(())
}

/// A replay must find the client in a log of a server behind two proxies. The address column
/// contains only a proxy, and the header contains the client before the last address.
#[test]
fn the_client_behind_proxies() -> Result<()> {
    let folder = folder("funnel")?;
    let sent = traffic(9, 4_000, 60, 40);
    let lines = sent.iter().map(|sent| {
        let line = Style::Nginx.line(sent, 0);
        let (_, rest) = line.split_once(' ').unwrap_or_default();
        let (rest, _) = rest.rsplit_once(" \"").unwrap_or_default();
        format!(
            "10.255.0.1 {rest} \"6.6.6.6, {}, 10.254.0.1\"\n",
            sent.address()
        )
    });
    let log: String = lines.collect();
    folder.write("nginx.log", log.as_bytes())?;
    let wanted = of_style(&sent, Style::Nginx);
    same(
        &verdicts(&folder, &["nginx.log"], &["--source", "xff:2"])?,
        &wanted,
        "xff:2",
    )?;
    let notation = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for""#;
    let own = ["--source", "xff:2", "--log-format", notation];
    same(
        &verdicts(&folder, &["nginx.log"], &own)?,
        &wanted,
        "--log-format",
    )?;

    let warned = |options: &[&str]| -> Result<String> {
        let (out, _) = folder.replay(&["nginx.log"], &[options, &["--output", "json"]].concat())?;
        let summary: Value = serde_json::from_str(&out)?;
        Ok(summary.get("warnings").context("warnings")?.to_string())
    };
    let proxy = "10.255.0.1 makes 100.0 % (4000) of the requests";
    ensure!(warned(&[])?.contains(proxy));
    ensure!(warned(&["--source", "xff"])?.contains("10.254.0.1 makes 100.0 %"));
    ensure!(!warned(&["--source", "xff:2"])?.contains("makes"));
    let none = warned(&["--source", "header:true-client-ip"])?;
    ensure!(
        none.contains(
            "100.0 % (4000) of the requests have no client from --source header:true-client-ip"
        ),
        "{none}"
    );
    Ok(())
}

/// A replay of a part of a log must decide as if there were no other requests, so every bucket
/// begins with its full quota.
#[test]
fn a_part_of_the_time() -> Result<()> {
    let folder = folder("funnel")?;
    let sent = traffic(11, 4_000, 60, 40);
    for (name, bytes) in files(&sent, Style::Gateway, LogWrapper::Nothing, 2, 2)? {
        folder.write(&name, &bytes)?;
    }
    let first = sent.first().context("requests")?.start_ms;
    let last = sent.last().context("requests")?.start_ms;
    let (from, to) = (first + 30_000, last - 30_000);
    let inside = |sent: &&Sent| (from..to).contains(&sent.start_ms);
    let part: Vec<Sent> = sent.iter().filter(inside).copied().collect();
    let wanted = of_style(&part, Style::Gateway);
    let (from, to) = (from.to_string(), to.to_string());
    for options in [
        ["--from", "+30s", "--to", "-30s"],
        ["--from", &from, "--to", &to],
        ["--from", "+30s", "--to", &to],
    ] {
        let found = verdicts(&folder, &["access*"], &options)?;
        same(&found, &wanted, &format!("{options:?}"))?;
    }
    Ok(())
}
