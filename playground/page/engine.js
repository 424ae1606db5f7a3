// Calls the module, which runs in workers. A call that takes too long ends with its worker, and the next call gets a new
// worker.
"use strict";

/** Time limit of a call on the rules, in milliseconds. A replay has none, because it can be stopped. */
const PATIENCE = 10_000;

const workerUrl = URL.createObjectURL(
  new Blob([document.getElementById("worker").textContent], { type: "text/javascript" }),
);

class Engine {
  constructor(patience) {
    this.patience = patience;
    this.calls = new Map();
    this.last = 0;
    this.onprogress = () => {};
  }

  async call(call, input, log) {
    const id = ++this.last;
    let worker;
    try {
      worker = this.start();
    } catch (error) {
      return { error: `The playground cannot start its worker: ${error.message}` };
    }
    return new Promise((done) => {
      const timer = this.patience && setTimeout(() => this.stop("it takes too long"), this.patience);
      this.calls.set(id, (answer) => {
        clearTimeout(timer);
        done(answer);
      });
      worker.postMessage({ id, call, input: JSON.stringify(input), log }, log ? [log.buffer] : []);
    });
  }

  /** Ends the worker. All calls in it are answered with this error. */
  stop(error) {
    const worker = this.worker;
    this.worker = undefined;
    for (const done of this.calls.values()) done({ error });
    this.calls.clear();
    worker?.terminate();
  }

  start() {
    if (this.worker) return this.worker;
    const worker = new Worker(workerUrl);
    worker.onmessage = ({ data }) => {
      if (data.progress) return this.onprogress(data.progress);
      const done = this.calls.get(data.id);
      this.calls.delete(data.id);
      done?.(data.answer);
    };
    worker.onerror = (event) => this.stop(event.message || "the worker failed");
    worker.postMessage({ module: document.getElementById("module").textContent });
    return (this.worker = worker);
  }
}

/** Answers while the user types. */
const engine = new Engine(PATIENCE);

const $ = (id) => document.getElementById(id);

/** Makes an element. Strings become text, never markup. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Returns a function that runs `work` once when no call has come for some milliseconds. */
function debounced(ms, work) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}

/** Returns a function whose results are dropped if a later call has begun. */
function latest(ask, show) {
  let last = 0;
  return async (...input) => {
    const number = ++last;
    const answer = await ask(...input);
    if (number === last) show(answer);
  };
}

function tell(text) {
  $("told").textContent = text;
}
