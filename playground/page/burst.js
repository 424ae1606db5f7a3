// The view that sends a burst through a limit of the rules, and through the other algorithms.
"use strict";

/** Rules for links from the pages of the algorithms. */
const EXAMPLES = {
  funnel: "capacity: 6, rate: 1/s",
  token_bucket: "capacity: 6, rate: 1/s",
  fixed_window: "capacity: 6, window: 6s",
  sliding_window: "capacity: 6, window: 6s, slots: 3",
  sliding_log: "capacity: 6, window: 6s",
  sliding_counter: "capacity: 6, window: 6s",
  leaky_queue: "capacity: 6, rate: 1/s",
  smooth_bursty: "rate: 1/s, burst_seconds: 6",
  smooth_warmup: "rate: 1/s, warmup: 6s, max_wait: 4s",
  concurrency: "capacity: 6",
};

function exampleOf(algorithm) {
  return `version: 1\nrules:\n  - name: per-user\n    key: [{ header: x-user-id }]\n    limits:\n      - { name: limit, algorithm: ${algorithm}, ${EXAMPLES[algorithm]} }\n`;
}

let limits = [];
let chosen = 0;

const traffic = () => Object.fromEntries(
  [...document.querySelectorAll("#burst input[type=range][name]")].map((input) => [input.name, Number(input.value)]),
);

/** Fills the list of limits, and the sliders of the chosen limit. */
function showLimits(found) {
  limits = found;
  chosen = Math.min(chosen, Math.max(0, limits.length - 1));
  const options = limits.map((limit, index) => element("option", { value: index }, limit.name || `limit ${index + 1}`));
  $("limit").replaceChildren(...options);
  $("limit").value = String(chosen);
  drawNumbers();
  drawBurst();
}

/** Returns the end of a slider: the next power of ten that leaves room. */
const reach = (value) => Math.max(20, 10 ** Math.ceil(Math.log10(Math.max(1, value) * 2)));

function drawNumbers() {
  const numbers = limits[chosen]?.numbers ?? [];
  const box = $("numbers");
  const isSame = box.children.length === numbers.length && numbers.every((it, at) => box.children[at].dataset.of === `${it.field} ${it.number}`);
  if (!isSame) box.replaceChildren(...numbers.map(slider));
  numbers.forEach((it, at) => {
    const [output, input] = box.children[at].querySelectorAll("output, input");
    output.textContent = `${it.before}${it.value}${it.after}`;
    if (document.activeElement !== input) {
      input.max = String(reach(it.value));
      input.value = String(it.value);
    }
  });
}

/** Makes the slider of a number. Moving it edits the rules. */
function slider({ field, number }) {
  const input = element("input", { type: "range", min: "1" });
  const label = element("label", { "data-of": `${field} ${number}` }, number > 0 ? `${field}, period` : field, " ", element("output"), input);
  input.addEventListener("input", () => editNumber({ field, number, value: Number(input.value) }));
  return label;
}

const editNumber = latest(
  (change) => engine.call("edit", { rules: rulesText.value, rule: limits[chosen].rule, limit: limits[chosen].limit, ...change }),
  (answer) => {
    if (answer.error) return tell(answer.error);
    rulesText.value = answer;
    drawEditor();
    explainNow();
  },
);

const drawBurst = latest(
  async () => {
    if ($("burst").hidden) return undefined;
    const limit = limits[chosen];
    return limit ? engine.call("burst", { limit: limit.config, traffic: traffic() }) : { error: "A rule file with a limit has a chart here." };
  },
  (answer) => {
    if (!answer) return;
    if (answer.error) return $("charts").replaceChildren(element("p", { class: "note" }, answer.error));
    const valid = answer.charts.filter((chart) => !chart.problem);
    const top = Math.max(...valid.map(highest));
    const drawn = answer.charts.map((chart, index) => drawChart(chart, top, answer.seconds, index === 0 ? 160 : 80));
    drawn[0].classList.add("chosen");
    $("charts").replaceChildren(...drawn);
  },
);

function showTraffic() {
  for (const input of document.querySelectorAll("#burst input[type=range][name]")) {
    input.previousElementSibling.textContent = input.value;
  }
}

$("burst").addEventListener("input", (event) => {
  if (event.target.id === "limit") {
    chosen = Number(event.target.value);
    drawNumbers();
  }
  showTraffic();
  drawBurst();
});
