import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, problem, reset, status, tape } from "./testing.js";
import { fetchOnce, newKey, UnsettledError } from "./idem.js";

const url = "http://shop.test/payments";
const post = { method: "POST", body: '{"amount":1}', headers: { "Content-Type": "application/json" } };
const now = { maxInterval: 0 }; // no waits

async function unsettled(promise, reason, attempts) {
  const error = await promise.then(
    () => assert.fail("the call was settled"),
    (e) => e,
  );
  assert.ok(error instanceof UnsettledError, String(error));
  assert.equal(error.reason, reason);
  assert.equal(error.attempts, attempts);
  assert.ok(!error.message.includes(error.key), "the message has the key");
  return error;
}

test("keys are random UUIDs", () => {
  const keys = new Set();
  for (let i = 0; i < 1000; i++) keys.add(newKey("web-"));
  assert.equal(keys.size, 1000);
  const uuid4 = /^web-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
  for (const key of keys) assert.match(key, uuid4);
});

test("keys where there is no randomUUID", (t) => {
  t.mock.method(globalThis.crypto, "randomUUID");
  globalThis.crypto.randomUUID = undefined;
  t.after(() => delete globalThis.crypto.randomUUID);
  assert.match(newKey(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.notEqual(newKey(), newKey());
});

test("B126: one key and one body for all attempts", async () => {
  const form = new FormData();
  form.set("amount", "1");
  const bytes = new TextEncoder().encode('{"amount":1}');
  const params = new URLSearchParams({ amount: "1" });
  const mutate = () => {
    bytes[10]++;
    params.append("again", "1");
  };
  const keys = new Set();
  for (const body of ["text", bytes, params, form, new Blob(["blob"]), undefined]) {
    const t = tape(reset, status(502), status(429), status(201, "paid"));
    const answer = await fetchOnce(url, { method: "POST", body }, { ...now, fetch: t.fetch, onAttempt: mutate });
    assert.equal(answer.status, 201);
    assert.equal(await answer.text(), "paid");
    assert.equal(t.sent.length, 4);
    assert.equal(new Set(t.sent.map((s) => s.key)).size, 1);
    assert.equal(new Set(t.sent.map((s) => s.body)).size, 1, t.sent.map((s) => s.body).join("\n"));
    assert.equal(new Set(t.sent.map((s) => s.type)).size, 1);
    keys.add(t.sent[0].key);
  }
  assert.equal(keys.size, 6, "a new call has a new key");
});

test("B128: the error has the key, with which the same call goes on", async () => {
  const t = tape(status(503), status(503), status(503), status(503), status(201));
  const error = await unsettled(fetchOnce(url, post, { ...now, fetch: t.fetch }), "failed", 4);
  assert.equal(error.response.status, 503);
  const answer = await fetchOnce(url, post, { ...now, fetch: t.fetch, ...error.again });
  assert.equal(answer.status, 201);
  assert.deepEqual([...new Set(t.sent.map((s) => s.key))], [error.key]);
});

const again = true;
const once = false;
const outcomes = {
  "network error": [reset, again],
  408: [status(408), again],
  425: [status(425), again],
  429: [status(429), again],
  502: [status(502, "<html>"), again],
  503: [status(503), again],
  504: [status(504), again],
  unavailable: [problem(503, "idempotency_unavailable"), again],
  "in progress": [problem(409, "idempotency_request_in_progress"), again],
  "in progress, rendered with 423": [problem(423, "idempotency_request_in_progress"), again],
  "lease lost": [problem(409, "idempotency_lease_lost"), again],
  "409 that asks for it": [status(409, "", { "Retry-After": "0" }), again],
  "answer that breaks off": [cut, again],
  200: [status(200, "ok"), once],
  204: [status(204, null), once],
  400: [problem(400, "invalid_idempotency_key"), once],
  401: [status(401), once],
  404: [status(404, "", { "Retry-After": "1" }), once],
  "409 of the application": [status(409, "sold out"), once],
  "409 of the application, as problem": [problem(409, "sold_out"), once],
  mismatch: [problem(422, "idempotency_key_payload_mismatch"), once],
  "mismatch of IdempotencyKit": [problem(409, "idempotency_key_payload_mismatch", { "Retry-After": "1" }), once],
  "answer not kept": [problem(410, "idempotency_result_not_kept"), once],
  500: [status(500), once],
  "JSON that is none": [status(400, "{", { "Content-Type": "application/json" }), once],
  "503 that was recorded": [status(503, "", { "Idempotent-Replayed": "true" }), once],
  "503 that could not be recorded": [status(503, "", { "Idempotency-Recorded": "false" }), once],
};

function cut() {
  const body = new ReadableStream({
    pull(c) {
      c.error(new TypeError("terminated"));
    },
  });
  return new Response(body, { status: 201, headers: { "Content-Length": "4" } });
}

for (const [name, [first, repeated]] of Object.entries(outcomes)) {
  test(`${name} is ${repeated ? "repeated" : "the answer"}`, async () => {
    const t = tape(first, status(201, "paid"));
    const answer = await fetchOnce(url, post, { ...now, fetch: t.fetch });
    assert.equal(t.sent.length, repeated ? 2 : 1);
    assert.equal(answer.status === 201, repeated);
    assert.equal(await answer.text(), repeated ? "paid" : await (await first()).text());
  });
}

test("a server can say that the outcome is unknown", async () => {
  const t = tape(problem(409, "idempotency_outcome_unknown"));
  const error = await unsettled(fetchOnce(url, post, { fetch: t.fetch }), "outcome_unknown", 1);
  assert.equal((await error.response.json()).code, "idempotency_outcome_unknown");
});

test("who gets a key", async () => {
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "post"]) {
    const t = tape(status(200));
    await fetchOnce(url, { method }, { fetch: t.fetch });
    assert.ok(t.sent[0].key, method);
  }
  for (const [init, options] of [
    [{}, {}],
    [{ method: "GET" }, {}],
    [{ method: "HEAD" }, {}],
    [{ method: "OPTIONS" }, {}],
    [post, { key: false }],
  ]) {
    const t = tape(status(503));
    assert.equal((await fetchOnce(url, init, { fetch: t.fetch, ...options })).status, 503);
    assert.equal(t.sent.length, 1, "repeated without a key");
    assert.equal(t.sent[0].key, null);
  }
});

test("the caller's key is kept", async () => {
  const t = tape(reset, status(201));
  const headers = { "Idempotency-Key": '"mine"' };
  await fetchOnce(new Request(url, { ...post, headers }), {}, { ...now, fetch: t.fetch, key: "other" });
  assert.deepEqual(t.sent.map((s) => s.key), ['"mine"', '"mine"']);
  await assert.rejects(fetchOnce(url, { method: "POST", headers: { "Idempotency-Key": "" } }, { fetch: t.fetch }), TypeError);
  await assert.rejects(fetchOnce(url, post, { fetch: t.fetch, key: " " }), TypeError);
  const other = tape(status(201));
  await fetchOnce(url, post, { fetch: other.fetch, header: "X-Request-Key", prefix: "web-" });
  assert.match(other.sent[0].headers["x-request-key"], /^web-/);
  assert.equal(other.sent[0].key, null);
});

test("failures and polls are bounded", async (t) => {
  const time = clock(t);
  let r = tape(reset);
  await unsettled(fetchOnce(url, post, { fetch: r.fetch }), "failed", 4);
  time.between(r, [125, 250], [250, 500], [500, 1000]);
  r = tape(problem(409, "idempotency_request_in_progress"));
  await unsettled(fetchOnce(url, post, { fetch: r.fetch }), "in_progress", 49);
  await unsettled(fetchOnce(url, post, { fetch: r.fetch, maxPolls: 2 }), "in_progress", 3);
  await unsettled(fetchOnce(url, post, { fetch: tape(reset).fetch, maxRetries: 0 }), "failed", 1);
  const wait = problem(409, "idempotency_request_in_progress");
  r = tape(reset, reset, reset, wait, reset, reset, reset, wait, reset, status(201));
  assert.equal((await fetchOnce(url, post, { fetch: r.fetch })).status, 201);
});

test("Retry-After is honoured", async (t) => {
  const time = clock(t);
  const date = (ms) => new Date(Date.now() + ms).toUTCString();
  for (const [headers, want] of [
    [{ "Retry-After": "7" }, 7000],
    [{ "Retry-After": date(3600_000), Date: date(3580_000) }, 20_000],
  ]) {
    const r = tape(status(503, "", headers), status(201));
    await fetchOnce(url, post, { fetch: r.fetch });
    time.between(r, [want + 125, want + 250]);
  }
  for (const value of ["0", "-3", "soon", "1.5", date(-3600_000)]) {
    const r = tape(status(503, "", { "Retry-After": value }), status(201));
    await fetchOnce(url, post, { fetch: r.fetch });
    time.between(r, [125, 250]);
  }
  const r = tape(status(503, "", { "Retry-After": "9999" }));
  const before = Date.now();
  await unsettled(fetchOnce(url, post, { fetch: r.fetch }), "failed", 1);
  assert.equal(Date.now(), before, "it waited although no attempt followed");
});

test("the key's life ends", async (t) => {
  const time = clock(t);
  const r = tape(status(503, "", { "Retry-After": "4" }));
  let error = await unsettled(fetchOnce(url, post, { fetch: r.fetch, retention: 10_000 }), "outcome_unknown", 3);
  error = await unsettled(fetchOnce(url, post, { fetch: r.fetch, ...error.again }), "outcome_unknown", 1);
  await time.pass(3000);
  await unsettled(fetchOnce(url, post, { fetch: r.fetch, ...error.again }), "outcome_unknown", 0);
  assert.equal(r.sent.length, 4);
});

test("the signal covers attempts and waits", async (t) => {
  clock(t);
  const why = new Error("the user left");
  const leave = new AbortController();
  const r = tape(status(503, "", { "Retry-After": "10" }));
  let left;
  const onAttempt = ({ attempt }) => {
    if (attempt === 2) setTimeout(() => leave.abort(why), 4000);
    left = Date.now() + 4000;
  };
  const options = { fetch: r.fetch, onAttempt };
  const error = await unsettled(fetchOnce(url, { ...post, signal: leave.signal }, options), "aborted", 2);
  assert.equal(error.cause, why);
  assert.equal(Date.now(), left);
  await assert.rejects(fetchOnce(url, { ...post, signal: leave.signal }, { fetch: r.fetch }), why);
  assert.equal(r.sent.length, 2, "sent although the signal had been given before");
});

test("every attempt is reported", async () => {
  const t = tape(reset, problem(409, "idempotency_request_in_progress"), status(201, "", { "Idempotent-Replayed": "true" }));
  const seen = [];
  await fetchOnce(url, post, { ...now, fetch: t.fetch, onAttempt: (a) => seen.push(a) });
  assert.deepEqual(
    seen.map((a) => [a.attempt, a.outcome, a.status, a.replayed, a.wait]),
    [
      [1, "failed", undefined, false, 0],
      [2, "in_progress", 409, false, 0],
      [3, "settled", 201, true, undefined],
    ],
  );
  assert.ok(seen[0].error instanceof TypeError);
  assert.equal(new Set(seen.map((a) => a.key)).size, 1);
});
