// Over real connections.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import "./testing.js";
import { fetchOnce, UnsettledError } from "./idem.js";

/** A server with keys, on a network that does to each request the next thing that can go wrong. */
async function shop(t) {
  const answers = new Map(); // by key
  const payments = [];
  let requests = 0;
  const pay = (key, body) => {
    if (!answers.has(key)) {
      payments.push(body);
      answers.set(key, { body: `payment ${payments.length}`, headers: {} });
      return answers.get(key);
    }
    return { ...answers.get(key), headers: { "Idempotent-Replayed": "true" } };
  };
  const reply = (res, { body, headers }) => res.writeHead(201, { ...headers, "Content-Length": body.length }).end(body);
  const mishaps = [
    (req) => req.socket.resetAndDestroy(), // lost on the way there
    (req, res, body) => {
      pay(req.key, body); // lost on the way back
      req.socket.resetAndDestroy();
    },
    (req, res, body) => {
      const a = pay(req.key, body); // breaks off on the way back
      res.writeHead(201, { "Content-Length": a.body.length });
      res.write(a.body.slice(0, 4), () => setImmediate(() => req.socket.resetAndDestroy()));
    },
    (req, res, body) => pay(req.key, body), // never answered
    (req, res, body) => {
      pay(req.key, body); // twice
      reply(res, pay(req.key, body));
    },
    (req, res, body) => {
      pay(req.key, body);
      res.writeHead(504).end("timeout");
    },
    (req, res, body) => reply(res, pay(req.key, body)),
  ];
  const server = createServer(async (req, res) => {
    let body = "";
    for await (const chunk of req.setEncoding("utf8")) body += chunk;
    req.key = req.headers["idempotency-key"];
    mishaps[requests++ % mishaps.length](req, res, body);
  });
  await new Promise((up) => server.listen(0, "127.0.0.1", up));
  t.after(() => {
    server.close();
    server.closeAllConnections?.();
  });
  return { url: `http://127.0.0.1:${server.address().port}/`, payments, requests: () => requests };
}

test("one payment per call on a bad network", async (t) => {
  const { url, payments, requests } = await shop(t);
  const options = { attemptTimeout: 300, maxInterval: 20 };
  const settle = async (body) => {
    let again = {};
    for (;;) {
      try {
        const answer = await fetchOnce(url, { method: "POST", body }, { ...options, ...again });
        assert.equal(answer.status, 201);
        return await answer.text();
      } catch (error) {
        if (!(error instanceof UnsettledError)) throw error;
        again = error.again;
      }
    }
  };
  const calls = Array.from({ length: 30 }, (_, i) => `call ${i}`);
  const got = [];
  const next = calls.values();
  const work = async () => {
    for (const call of next) got.push(await settle(call)); // all workers take from one iterator
  };
  await Promise.all(Array.from({ length: 5 }, work));
  assert.deepEqual([...payments].sort(), [...calls].sort());
  assert.equal(new Set(got).size, calls.length);
  assert.ok(requests() > 2 * calls.length, "that was no bad network");
});

test("the signal ends an attempt under way", async (t) => {
  const server = createServer(() => leave.abort());
  await new Promise((up) => server.listen(0, "127.0.0.1", up));
  t.after(() => {
    server.close();
    server.closeAllConnections?.();
  });
  const leave = new AbortController();
  const init = { method: "POST", body: "x", signal: leave.signal };
  const error = await fetchOnce(`http://127.0.0.1:${server.address().port}/`, init).catch((e) => e);
  assert.ok(error instanceof UnsettledError, String(error));
  assert.equal(error.reason, "aborted");
  assert.equal(error.cause.name, "AbortError");
});

test("a long answer streams, and the signal still ends it", async (t) => {
  const server = createServer((req, res) => res.writeHead(200).write("first"));
  await new Promise((up) => server.listen(0, "127.0.0.1", up));
  t.after(() => {
    server.close();
    server.closeAllConnections?.();
  });
  const leave = new AbortController();
  const init = { method: "POST", signal: leave.signal };
  const answer = await fetchOnce(`http://127.0.0.1:${server.address().port}/`, init, { attemptTimeout: 500 });
  const reader = answer.body.getReader();
  assert.equal(new TextDecoder().decode((await reader.read()).value), "first");
  leave.abort();
  await assert.rejects(reader.read(), { name: "AbortError" });
});
