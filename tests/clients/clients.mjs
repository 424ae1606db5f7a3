// What HTTP clients of npm make of Loudou's headers, against a real Envoy: node clients.mjs URL MODULES
//
// The rule has a capacity of 2 and gives one back each second. A client that retries once and ends with 200 has waited
// for as long as `Retry-After` says.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, modules] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/`));
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);

const headers = (user) => ({ "x-user-id": user });
const exhaust = async (user) => {
  for (const status of [200, 200, 429]) {
    const answer = await fetch(url, { headers: headers(user) });
    await answer.text();
    assert.equal(answer.status, status);
  }
};

const { parseRateLimit } = await load("ratelimit-header-parser");
for (const [remaining, status] of [[1, 200], [0, 200], [0, 429]]) {
  const answer = await fetch(url, { headers: headers("parser") });
  await answer.text();
  const read = parseRateLimit(answer);
  assert.equal(answer.status, status);
  assert.equal(read.limit, 2);
  assert.equal(read.remaining, remaining);
  assert.equal(read.used, 2 - remaining);
  const seconds = (read.reset - Date.now()) / 1000;
  assert.ok(seconds <= 1, `more is there in a second at most: ${seconds}`);
  const legacy = Number(answer.headers.get("x-ratelimit-reset"));
  assert.ok(legacy >= 0 && legacy <= 1, `the legacy reset: ${legacy}`);
}
console.log("ratelimit-header-parser: ok");

const { default: got } = await load("got");
await exhaust("got");
const retried = await got(url, { headers: headers("got"), retry: { limit: 1 } });
assert.equal(retried.statusCode, 200);
console.log("got: ok");

const { default: ky } = await load("ky");
await exhaust("ky");
const again = await ky(url, { headers: headers("ky"), retry: { limit: 1 } });
assert.equal(again.status, 200);
console.log("ky: ok");

const axios = require("axios");
const axiosRetry = require("axios-retry");
const client = axios.create({ headers: headers("axios") });
(axiosRetry.default ?? axiosRetry)(client, {
  retries: 1,
  retryCondition: (error) => error.response?.status === 429,
  retryDelay: (axiosRetry.default ?? axiosRetry).exponentialDelay,
});
await exhaust("axios");
assert.equal((await client.get(url)).status, 200);
console.log("axios-retry: ok");
