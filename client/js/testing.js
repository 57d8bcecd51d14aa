// What the tests share.
import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto; // Node 18

/** A fetch that records the attempts and answers them in turn, the last answer again and again. */
export function tape(...replies) {
  const sent = [];
  return {
    sent,
    async fetch(input, init) {
      const request = new Request(input, init);
      sent.push({
        at: Date.now(),
        key: request.headers.get("Idempotency-Key"),
        type: request.headers.get("Content-Type"),
        headers: Object.fromEntries(request.headers),
        body: await request.text(),
      });
      return replies[Math.min(sent.length, replies.length) - 1]();
    },
  };
}

export const reset = async () => {
  throw new TypeError("fetch failed");
};

export const status =
  (code, body = "", headers = {}) =>
  async () =>
    new Response(body, { status: code, headers });

export const problem = (code, name, headers = {}) =>
  status(code, JSON.stringify({ code: name }), { "Content-Type": "application/problem+json", ...headers });

// The default, which no attempt of a tape takes: its answers are there at once.
const attemptTimeout = 15_000;

/** Puts a clock of its own in place of the system's, which goes on when nothing else does. */
export function clock(t) {
  const timers = new Map();
  let now = Date.UTC(2026, 0, 1);
  let last = 0;
  const real = globalThis.setTimeout;
  t.mock.method(Date, "now", () => now);
  t.mock.method(globalThis, "setTimeout", (f, ms = 0, ...args) => {
    last++;
    if (ms !== attemptTimeout) timers.set(last, { at: now + ms, f: () => f(...args) });
    return last;
  });
  t.mock.method(globalThis, "clearTimeout", (id) => timers.delete(id));
  let idle = true;
  const pump = () => {
    if (!idle) return;
    real(() => {
      const next = [...timers].sort((a, b) => a[1].at - b[1].at)[0];
      if (next) {
        timers.delete(next[0]);
        now = Math.max(now, next[1].at);
        next[1].f();
      }
      pump();
    }, 1);
  };
  pump();
  t.after(() => (idle = false));
  return {
    pass: (ms) => new Promise((done) => setTimeout(done, ms)),
    /** Checks the waits between attempts, each of which is jittered. */
    between(r, ...want) {
      assert.equal(r.sent.length, want.length + 1, "attempts");
      want.forEach(([min, max], i) => {
        const wait = r.sent[i + 1].at - r.sent[i].at;
        assert.ok(wait >= min && wait <= max, `wait ${i + 1} was ${wait} ms, want ${min} to ${max}`);
      });
    },
  };
}
