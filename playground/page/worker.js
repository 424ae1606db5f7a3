// Runs the module in a worker, so that no rule and no log can block the page.
"use strict";

const CALLS = ["explain", "burst", "edit", "copied", "replay"];

/** Called by the module while it replays a log. */
self.progress = (bytes, requests) => self.postMessage({ progress: { bytes, requests } });

let ready;

self.onmessage = async ({ data }) => {
  if (data.module) {
    ready = wasm_bindgen({ module_or_path: data.module });
    return;
  }
  const { id, call, input, log } = data;
  try {
    await ready;
    if (!CALLS.includes(call)) throw new Error("unknown call");
    const text = log ? wasm_bindgen[call](input, log) : wasm_bindgen[call](input);
    self.postMessage({ id, answer: JSON.parse(text) });
  } catch (error) {
    self.postMessage({ id, answer: { error: String(error) } });
  }
};
