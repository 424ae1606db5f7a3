// The view that replays a log. It has its own worker, so that rules are still explained meanwhile.
"use strict";

/** Largest log, in bytes. The module and its worker have a copy each. */
const MOST_LOG = 512 << 20;

const replayer = new Engine(0);
let logFile;
let savedUrl;

replayer.onprogress = ({ bytes, requests }) => {
  const mib = (bytes / 1048576).toFixed(1);
  $("progress").textContent = requests > 0 ? `${requests.toLocaleString("en")} requests decided` : `${mib} MiB read`;
};

/** Returns a trace of two minutes: thirty users who reply now and then, and mallory, who replies three times a second. */
function sampleLog() {
  const lines = [];
  for (let n = 0; n < 1200; n++) {
    const isMallory = n % 10 < 3;
    const user = (n * 13) % 30;
    lines.push(JSON.stringify({
      at_ns: n * 100_000_000, method: isMallory || n % 3 === 0 ? "POST" : "GET",
      path: isMallory || n % 3 === 0 ? "/reply" : "/api/items", source: `198.51.100.${user + 1}`,
      headers: { "x-user-id": isMallory ? "mallory" : `user-${user}` },
    }));
  }
  return `${lines.join("\n")}\n`;
}

function useFile(file) {
  if (!file) return;
  logFile = file;
  $("log").value = "";
  $("log").placeholder = `${file.name}, ${(file.size / 1048576).toFixed(1)} MiB`;
}

async function run() {
  const file = $("log").value ? new Blob([$("log").value]) : logFile;
  if (!file) return tell("Paste a log, or choose a file.");
  if (file.size > MOST_LOG) return tell(`The log has more than ${MOST_LOG >> 20} MiB; the command loudou replay has no such bound.`);
  tell("");
  setRunning(true);
  const log = new Uint8Array(await file.arrayBuffer());
  const question = {
    name: "rules.yaml", rules: rulesText.value, log_name: $("log").value ? "log" : logFile.name,
    source: $("source").value.trim() || null, at_most: $("at-most").value || null,
  };
  const answer = await replayer.call("replay", question, log);
  setRunning(false);
  $("report").hidden = false;
  $("report").textContent = answer.error ?? answer.text;
  $("report").classList.toggle("bad", Boolean(answer.error));
  if (savedUrl) URL.revokeObjectURL(savedUrl);
  savedUrl = answer.page && URL.createObjectURL(new Blob([answer.page], { type: "text/html" }));
  $("save").hidden = !savedUrl;
  if (savedUrl) $("save").href = savedUrl;
}

function setRunning(is) {
  $("run").disabled = is;
  $("stop").hidden = !is;
  $("progress").textContent = is ? "reading …" : "";
}

$("run").addEventListener("click", run);
$("stop").addEventListener("click", () => replayer.stop("stopped"));
$("sample").addEventListener("click", () => {
  $("log").value = sampleLog();
  run();
});
$("file").addEventListener("change", (event) => useFile(event.target.files[0]));
$("log").addEventListener("input", () => { logFile = undefined; });
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop") useFile(event.dataTransfer.files[0]);
  });
}
