// Connects the views: tabs, links, manifests, and the rules that the page begins with.
"use strict";

/** Longest fragment of a link that is read. */
const MOST_FRAGMENT = 100_000;
const VIEWS = ["explain", "burst", "replay"];

const FIRST = `# Each user may send 15 replies at once, then one every two seconds,
# and 1000 a day.
version: 1
store: { buckets: 65536 }
rules:
  - name: reply-per-user
    match: { methods: [POST], path: { prefix: /reply } }
    key: [{ header: x-user-id }]
    on_missing_key: refuse
    limits:
      - { name: burst, algorithm: funnel, capacity: 15, rate: 30/60s }
      - { name: daily, algorithm: fixed_window, capacity: 1000, window: 1d }

  - name: api-per-address
    match: { path: { prefix: /api } }
    key: [{ source: { v4_prefix: 32, v6_prefix: 64 } }]
    limits:
      - { name: steady, algorithm: token_bucket, capacity: 100, rate: 10/s }
`;

function show(view) {
  for (const name of VIEWS) {
    const is = name === view;
    $(name).hidden = !is;
    $(`tab-${name}`).setAttribute("aria-selected", String(is));
    $(`tab-${name}`).tabIndex = is ? 0 : -1;
  }
  if (view === "burst") drawBurst();
}

const shownView = () => VIEWS.find((name) => !$(name).hidden);

/** Fills the page from a link. Its texts only become values of fields. */
function open(fragment) {
  const isShort = fragment.length <= MOST_FRAGMENT;
  tell(isShort ? "" : `The page ignores this link, because it has more than ${MOST_FRAGMENT.toLocaleString("en")} characters.`);
  const link = new URLSearchParams(isShort ? fragment : "");
  // A page of the documents shows only the burst.
  document.body.classList.toggle("embedded", link.has("embedded"));
  const algorithm = link.get("algorithm");
  const example = Object.hasOwn(EXAMPLES, algorithm ?? "") ? exampleOf(algorithm) : FIRST;
  rulesText.value = link.get("rules") ?? example;
  const first = link.has("rules") ? {} : { method: "POST", path: "/reply", headers: "x-user-id: alice", source: "203.0.113.7" };
  for (const name of FIELDS) field(name).value = link.get(name) ?? first[name] ?? "";
  for (const input of document.querySelectorAll("#burst input[type=range][name]")) {
    const number = link.get(`burst.${input.name}`);
    if (/^\d{1,4}$/.test(number ?? "")) input.value = number;
  }
  const view = link.get("view");
  chosen = 0;
  showTraffic();
  drawEditor();
  show(VIEWS.includes(view) ? view : "explain");
  explainNow();
}

/** Returns the fragment that opens this page again. */
function link() {
  const found = new URLSearchParams({ view: shownView(), rules: rulesText.value });
  for (const name of FIELDS) if (field(name).value) found.set(name, field(name).value);
  if (shownView() === "burst") for (const [name, value] of Object.entries(traffic())) found.set(`burst.${name}`, value);
  return found.toString();
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    tell(`${what} is in the clipboard.`);
  } catch {
    tell(`The browser does not let the page copy. ${what}: ${text}`);
  }
}

$("share").addEventListener("click", () => {
  const fragment = link();
  if (fragment.length > MOST_FRAGMENT) return tell("The rules are too long for a link.");
  history.replaceState(null, "", `#${fragment}`);
  copy(location.href, "The link");
});

$("whole").addEventListener("click", ({ target }) => {
  target.href = `#${link()}`;
});

$("copy-as").addEventListener("change", async ({ target }) => {
  const kind = target.value;
  const title = target.selectedOptions[0].textContent;
  target.value = "";
  if (!kind) return;
  const answer = await engine.call("copied", { rules: rulesText.value, kind });
  if (answer.error) tell(answer.error);
  else copy(answer, title);
});

for (const name of VIEWS) $(`tab-${name}`).addEventListener("click", () => show(name));
document.querySelector(".tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = VIEWS[(VIEWS.indexOf(shownView()) + step + VIEWS.length) % VIEWS.length];
  show(next);
  $(`tab-${next}`).focus();
});

rulesText.addEventListener("input", () => {
  drawEditor();
  refresh();
});
window.addEventListener("hashchange", () => open(location.hash.slice(1)));
open(location.hash.slice(1));
