// Runs the module in a worker, so that no rule and no log can block the page.
"use strict";

const CALLS = ["explain", "burst", "edit", "copied", "replay"];

/** Called by the module while it replays a log. */
self.progress = (bytes, requests) => self.postMessage({ progress: { bytes, requests } });

/** Compiles the module, which the page contains compressed. */
async function compile(packed) {
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  await wasm_bindgen({ module_or_path: await new Response(plain).arrayBuffer() });
}

let ready;

self.onmessage = async ({ data }) => {
  if (data.module) {
    ready = compile(data.module);
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
