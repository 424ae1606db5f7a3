// Draws the outcome of a burst: columns of requests over time, and the level of a bucket as a line.
"use strict";

const WIDTH = 480;

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const sum = (counts) => counts.reduce((total, count) => total + count, 0);

/** Returns the largest number of requests in a slot of a chart. */
function highest(chart) {
  return Math.max(1, ...chart.admitted.map((count, slot) => count + chart.held[slot] + chart.refused[slot]));
}

/** Returns a limit as in a rule file, without its name. */
function limitText(limit) {
  const fields = Object.entries(limit).filter(([name]) => name !== "name" && name !== "algorithm");
  return fields.map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

/** Draws a chart. All charts have one scale, so that they can be compared. */
function drawChart(chart, top, seconds, height) {
  const heading = element("figcaption", {},
    element("strong", {}, chart.algorithm), " ",
    element("span", { class: "limit" }, limitText(chart.limit)));
  const figure = element("figure", {}, heading);
  if (chart.problem) {
    figure.append(element("p", { class: "note" }, chart.problem));
    return figure;
  }
  const totals = ["admitted", "held", "refused"].map((name) => [name, sum(chart[name])]);
  const words = totals.filter(([name, n]) => n > 0 || name === "admitted").map(([name, n]) => `${n} ${name}`);
  const line = element("p", { class: "totals" });
  for (const [name, n] of totals) if (n > 0 || name === "admitted") line.append(element("span", { class: name }, `${n} ${name}`));
  heading.append(line);
  const svg = shape("svg", {
    viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${chart.algorithm}: ${words.join(", ")} in ${seconds} seconds`,
  });
  const slots = chart.admitted.length;
  const wide = WIDTH / slots;
  for (const part of [0.5, 1]) svg.append(shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: height * (1 - part) + 0.5, y2: height * (1 - part) + 0.5 }));
  for (let slot = 0; slot < slots; slot++) {
    let from = height;
    for (const name of ["admitted", "held", "refused"]) {
      const tall = (chart[name][slot] / top) * height;
      if (tall === 0) continue;
      from -= tall;
      svg.append(shape("rect", { class: name, x: slot * wide + 0.4, y: from, width: wide - 0.8, height: tall }));
    }
  }
  const points = chart.level.map((level, slot) => `${((slot + 1) * wide).toFixed(1)},${(height - (level / 1000) * (height - 2) - 1).toFixed(1)}`);
  svg.append(shape("polyline", { class: "level", points: `0,${height - 1} ${points.join(" ")}` }));
  figure.append(svg);
  figure.append(element("p", { class: "axis", "aria-hidden": "true" }, element("span", {}, "0 s"), element("span", {}, `${seconds} s`)));
  return figure;
}
