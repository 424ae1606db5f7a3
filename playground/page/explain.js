// The view that explains a request: its form, the verdict, and the reason of each rule.
"use strict";

const requestForm = document.querySelector(".request");
const FIELDS = ["method", "path", "host", "source", "route", "cluster", "client_cert", "cost", "headers", "metadata"];

const field = (name) => requestForm.elements.namedItem(name);

/** Returns the request of the form, as the admin API takes it. */
function request() {
  const found = {};
  for (const name of ["method", "path", "host", "source", "route", "cluster", "client_cert"]) {
    const value = field(name).value;
    if (value) found[name] = value;
  }
  const cost = field("cost").value.trim();
  if (cost) found.cost = /^\d{1,15}$/.test(cost) ? Number(cost) : cost;
  for (const [name, separator] of [["headers", ":"], ["metadata", "="]]) {
    const values = Object.create(null);
    for (const line of field(name).value.split("\n")) {
      // A leading colon, as in `:scheme`, belongs to the name.
      const at = line.indexOf(separator, line.startsWith(":") ? 1 : 0);
      const key = at < 0 ? line.trim() : line.slice(0, at).trim();
      if (key) (values[key] ??= []).push(at < 0 ? "" : line.slice(at + 1).trim());
    }
    if (name === "headers" && !found.host) {
      const host = Object.keys(values).find((key) => key.toLowerCase() === "host");
      if (host) {
        found.host = values[host][0];
        delete values[host];
      }
    }
    if (name === "metadata") for (const key in values) if (values[key].length === 1) values[key] = values[key][0];
    if (Object.keys(values).length > 0) found[name] = values;
  }
  return found;
}

/** Splits a command line as a shell does, without expansions. */
function words(command) {
  const found = [];
  const word = /(?:[^\s"'\\]|\\[\s\S]|'[^']*'|"(?:[^"\\]|\\[\s\S])*")+/g;
  for (const [raw] of command.replace(/\\\r?\n/g, " ").matchAll(word)) {
    found.push(raw.replace(/'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])/g,
      (_, single, double, one) => single ?? double?.replace(/\\([\s\S])/g, "$1") ?? one));
  }
  return found;
}

/** Fills the form from a curl command. */
function fromCurl(command) {
  const headers = [];
  let method, url, hasData = false;
  const rest = words(command).slice(1);
  for (let at = 0; at < rest.length; at++) {
    const option = rest[at];
    if (["-X", "--request"].includes(option)) method = rest[++at];
    else if (["-H", "--header"].includes(option)) headers.push(rest[++at] ?? "");
    else if (["-A", "--user-agent"].includes(option)) headers.push(`user-agent: ${rest[++at] ?? ""}`);
    else if (["-b", "--cookie"].includes(option)) headers.push(`cookie: ${rest[++at] ?? ""}`);
    else if (/^(-d|--data.*|--json|-F|--form)$/.test(option)) { hasData = true; at++; }
    else if (["-I", "--head"].includes(option)) method ??= "HEAD";
    else if (["-u", "--user", "-o", "--output", "-x", "--proxy", "-m", "--max-time", "--resolve"].includes(option)) at++;
    else if (!option.startsWith("-")) url ??= option;
  }
  const place = /^(?:[a-z]+:\/\/)?([^/?#]*)([^#]*)/i.exec(url ?? "");
  field("method").value = method ?? (hasData ? "POST" : "GET");
  field("host").value = place?.[1] ?? "";
  const path = place?.[2] || "/";
  field("path").value = path.startsWith("/") ? path : `/${path}`;
  field("headers").value = headers.join("\n");
}

field("path").addEventListener("paste", (event) => {
  const text = event.clipboardData.getData("text");
  if (!/^\s*curl\s/.test(text)) return;
  event.preventDefault();
  fromCurl(text.trim().slice(0, 16384));
  refresh();
});

/** Draws the level of a limit, and what the request leaves of it. */
function meter(limit) {
  const used = limit.whole > 0 ? Math.min(1, limit.part / limit.whole) : 0;
  const bar = element("div", { class: "meter", "aria-hidden": "true" });
  const fill = element("div", { class: `fill ${limit.tone}` });
  const taken = limit.capacity > 0 ? Math.min(1, 1 - limit.after / limit.capacity) : 1;
  fill.style.width = `${Math.max(used, limit.tone === "bad" ? 1 : taken) * 100}%`;
  bar.append(fill);
  return element("li", {},
    element("span", { class: "name" }, limit.name),
    bar,
    element("span", { class: "count" }, `${limit.remaining}/${limit.capacity} left`),
    element("span", { class: "words" }, limit.words));
}

function ruleCard(rule) {
  const card = element("li", { class: `rule ${rule.tone}` },
    element("p", {}, element("span", { class: "mark", "aria-hidden": "true" }, rule.mark),
      element("strong", {}, rule.name), ` ${rule.outcome}`));
  if (rule.rows.length > 0) {
    const rows = rule.rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
    card.append(element("dl", {}, ...rows));
  }
  if (rule.limits.length > 0) card.append(element("ul", { class: "limits" }, ...rule.limits.map(meter)));
  return card;
}

function showExplanation(answer) {
  if (answer.error) return $("verdict").replaceChildren(element("p", { class: "headline bad" }, answer.error));
  showProblems(answer.problems);
  showLimits(answer.limits);
  $("check").textContent = answer.check;
  const { explanation } = answer;
  $("explain-text").hidden = !explanation;
  if (!explanation) {
    const problems = answer.request_problems;
    const text = problems.length > 0 ? problems.join("\n") : "The rules have problems, so there is no verdict yet.";
    return $("verdict").replaceChildren(element("p", { class: "headline dim" }, text));
  }
  $("explained").textContent = explanation.text;
  $("explain-notes").textContent = explanation.notes.join(" ");
  $("verdict").replaceChildren(
    element("p", { class: `headline ${explanation.tone}` }, explanation.verdict),
    element("ol", { class: "outcomes" }, ...explanation.rules.map(ruleCard)));
}

const explainNow = latest(
  () => engine.call("explain", { name: "rules.yaml", rules: rulesText.value, request: request() }),
  showExplanation,
);
/** Explains again when the user pauses. */
const refresh = debounced(60, explainNow);
requestForm.addEventListener("input", refresh);
requestForm.addEventListener("submit", (event) => event.preventDefault());
