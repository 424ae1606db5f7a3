//! Rules, numbers and commands in the documents. Each number in the text must equal the count of a
//! replay, and each command must run.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::TempDir;
use loudou_tests::clock::eventually;
use loudou_tests::console::{Shell, Step, steps};
use loudou_tests::example::{Example, Running};
use loudou_tests::http::Request;
use loudou_tests::paths::{loudou_command, workspace_root};
use serde_json::{Value, json};

/// Midnight UTC.
const MIDNIGHT_S: u64 = 1_700_006_400;
/// Requests of one user from midnight on, as pairs of a count and the milliseconds after each
/// request.
type Sends = [(u64, u64)];
/// One request every two seconds for a day.
const DAY: &Sends = &[(43_200, 2_000)];
/// Two requests per second for ten minutes.
const TEN_MINUTES: &Sends = &[(1_200, 500)];
/// First lines of the rule in the README.
const README_RULE: &str = "version: 1\nstore:\n  buckets: 65536";
const FUNNEL: &str = "- { algorithm: funnel, capacity: 15, rate: 30/60s }";

/// A statement of a page about a rule: a text, and the number of requests that the rule admits.
struct Statement {
    page: &'static str,
    /// Text that identifies the rule file, or the line of the limit.
    rules: &'static str,
    sends: &'static Sends,
    words: &'static str,
    admitted: u64,
}

const fn of(
    page: &'static str,
    rules: &'static str,
    sends: &'static Sends,
    words: &'static str,
    admitted: u64,
) -> Statement {
    Statement {
        page,
        rules,
        sends,
        words,
        admitted,
    }
}

#[rustfmt::skip]
const STATEMENTS: [Statement; 13] = [
    of("README.md", README_RULE, &[(20, 0)], "may send 15 replies at once", 15),
    of("README.md", README_RULE, &[(15, 0), (60, 1_000)], "then one every two seconds", 15 + 60 / 2 - 1),
    of("README.md", README_RULE, DAY, "no more than 1000 a day", 1000),
    of("docs/reference/rules.md", "daily", DAY, "capacity: 1000, window: 1d", 1000),
    of("docs/reference/algorithms/funnel.md", "funnel", &[(20, 0)], "# 15 at once, then one every 2 s", 15),
    of("docs/reference/algorithms/fixed_window.md", "1d", DAY, "**Admits** `capacity` per window", 1000),
    of("docs/reference/algorithms/sliding_log.md", "10m }", &[(9, 0)], "# five tries in any ten minutes", 5),
    of("docs/reference/algorithms/sliding_window.md", "60s }", &[(300, 0)], "# 10 slots, at most 200 in one", 200),
    of("docs/reference/algorithms/token_bucket.md", "1000/d }", &[(2_000, 0)], "admits 1000 requests at once", 1000),
    of("docs/reference/algorithms/token_bucket.md", "1000/d }", DAY, "and 999 more before the next", 1000 + 999),
    of("docs/reference/algorithms/token_bucket.md", "align: clock", DAY, "# midnight UTC", 1000),
    of("docs/reference/algorithms/token_bucket.md", "initial: 0", &[(1, 0)], "# a new key earns its burst first", 0),
    of("docs/reference/algorithms/leaky_queue.md", "10/s }", &[(30, 0)], "accepts a burst of `capacity + 1` requests of cost 1", 21),
];

fn trace(sends: &Sends) -> Vec<Value> {
    let mut at_ms = MIDNIGHT_S * 1_000;
    let mut requests = Vec::new();
    for &(count, after_ms) in sends {
        for _ in 0..count {
            requests.push(json!({
                "at_ns": at_ms * 1_000_000, "method": "POST", "path": "/reply", "source": "192.0.2.1",
                "headers": { "x-user-id": "alice" },
            }));
            at_ms += after_ms;
        }
    }
    requests
}

fn page(path: &str) -> Result<String> {
    fs::read_to_string(workspace_root().join(path)).with_context(|| path.to_owned())
}

/// Returns the paths of the README and of all pages in `docs`.
fn pages() -> Result<Vec<String>> {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(workspace_root().join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if PathBuf::from(&path)
                .extension()
                .is_some_and(|end| end == "md")
            {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Returns the code blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in page.lines() {
        match &mut open {
            None if line.strip_prefix("```") == Some(language) => open = Some(Vec::new()),
            // Skips a block in another language.
            None if line.starts_with("```") && !line.ends_with("```") => open = Some(vec![line]),
            None if line == "```" => open = Some(vec![line]),
            None => {}
            Some(lines) if line == "```" => {
                if lines.first().is_none_or(|first| !first.starts_with("```")) {
                    blocks.push(lines.join("\n"));
                }
                open = None;
            }
            Some(lines) => lines.push(line),
        }
    }
    blocks
}

/// Returns a rule file that has one limit per user.
fn with_limit(limit: &str) -> String {
    format!(
        "version: 1\nrules:\n  - name: r\n    key: [ {{ header: x-user-id }} ]\n    limits:\n      {limit}\n"
    )
}

/// Required fields, which are added to an example that shows only some fields of a rule.
const FIELDS_OF_RULE: [&str; 2] = [
    "key: [ { header: x-user-id } ]",
    "limits: [ { algorithm: funnel, capacity: 15, rate: 30/60s } ]",
];

/// Returns the rule files to check for a block of YAML. A block is a whole file, a manifest, a
/// rule, some fields of a rule, or limits on separate lines. Returns `None` for any other block.
fn files(block: &str) -> Option<Vec<String>> {
    let start = block.trim_start();
    let is_whole = ["version: 1\n", "http_filters:\n", "apiVersion:"];
    if is_whole.iter().any(|text| start.starts_with(text)) {
        // Fill in the placeholders for the reader.
        let sha256 = "a".repeat(64);
        let whole = block.replace("sha256: …", &format!("sha256: {sha256}"));
        return Some(vec![whole.replace("rules: […]", "rules: []")]);
    }
    if start.starts_with("- name: ") {
        return Some(vec![format!("version: 1\nrules:\n{block}\n")]);
    }
    if start.starts_with("- { algorithm: ") {
        return Some(block.lines().map(with_limit).collect());
    }
    // Each paragraph is a separate example.
    let is_field = |line: &str| line.starts_with(|first: char| first.is_ascii_lowercase());
    block.lines().next().is_some_and(is_field).then(|| {
        let fields = block.split("\n\n").map(with_fields);
        fields.collect()
    })
}

/// Returns a rule file whose rule has these fields and the missing required fields.
fn with_fields(fields: &str) -> String {
    let mut rule = fields.replace('\n', "\n    ");
    for field in FIELDS_OF_RULE {
        let (name, _) = field.split_once(' ').unwrap_or_default();
        if !fields.lines().any(|line| line.starts_with(name)) {
            rule = format!("{rule}\n    {field}");
        }
    }
    format!("version: 1\nrules:\n  - name: example\n    {rule}\n")
}

/// Returns true if a block is another part of an Envoy or Kubernetes configuration, without rules
/// and limits.
fn has_no_rules(block: &str) -> bool {
    const FOREIGN: [&str; 6] = [
        "access_log:",
        "apiVersion:",
        "clusters:",
        "listeners:",
        "static_resources:",
        "rate_limits:",
    ];
    let is_foreign = FOREIGN.iter().any(|text| block.starts_with(text));
    is_foreign && !block.contains("rules:") && !block.contains("algorithm:")
}

/// Returns the first rule file of a page that contains `text`.
fn file_with(path: &str, text: &str) -> Result<String> {
    let blocks = blocks(&page(path)?, "yaml");
    let mut all = blocks.iter().filter_map(|block| files(block)).flatten();
    let found = all.find(|file| file.contains(text));
    found.with_context(|| format!("{path} has no rules with {text:?}"))
}

/// Runs `loudou check` on a file and returns its output. Fails if the command reports an error or a
/// warning.
fn check(file: &str) -> Result<String> {
    let dir = TempDir::new("documents")?;
    let path = dir.write("rules.yaml", file)?;
    let output = loudou_command()?.arg("check").arg(path).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let is_clean = output.status.success() && !printed.contains("warning:");
    ensure!(is_clean, "{file}\n{printed}");
    Ok(printed)
}

/// Replays these requests with a rule file and returns how many requests pass, at once or after a
/// hold.
fn passed(file: &str, trace: &[Value]) -> Result<u64> {
    let dir = TempDir::new("documents")?;
    let rules = dir.write("rules.yaml", file)?;
    let lines: Vec<String> = trace.iter().map(Value::to_string).collect();
    let trace = dir.write("trace.jsonl", &lines.join("\n"))?;
    let mut replay = loudou_command()?;
    replay.arg("replay").arg("--config").arg(rules);
    replay.arg("--trace").arg(trace);
    let output = replay.args(["--output", "json"]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{file}\n{errors}");
    let summary: Value = serde_json::from_slice(&output.stdout)?;
    let requests = summary.get("requests").context("no requests")?;
    let number = |name: &str| requests.get(name).and_then(Value::as_u64);
    let admitted = number("admitted").context("no count")?;
    Ok(admitted + number("held").context("no count")?)
}

/// Fails unless the page contains this text. Line breaks count as spaces.
fn says(path: &str, words: &str) -> Result<()> {
    let text = page(path)?;
    let text: Vec<&str> = text.split_whitespace().collect();
    ensure!(text.join(" ").contains(words), "{path} lacks {words:?}");
    Ok(())
}

#[test]
fn every_example_of_rules_is_valid() -> Result<()> {
    let mut checked = 0;
    for path in pages()? {
        for block in blocks(&page(&path)?, "yaml") {
            if has_no_rules(&block) {
                continue;
            }
            let files = files(&block).with_context(|| format!("{path}: what is this?\n{block}"))?;
            for file in files {
                check(&file).with_context(|| path.clone())?;
                checked += 1;
            }
        }
    }
    ensure!(checked >= 20, "{checked} examples");
    Ok(())
}

#[test]
fn numbers_of_examples_are_those_of_a_replay() -> Result<()> {
    for Statement {
        page,
        rules,
        sends,
        words,
        admitted,
    } in STATEMENTS
    {
        says(page, words)?;
        let found = passed(&file_with(page, rules)?, &trace(sends))?;
        ensure!(found == admitted, "{page}: {words:?}: {found} are admitted");
    }
    Ok(())
}

/// The README and the reference of rules must show the bound of a fleet that `loudou check`
/// computes.
#[test]
fn the_bound_of_a_fleet_is_that_of_check() -> Result<()> {
    let printed = check(&file_with("docs/reference/rules.md", "scope: fleet")?)?;
    let printed: Vec<&str> = printed.split_whitespace().collect();
    let bound = "at most 15 + 0.5/s × (60s + 200ms) = 45 in any minute, however many Envoys";
    ensure!(printed.join(" ").contains(bound), "{printed:?}");
    says("docs/reference/rules.md", bound)?;
    says(
        "README.md",
        "at most 15 + 0.5/s × (60 s + 200 ms) = 45 in any minute",
    )
}

/// A key that the defaults ban must be banned in both rules of the example.
#[test]
fn the_example_of_defaults_bans_in_each_rule() -> Result<()> {
    let file = file_with("docs/reference/rules.md", "defaults:")?;
    for (user, expected) in [("mallory", 0), ("alice", 4)] {
        let requests = ["/reply", "/upload", "/upload", "/upload"]
            .map(|path| json!({ "at_ns": 1, "path": path, "headers": { "x-user-id": user } }));
        let admitted = passed(&file, &requests)?;
        ensure!(admitted == expected, "{user}: {admitted}");
    }
    Ok(())
}

/// Returns the value of an option in the first command of a page that has this option.
fn option<'a>(page: &'a str, command: &str, option: &str) -> Option<&'a str> {
    let mut commands = page.split('`').filter(|code| code.starts_with(command));
    let (_, rest) = commands
        .find(|code| code.contains(option))?
        .split_once(option)?;
    rest.split_whitespace().next()
}

#[test]
fn the_recipe_for_a_limit_that_is_too_tight_ends_the_refusals() -> Result<()> {
    let path = "docs/how-to/on-call.md";
    let text = page(path)?;
    let set = |name| option(&text, "loudou set RULE --limit burst", name);
    let capacity = set("--capacity ").context("no capacity")?;
    // Without the option, the command keeps the rate.
    let rate = set("--rate ").unwrap_or("30/60s");
    let trace = trace(TEN_MINUTES);
    let refused = |capacity: &str, rate: &str| -> Result<String> {
        let limit = FUNNEL.replace("15", capacity).replace("30/60s", rate);
        let refused = 1_200 - passed(&with_limit(&limit), &trace)?;
        let thousandths = (refused * 1_000 + 600) / 1_200;
        Ok(match (thousandths / 10, thousandths % 10) {
            (percent, 0) => format!("{percent} %"),
            (percent, tenth) => format!("{percent}.{tenth} %"),
        })
    };
    let [before, half, after] = [("15", "30/60s"), (capacity, "30/60s"), (capacity, rate)]
        .map(|(capacity, rate)| refused(capacity, rate));
    let after = after?;
    ensure!(after == "0 %", "{after} are still refused");
    says(
        path,
        &format!(
            "With capacity 15 and rate 30/60s, Envoy refuses {} of the requests. With capacity {capacity} and the same \
             rate, it still refuses {}. With capacity {capacity} and rate {rate}, it refuses none.",
            before?, half?
        ),
    )
}

/// Each row of the table about `carry` must hold. In each case a bucket of capacity 20 has used 10
/// units when the capacity becomes 40.
#[test]
fn what_live_buckets_keep_is_what_the_table_says() -> Result<()> {
    let limit =
        |capacity: u64| json!({ "algorithm": "funnel", "capacity": capacity, "rate": "1/d" });
    for (carry, row) in [
        (
            "keep",
            "| `keep`, the default | the used cost units | 10 used, 30 left |",
        ),
        (
            "proportional",
            "| `proportional` | the used share of the capacity | 20 used, 20 left |",
        ),
        (
            "reset",
            "| `reset` | nothing, also when the numbers stay the same | 0 used, 40 left |",
        ),
    ] {
        says("docs/explain/what-live-buckets-keep.md", row)?;
        let requests = trace(&[(110, 0)]);
        let at_ns = MIDNIGHT_S * 1_000_000_000;
        let set = json!({ "at_ns": at_ns, "set": { "rule": "r", "limits": [limit(40)], "carry": carry } });
        let (used, later) = requests.split_at(10);
        let trace = [used, &[set], later].concat();
        let file = with_limit(&format!("- {}", limit(20)));
        let left = passed(&file, &trace)? - 10;
        ensure!(
            row.contains(&format!(" {left} left |")),
            "{carry}: {left} left"
        );
    }
    Ok(())
}

/// The page must show the numbers of the benchmark budget. The number of calls is rounded down,
/// because one request in twenty also reads its connection number.
#[test]
fn the_cost_of_a_plain_request_is_that_of_its_budget() -> Result<()> {
    let budgets: Value = serde_json::from_str(&page("xtask/src/bench/instructions/budgets.json")?)?;
    let plain = budgets.get("one rule, admitted").context("no budget")?;
    let instructions = plain.get("instructions").and_then(Value::as_u64);
    let instructions = instructions.context("no number")?;
    let calls = plain.get("calls_of_1000").and_then(Value::as_object);
    let calls: u64 = calls
        .context("no calls")?
        .values()
        .filter_map(Value::as_u64)
        .sum();
    says(
        "docs/explain/performance.md",
        &format!(
            "A plain request executes {} {:03} instructions and makes {} calls",
            instructions / 1_000,
            instructions % 1_000,
            calls / 1_000
        ),
    )
}

/// Returns the `loudou` commands in the tables and `sh` blocks of a page, without the commands that
/// [`is_elsewhere`] excludes.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let code = line.split('`').skip(1).step_by(2);
        commands.extend(code.map(str::to_owned));
    }
    for block in blocks(page, "sh") {
        for line in block.lines() {
            let (command, _) = line.split_once(" #").unwrap_or((line, ""));
            commands.push(command.trim_end().to_owned());
        }
    }
    commands.retain(|command| command.starts_with("loudou ") && !is_elsewhere(command));
    commands
}

/// Returns true if a command does not end, or needs more than the one Envoy of the page.
fn is_elsewhere(command: &str) -> bool {
    let other = [
        "--follow",
        "--watch",
        "--fleet",
        "--targets",
        "10.0.0.",
        "@edge",
        "relay",
        "completions",
        "man",
        "replay",
        "check",
        "convert",
    ];
    command == "loudou" || other.iter().any(|word| command.contains(word))
}

/// Returns the commands in the `sh` blocks of a page that contain `word`, each joined to one line.
fn recipes(page: &str, word: &str) -> Vec<String> {
    let mut recipes = Vec::new();
    for block in blocks(page, "sh") {
        let block = block.replace("\\\n", " ");
        for line in block.lines().filter(|line| line.contains(word)) {
            let command = line.split_once("  #").map_or(line, |(command, _)| command);
            recipes.push(command.trim_end().to_owned());
        }
    }
    recipes
}

/// Returns an access log with sixty requests of two clients within a minute, in the format that the
/// recipe names.
fn access_log(recipe: &str) -> String {
    let line = |n: u32| {
        let client = 1 + n % 2;
        if recipe.contains("%START_TIME%") {
            return format!(
                "[2024-05-01T08:00:{n:02}.000Z] \"GET /api/reply HTTP/1.1\" 200 5 \"user-{client}\"\n"
            );
        }
        let common = format!("10.0.0.{client} - - [01/May/2024:08:00:{n:02} +0000]");
        let seconds = if recipe.contains("$request_time") {
            " 0.005"
        } else {
            ""
        };
        format!("{common} \"GET /api/reply HTTP/1.1\" 200 612 \"-\" \"curl/8.5.0\"{seconds}\n")
    };
    (0..60).map(line).collect()
}

/// Every replay recipe must run in a separate folder and read all requests of its logs.
#[test]
fn recipes_of_replays_run() -> Result<()> {
    let dir = TempDir::new("replays")?;
    let by_client = with_limit("- { algorithm: funnel, capacity: 5, rate: 1/s }")
        .replace("[ { header: x-user-id } ]", "[ source ]");
    dir.write("rules.yaml", &by_client)?;
    dir.write(
        "stricter.yaml",
        &by_client.replace("capacity: 5", "capacity: 1"),
    )?;
    let lines: Vec<String> = trace(&[(60, 1_000)]).iter().map(Value::to_string).collect();
    dir.write("trace.jsonl", &lines.join("\n"))?;
    let xff = |n: u64| {
        let at_s = MIDNIGHT_S + n;
        json!({ "start_time": at_s, "method": "GET", "path": "/api/reply", "x_forwarded_for": "10.0.0.1, 10.1.0.1" })
    };
    for name in ["a.log", "b.log"] {
        let lines: Vec<String> = (0..30).map(|n| xff(n).to_string()).collect();
        dir.write(name, &lines.join("\n"))?;
    }
    let here = dir.path().display().to_string();
    let mut ran = 0;
    for path in ["README.md", "docs/reference/replay.md"] {
        for recipe in recipes(&page(path)?, "loudou replay ") {
            let text = if recipe.contains("xff:2") && recipe.contains("access.log") {
                fs::read_to_string(dir.path().join("a.log"))?
                    + "\n"
                    + &fs::read_to_string(dir.path().join("b.log"))?
            } else {
                access_log(&recipe)
            };
            dir.write("access.log", &text)?;
            // Instead of `kubectl logs`, the command prefixes the lines of `access.log` like one
            // pod.
            let pod = "kubectl logs -l app=envoy --prefix";
            let command = recipe.replace(pod, "sed 's#^#[pod/envoy-1/envoy] #' access.log");
            let output = command.split_once(" > ").map(|(_, name)| name.to_owned());
            let command = match &output {
                Some(_) => command.clone(),
                None => format!("{command} > out"),
            };
            let step = Step {
                line: 0,
                command: format!("cd {here} && {command}"),
                expected: Vec::new(),
            };
            let mut shell = Shell::new()?;
            shell
                .run(&step, str::to_owned)
                .with_context(|| path.to_owned())?;
            let printed = fs::read_to_string(dir.path().join(output.as_deref().unwrap_or("out")))?;
            let is_whole = match output.as_deref() {
                Some("timeline.csv") => printed.starts_with("config,start_ns,"),
                _ if recipe.contains("--output jsonl") => printed.lines().count() == 60,
                // A suggestion as JSON contains this field.
                _ if recipe.contains("--output json") => printed.contains("\"requests\": 60"),
                _ => printed.contains("60 requests"),
            };
            ensure!(is_whole, "{path}: {recipe}\n{printed}");
            ensure!(
                !printed.contains("no known format"),
                "{path}: {recipe}\n{printed}"
            );
            ran += 1;
        }
    }
    ensure!(ran >= 15, "{ran} recipes");
    Ok(())
}

/// The documented commands must accept a release that is signed with a key from the documented
/// command, and must reject a changed release.
#[test]
fn recipes_of_a_release_run() -> Result<()> {
    let dir = TempDir::new("release")?;
    let text = page("docs/how-to/build-and-publish.md")?;
    let here = dir.path().display().to_string();
    let mut shell = Shell::new()?;
    let mut run = |command: &str| {
        let step = Step {
            line: 0,
            command: format!("cd {here} && {command}"),
            expected: vec!["…".to_owned()],
        };
        shell.run(&step, str::to_owned)
    };
    let recipe = |word: &str| {
        let mut found = recipes(&text, word).into_iter();
        found.next().with_context(|| format!("no {word}"))
    };
    // Create the files that `dist --key` writes. Another test checks the signature of `dist`.
    dir.write("loudou-0.1.0.wasm", "module")?;
    run(&recipe("openssl genpkey")?)?;
    run("openssl pkey -in key.pem -pubout -out loudou.pub")?;
    run("sha256sum loudou-0.1.0.wasm > SHA256SUMS")?;
    run("openssl dgst -sha256 -sign key.pem SHA256SUMS | base64 > SHA256SUMS.sig")?;
    let checks = ["sha256sum --check", "base64 -d", "openssl dgst"];
    for word in checks {
        run(&recipe(word)?)?;
    }
    dir.write("loudou-0.1.0.wasm", "another")?;
    ensure!(
        run(&recipe("sha256sum --check")?).is_err(),
        "another module"
    );
    dir.write("SHA256SUMS", "another")?;
    ensure!(run(&recipe("openssl dgst")?).is_err(), "another list");
    Ok(())
}

/// Each conversion in the pages for users of other limiters must print what its page shows.
#[test]
fn conversions_print_what_the_pages_show() -> Result<()> {
    let mut ran = 0;
    let mut shell = Shell::new()?;
    for path in pages()?
        .iter()
        .filter(|path| path.starts_with("docs/coming-from/"))
    {
        for step in steps(&page(path)?) {
            shell
                .run(&step, str::to_owned)
                .with_context(|| path.to_owned())?;
            ran += 1;
        }
    }
    ensure!(ran == 9, "{ran} commands");
    Ok(())
}

/// Waits until the admin API knows the rules. Before the first timer of a data listener, the API
/// answers that no rules are known yet.
fn await_rules(running: &Running) -> Result<()> {
    let mut api = running.envoy.admin();
    eventually(Duration::from_secs(30), "the rules to be known", || {
        let answer = api.send(&Request::get("/v1/rules").token("ops"))?;
        Ok((answer.status == 200).then_some(()))
    })
}

/// Every operator command in the README and the on-call page must run against the quickstart's
/// Envoy with the rule of the README.
#[test]
fn commands_for_operators_run() -> Result<()> {
    let mut example = Example::read("quickstart")?;
    let rule = file_with("README.md", README_RULE)?;
    let limits: Vec<&str> = rule
        .lines()
        .filter(|line| line.contains("algorithm"))
        .collect();
    let burst = example
        .yaml
        .lines()
        .find(|line| line.contains("name: burst"));
    let burst = burst.context("no limit")?.to_owned();
    let indent = burst.split_once('-').context("no list")?.0;
    let limits: Vec<String> = limits
        .iter()
        .map(|limit| format!("{indent}{}", limit.trim()))
        .collect();
    example.yaml = example.yaml.replace(&burst, &limits.join("\n"));
    let running = example.start()?;
    await_rules(&running)?;
    let dir = TempDir::new("commands")?;
    let rules = dir.write("rules.yaml", &rule)?;
    let here = |command: &str| {
        let command = command
            .replace("RULE", "reply-per-user")
            .replace("KEY", "alice");
        let command = command.replace("rules.yaml", &rules.display().to_string());
        // It would write into the current folder.
        let init = format!("loudou init {}", dir.path().display());
        let command = command.replace("loudou init", &init);
        command.replace(
            "live.json",
            &dir.path().join("live.json").display().to_string(),
        )
    };
    let mut shell = Shell::new()?;
    shell.export(
        "LOUDOU_URL",
        &format!("http://{}", running.envoy.admin_address()),
    );
    shell.export("LOUDOU_TOKEN", "ops");
    let mut ran = 0;
    for path in ["README.md", "docs/how-to/on-call.md"] {
        for command in commands(&page(path)?) {
            let step = Step {
                line: 0,
                command,
                expected: vec!["…".to_owned()],
            };
            shell.run(&step, here).with_context(|| path.to_owned())?;
            ran += 1;
        }
    }
    ensure!(ran >= 25, "{ran} commands");
    running.envoy.stop()
}
