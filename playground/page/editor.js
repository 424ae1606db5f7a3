// The editor of the rules: a text area over a coloured copy of its text, with line numbers and marks at problems.
"use strict";

/** Longest text that is coloured and numbered, and most lines of it. */
const MOST_COLOURED = 100_000;
const MOST_LINES = 5_000;
/** Longest line that is coloured, because the time to find its words grows with the square of its length. */
const MOST_IN_LINE = 1_000;
/** Maximum number of problems that are listed. */
const MOST_PROBLEMS = 50;

const rulesText = $("rules");
let shownProblems = [];

/** Splits a line of YAML into comment, key and the rest, with classes. It only decides colours. */
function coloured(line) {
  if (line.length > MOST_IN_LINE) return [line];
  const parts = [];
  let rest = line;
  let comment = "";
  const hash = /(^|\s)#.*$/.exec(rest);
  if (hash) {
    comment = rest.slice(hash.index);
    rest = rest.slice(0, hash.index);
  }
  const token = /([A-Za-z_][\w-]*)(?=:(?:\s|$))|("[^"]*"|'[^']*')|\b(\d[\w/%.]*)/g;
  let from = 0;
  for (let found = token.exec(rest); found; found = token.exec(rest)) {
    parts.push(rest.slice(from, found.index));
    parts.push(element("span", { class: found[1] ? "name" : found[2] ? "string" : "number" }, found[0]));
    from = found.index + found[0].length;
  }
  parts.push(rest.slice(from));
  if (comment) parts.push(element("span", { class: "comment" }, comment));
  return parts;
}

/** Draws the copy of the text below the text area, and the line numbers. */
function drawEditor() {
  const text = rulesText.value;
  const lines = text.split("\n");
  const wrong = new Map();
  for (const { line, column, severity } of shownProblems) {
    if (line && wrong.get(line)?.severity !== "error") wrong.set(line, { column, severity });
  }
  const isShort = text.length <= MOST_COLOURED && lines.length <= MOST_LINES;
  document.body.classList.toggle("plain-editor", !isShort);
  const copy = document.createDocumentFragment();
  const numbers = document.createDocumentFragment();
  for (const [index, line] of isShort ? lines.entries() : []) {
    const problem = wrong.get(index + 1);
    numbers.append(element("span", problem ? { class: problem.severity } : {}, `${index + 1}\n`));
    const row = element("span", problem ? { class: `line ${problem.severity}` } : { class: "line" });
    row.append(...coloured(line), "\n");
    copy.append(row);
  }
  $("gutter").replaceChildren(numbers);
  $("colours").replaceChildren(copy);
  scrollEditor();
}

function scrollEditor() {
  const { scrollLeft, scrollTop } = rulesText;
  $("colours").style.transform = `translate(${-scrollLeft}px, ${-scrollTop}px)`;
  $("gutter").style.transform = `translateY(${-scrollTop}px)`;
}

/** Moves the caret to a place in the text. */
function goTo(line, column) {
  const lines = rulesText.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  // Columns count characters, and a text area counts UTF-16 units.
  const at = before + [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
  rulesText.focus();
  rulesText.setSelectionRange(at, at);
  const height = parseFloat(getComputedStyle(rulesText).lineHeight);
  rulesText.scrollTop = Math.max(0, (line - 4) * height);
}

/** Shows the problems of the current text. */
function showProblems(problems) {
  shownProblems = problems;
  const errors = problems.filter((it) => it.severity === "error").length;
  const warnings = problems.length - errors;
  const counts = [[errors, "error"], [warnings, "warning"]].filter(([n]) => n > 0);
  const words = counts.map(([n, word]) => `${n} ${word}${n === 1 ? "" : "s"}`);
  $("count").textContent = words.join(", ") || "valid";
  $("count").className = errors ? "bad" : warnings ? "warn" : "good";
  const items = problems.slice(0, MOST_PROBLEMS).map((problem) => {
    const place = problem.line ? `${problem.line}:${problem.column}` : "";
    const parts = [problem.path, problem.value].filter((part) => part).join(": ");
    const button = element("button", { type: "button", class: problem.severity });
    button.append(
      element("span", { class: "place" }, place || problem.severity),
      element("span", { class: "what" }, [parts, problem.message].filter((part) => part).join(": ")),
    );
    const help = [problem.suggestion && `did you mean ${problem.suggestion}?`, problem.allowed && `allowed: ${problem.allowed}`];
    const text = help.filter((part) => part).join(" ");
    if (text) button.append(element("span", { class: "help" }, text));
    button.addEventListener("click", () => problem.line && goTo(problem.line, problem.column));
    return element("li", {}, button);
  });
  $("problems").replaceChildren(...items);
  drawEditor();
}

rulesText.addEventListener("scroll", scrollEditor, { passive: true });
