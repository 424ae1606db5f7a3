//! Uses the playground as a user does, in a headless Chromium. Its texts must equal the command's, byte for byte, and
//! no rule file, log or link may run anything.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use loudou_tests::paths::{target_dir, workspace_root};
use serde_json::{Value, json};

use super::devtools::Page;
use crate::clients::{install_npm, installed};
use crate::setup::chromium::Chromium;
use crate::setup::node::Node;

const AXE: [&str; 1] = ["axe-core@4.14.1"];

/// Maximum number of requests of a trace that are explained.
const EXPLAINED: usize = 3;
/// Markup in every place that the page shows. It has no spaces, which a path cannot have.
const MARKUP: &str =
    "</textarea></script><img/src=x/onerror=console.error(1)><script>console.error(2)</script>";
/// Lines of a log that takes a while.
const LINES: u32 = 100_000;

/// Checks the page at `file` against the command. Returns the reason if a part of the check could not run.
pub(super) fn check(chromium: &Chromium, file: &Path, loudou: &Path) -> Result<Option<String>> {
    let mut page = Page::open(chromium, file, "")?;
    watched(&mut page)?;
    explanations(&mut page, loudou)?;
    replays(&mut page, loudou)?;
    edits(&mut page)?;
    embedded(&mut page)?;
    hostile(&mut page)?;
    answers_meanwhile(&mut page)?;
    broken(&mut page)?;
    quiet(&page, file)?;
    // The guilty calls come last, because they make the console useless. Without them, a broken detector would let every
    // page pass.
    page.run("console.error('seen'); fetch('https://example.com/').catch(() => {})")?;
    ensure!(
        page.console.len() > 1,
        "Chromium does not report what a page does"
    );
    drop(page);
    links(chromium, file)?;
    let skipped = match axe() {
        Ok(axe) => {
            accessible(chromium, file, &axe)?;
            None
        }
        Err(error) => Some(format!("axe-core ({error:#})")),
    };
    println!("{}: ok", file.display());
    Ok(skipped)
}

/// Returns axe-core, which finds what a screen reader or a keyboard cannot use. Installs it if necessary.
fn axe() -> Result<String> {
    let node = Node::find().context("no Node.js with npm")?;
    let install = |place: &Path| install_npm(&node, &AXE, place);
    let modules = installed("axe", &AXE, install)?.join("node_modules");
    fs::read_to_string(modules.join("axe-core/axe.min.js")).context("no axe-core")
}

/// Every view must pass axe-core's rules.
fn accessible(chromium: &Chromium, file: &Path, axe: &str) -> Result<()> {
    let mut page = Page::open(chromium, file, "")?;
    watched(&mut page)?;
    page.run(axe)?;
    // An image without a text must be found.
    for view in ["explain", "burst", "replay", "guilty"] {
        let found = page.run(&format!(
            "(async () => {{
                if ('{view}' === 'guilty') document.body.append(new Image());
                else show('{view}');
                if ('{view}' === 'burst') await drawBurst();
                const found = await axe.run(document, {{ resultTypes: ['violations'] }});
                return found.violations.map((it) => it.id + ': ' + it.nodes.map((node) => node.html).join(' '));
            }})()"
        ))?;
        let is_clean = found == json!([]);
        ensure!(
            is_clean == (view != "guilty"),
            "axe-core on {view}: {found}"
        );
    }
    Ok(())
}

/// Waits for the first verdict, and counts the elements that could run or load something.
fn watched(page: &mut Page) -> Result<()> {
    page.wait("document.querySelector('#verdict .headline')")?;
    page.run("var active = () => document.querySelectorAll('script, img, iframe, object, embed, link, base').length; var first = active(); 1")?;
    Ok(())
}

fn quiet(page: &Page, file: &Path) -> Result<()> {
    ensure!(
        page.console.is_empty(),
        "the console has {:?}",
        page.console
    );
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut requests = page.requests.iter();
    let other = requests.find(|url| !url.starts_with("blob:") && !url.contains(&*name));
    ensure!(other.is_none(), "the page requested {other:?}");
    Ok(())
}

/// Returns the traces of the repository: name, rules, and lines.
fn traces() -> Result<Vec<(String, String, String)>> {
    let folder = workspace_root().join("tests/traces");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".trace.jsonl") {
            let read = |kind: &str| fs::read_to_string(folder.join(format!("{name}.{kind}")));
            let rules = read("rules.json")?;
            found.push((name.to_owned(), rules, read("trace.jsonl")?));
        }
    }
    ensure!(!found.is_empty(), "no traces");
    found.sort();
    Ok(found)
}

/// Runs the command in a folder with this rule file and this log.
fn printed(loudou: &Path, rules: &str, log: &str, arguments: &[String]) -> Result<String> {
    let folder = target_dir().join("pages/playground");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("rules.yaml"), rules)?;
    fs::write(folder.join("log"), log)?;
    let mut command = Command::new(loudou);
    command
        .args(arguments)
        .current_dir(folder)
        .env_remove("LC_ALL")
        .env("LANG", "C.UTF-8");
    let output = command.output().context("cannot run loudou")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Explains requests of every trace, typed into the form.
fn explanations(page: &mut Page, loudou: &Path) -> Result<()> {
    for (name, rules, lines) in traces()? {
        let requests = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for request in requests
            .filter(|it| it.get("at_ns").is_some())
            .take(EXPLAINED)
        {
            let mut fields = serde_json::Map::new();
            let mut arguments = ["explain", "--config", "rules.yaml"]
                .map(str::to_owned)
                .to_vec();
            for part in ["method", "path", "host", "source"] {
                if let Some(value) = request.get(part).and_then(Value::as_str) {
                    arguments.push(format!("--{part}={value}"));
                    fields.insert(part.to_owned(), value.into());
                }
            }
            let mut headers = Vec::new();
            let listed = request.get("headers").and_then(Value::as_object);
            for (header, value) in listed.into_iter().flatten() {
                if let Some(value) = value.as_str() {
                    arguments.push(format!("--header={header}: {value}"));
                    headers.push(format!("{header}: {value}"));
                }
            }
            fields.insert("headers".to_owned(), headers.join("\n").into());
            let expected = printed(loudou, &rules, "", &arguments)?;
            let shown = page.run(&format!(
                "(async () => {{
                    const fields = {};
                    rulesText.value = {};
                    for (const name of FIELDS) field(name).value = fields[name] ?? '';
                    await explainNow();
                    return $('explained').textContent;
                }})()",
                Value::Object(fields),
                json!(rules)
            ))?;
            ensure!(
                shown == json!(expected),
                "{name}, {request}: the page has {shown}, the command {expected:?}"
            );
        }
    }
    Ok(())
}

/// Replays every trace, and asks for a suggestion.
fn replays(page: &mut Page, loudou: &Path) -> Result<()> {
    for (name, rules, lines) in traces()? {
        for at_most in ["", "1%users"] {
            let mut arguments = ["replay", "--config", "rules.yaml", "--trace", "log"]
                .map(str::to_owned)
                .to_vec();
            if !at_most.is_empty() {
                arguments.extend(["--suggest", "--at-most", at_most].map(str::to_owned));
            }
            let expected = printed(loudou, &rules, &lines, &arguments)?;
            page.run(&format!(
                "rulesText.value = {}; $('log').value = {}; $('at-most').value = {}; $('report').textContent = ''; $('run').click()",
                json!(rules), json!(lines), json!(at_most)
            ))?;
            page.wait("!$('run').disabled && $('report').textContent")?;
            let shown = page.run("$('report').textContent")?;
            ensure!(
                shown == json!(expected),
                "{name}: the page has {shown}, the command {expected:?}"
            );
        }
    }
    Ok(())
}

/// Moves the slider of a number, which must change the text of the rules and the charts.
fn edits(page: &mut Page) -> Result<()> {
    page.run("location.hash = 'view=burst&algorithm=funnel'")?;
    page.wait("document.querySelectorAll('#charts figure svg').length === 10")?;
    page.run("const moved = $('numbers').querySelector('input'); moved.value = 9; moved.dispatchEvent(new Event('input', { bubbles: true }))")?;
    page.wait("$('charts').textContent.includes('capacity: 9')")?;
    let shown =
        page.run("rulesText.value === exampleOf('funnel').replace('capacity: 6', 'capacity: 9')")?;
    ensure!(shown == json!(true), "the slider did not edit the rules");
    Ok(())
}

/// Opens the frames of the algorithms' pages. Each shows only the burst of its algorithm.
fn embedded(page: &mut Page) -> Result<()> {
    let folder = workspace_root().join("docs/reference/algorithms");
    let mut frames = 0;
    for entry in fs::read_dir(&folder)? {
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        // The path leads from the page's place in the site to `site/playground.html`.
        let Some((_, rest)) = text.split_once("src=\"../../../playground.html#") else {
            continue;
        };
        frames += 1;
        let fragment = rest.split('"').next().unwrap_or_default();
        let fragment = fragment.replace("&amp;", "&");
        page.run(&format!("location.hash = {}", json!(fragment)))?;
        page.wait("$('charts').querySelector('strong')?.textContent === new URLSearchParams(location.hash.slice(1)).get('algorithm')")?;
        let shown = page.run("[...document.querySelectorAll('header, .rules, .tabs')].filter((it) => it.checkVisibility()).length")?;
        ensure!(shown == json!(0), "{fragment} shows more than the burst");
    }
    ensure!(frames == 10, "{frames} algorithms have a frame");
    page.run("location.hash = ''")?;
    page.wait("!document.body.classList.contains('embedded')")
}

/// A browser without workers, and a link that is too long, must be reported.
fn broken(page: &mut Page) -> Result<()> {
    page.run("location.hash = `rules=${'a'.repeat(100_000)}`")?;
    page.wait("$('told').textContent.includes('more than 100,000 characters')")?;
    page.run("engine.stop('stopped'); Worker = class { constructor() { throw new Error('forbidden') } }; explainNow()")?;
    page.wait("$('verdict').textContent.includes('cannot start its worker: forbidden')")
}

/// Puts markup into the rules, the request and the log.
fn hostile(page: &mut Page) -> Result<()> {
    let markup = json!(MARKUP);
    let rules = json!({ "version": 1, "rules": [
        { "name": "a", "key": [{ "header": "x-user-id" }], "match": { "path": { "prefix": MARKUP } },
          "limits": [{ "name": "l", "algorithm": "funnel", "capacity": 1, "rate": "1/s" }] },
        { "name": MARKUP, "key": [MARKUP] },
    ] });
    let valid = "version: 1\\nrules: [{ name: a, key: [{ header: x-user-id }], limits: [{ name: l, algorithm: funnel, capacity: 1, rate: 1/s }] }]\\n";
    page.run(&format!(
        "(async () => {{
            rulesText.value = JSON.stringify({rules}, null, 1);
            for (const name of FIELDS) field(name).value = '';
            await explainNow();
            rulesText.value = '{valid}';
            field('path').value = '/' + {markup};
            field('headers').value = 'x-user-id: ' + {markup};
            await explainNow();
            show('replay');
            const line = (n) => JSON.stringify({{ at_ns: n, path: '/', headers: {{ 'x-user-id': {markup} }} }});
            $('at-most').value = '';
            $('report').textContent = '';
            $('log').value = [0, 1, 2].map(line).join('\\n') + '\\n' + {markup} + '\\n';
            $('run').click();
        }})()"
    ))?;
    page.wait("!$('run').disabled && $('report').textContent")?;
    let shown = page.run("[!$('explain-text').hidden && $('verdict').textContent.includes('<img'), $('report').textContent.includes('<img'), active() === first]")?;
    ensure!(shown == json!([true, true, true]), "hostile texts: {shown}");
    Ok(())
}

/// The page must answer while a large log is replayed. Messages that the page sends to itself must arrive between two
/// reports of the progress.
fn answers_meanwhile(page: &mut Page) -> Result<()> {
    page.run(&format!(
        "var turns = 0, between = [];
        const ping = new MessageChannel();
        ping.port1.onmessage = () => {{ turns++; if ($('run').disabled) ping.port2.postMessage(0); }};
        const shown = replayer.onprogress;
        replayer.onprogress = (done) => {{ between.push(turns); shown(done); }};
        $('log').value = Array.from({{ length: {LINES} }}, (_, n) => JSON.stringify({{ at_ns: n * 1e6, path: '/', headers: {{ 'x-user-id': 'u' + n % 977 }} }})).join('\\n');
        $('report').textContent = '';
        $('run').click();
        ping.port2.postMessage(0);"
    ))?;
    page.wait("!$('run').disabled && $('report').textContent")?;
    let shown = page.run("[between.length > 20, between.at(-1) > between.length, $('report').textContent.includes('100000 requests')]")?;
    ensure!(
        shown == json!([true, true, true]),
        "while the page replayed a log: {shown}"
    );
    Ok(())
}

/// Opens links. A hostile one must be inert, and a good one must give the page that was linked.
fn links(chromium: &Chromium, file: &Path) -> Result<()> {
    let mut page = Page::open(
        chromium,
        file,
        "view=%3Cscript%3E&algorithm=__proto__&burst.rate=1e9&rules=%3Cimg%20src%3Dx%20onerror%3Dconsole.error(1)%3E&path=javascript:alert(1)",
    )?;
    page.wait("$('count').textContent && document.querySelector('#verdict .headline')")?;
    quiet(&page, file)?;
    let shown = page.run("[rulesText.value.startsWith('<img'), document.querySelectorAll('img').length, shownView()]")?;
    ensure!(
        shown == json!([true, 0, "explain"]),
        "a hostile link: {shown}"
    );
    page.run("rulesText.value = exampleOf('leaky_queue'); field('path').value = '/ä?b=c&d#e'; show('burst'); location.hash = link()")?;
    let linked = page.run("location.hash.slice(1)")?;
    let linked = linked.as_str().unwrap_or_default();
    let mut other = Page::open(chromium, file, linked)?;
    let shown = other
        .run("[rulesText.value === exampleOf('leaky_queue'), field('path').value, shownView()]")?;
    ensure!(
        shown == json!([true, "/ä?b=c&d#e", "burst"]),
        "a link: {shown}"
    );
    Ok(())
}
