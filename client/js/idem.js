// fetch that can safely be repeated: one idempotency key for all attempts at a
// request. For browsers and Node; see docs/http_clients.md. The Go counterpart,
// idemhttp.Transport, behaves the same.

const defaults = {
  header: "Idempotency-Key",
  prefix: "",
  maxRetries: 3,
  maxPolls: 48,
  maxInterval: 2500,
  budget: 120_000,
  attemptTimeout: 15_000,
  retention: 14 * 24 * 3600_000,
};

/** Thrown for a call that was given up without an answer that settles it. */
export class UnsettledError extends Error {
  constructor(reason, call, response, cause) {
    super(`unsettled after ${call.attempts} attempts: ${reason.replaceAll("_", " ")}`, { cause });
    this.name = "UnsettledError";
    this.reason = reason;
    this.key = call.key;
    this.expires = call.expires;
    this.attempts = call.attempts;
    this.response = response;
  }

  /** The options that make another fetchOnce an attempt of the same call. */
  get again() {
    return { key: this.key, expires: this.expires };
  }
}

/** Returns a random key: a UUID, behind the prefix. */
export function newKey(prefix = "") {
  const { crypto } = globalThis;
  if (crypto?.randomUUID) return prefix + crypto.randomUUID();
  if (!crypto?.getRandomValues) throw new Error("no source of random keys: this platform has no Web Crypto");
  // Pages that do not come over https have no randomUUID.
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6] & 0x0f) | 0x40;
  b[8] = (b[8] & 0x3f) | 0x80;
  const hex = Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
  return prefix + hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/**
 * Like fetch, but an unsafe request gets a key and is repeated with it until
 * there is an answer that settles the call.
 */
export async function fetchOnce(input, init = {}, options = {}) {
  const opts = { ...defaults };
  for (const [name, value] of Object.entries(options)) if (value !== undefined) opts[name] = value;
  const send = opts.fetch ?? globalThis.fetch;
  const request = new Request(input, init); // takes a copy of the body
  if (/^(GET|HEAD|OPTIONS|TRACE)$/.test(request.method) || opts.key === false) return send(request);

  const signal = init.signal ?? (input instanceof Request ? input.signal : undefined);
  signal?.throwIfAborted();
  const started = Date.now();
  const call = {
    key: request.headers.get(opts.header) ?? opts.key ?? newKey(opts.prefix),
    expires: opts.expires ?? started + opts.retention,
    attempts: 0,
  };
  if (call.key.trim() === "") throw new TypeError("the idempotency key is empty");
  request.headers.set(opts.header, call.key);

  let failures = 0; // in a row
  let polls = 0;
  let response, last;
  for (;;) {
    if (Date.now() >= call.expires) throw new UnsettledError("outcome_unknown", call, response, last);
    call.attempts++;
    const verdict = await attempt(send, request, signal, opts.attemptTimeout);
    ({ response, error: last } = verdict);
    const report = (wait) =>
      opts.onAttempt?.({
        attempt: call.attempts,
        key: call.key,
        outcome: verdict.outcome,
        status: response?.status,
        replayed: response?.headers.get("Idempotent-Replayed") === "true",
        error: last,
        wait,
      });
    if (verdict.outcome === "settled") {
      report();
      return response;
    }
    if (verdict.outcome === "in_progress") {
      failures = 0;
      polls++;
    } else {
      failures++;
    }
    const wait = verdict.retryAfter + backoff(verdict, failures || polls, opts.maxInterval);
    const start = Date.now() + wait;
    let reason;
    if (signal?.aborted) reason = "aborted";
    else if (verdict.outcome === "outcome_unknown" || start >= call.expires) reason = "outcome_unknown";
    else if (failures > opts.maxRetries || polls > opts.maxPolls || start - started > opts.budget)
      reason = verdict.outcome;
    report(reason ? undefined : wait);
    if (!reason) {
      response?.body?.cancel().catch(() => {});
      if (!(await sleep(wait, signal))) reason = "aborted";
    }
    if (reason) throw new UnsettledError(reason, call, response, reason === "aborted" ? signal.reason : last);
  }
}

// attempt sends the request once, and judges what came back.
async function attempt(send, request, signal, timeout) {
  const limit = new AbortController();
  const timer = setTimeout(
    () => limit.abort(new DOMException("no answer in time", "TimeoutError")),
    Math.min(timeout, 2 ** 31 - 1),
  );
  const stop = signal ? either(signal, limit.signal) : limit.signal;
  let stopped;
  // Not every fetch heeds its signal while the answer is read.
  const given = new Promise((_, reject) => {
    stopped = () => reject(stop.reason);
    stop.addEventListener("abort", stopped, { once: true });
  });
  const answered = async () => {
    const response = await send(request.clone(), { signal: stop });
    return { retryAfter: 0, response, ...(await judge(response)) };
  };
  try {
    const verdict = await Promise.race([answered(), given]);
    stop.throwIfAborted(); // it came while the answer was read, whose rest is lost
    return verdict;
  } catch (error) {
    return { outcome: "failed", retryAfter: 0, error };
  } finally {
    clearTimeout(timer);
    stop.removeEventListener("abort", stopped);
  }
}

function either(a, b) {
  if (AbortSignal.any) return AbortSignal.any([a, b]);
  const both = new AbortController();
  for (const s of [a, b]) {
    if (s.aborted) both.abort(s.reason);
    s.addEventListener("abort", () => both.abort(s.reason), { once: true });
  }
  return both.signal;
}

const shortBody = 64 << 10;

// judge tells what an answer means for the call. A problem's code counts more
// than its status. A recorded answer is final whatever its status is, and so is
// one that was not recorded although the request was carried out.
async function judge(response) {
  const { headers, status } = response;
  const problem = status >= 400 && /^application\/([\w.+-]+\+)?json\b/i.test(headers.get("Content-Type") ?? "");
  const length = Number(headers.get("Content-Length") ?? NaN);
  let code;
  if (problem || length <= shortBody) {
    // An answer that breaks off is noticed while the call can still be repeated.
    const body = await response.clone().text();
    if (problem) code = parse(body)?.code;
  }
  if (headers.get("Idempotent-Replayed") === "true" || headers.get("Idempotency-Recorded") === "false")
    return { outcome: "settled" };
  const retryAfter = asked(headers);
  const hint = { retryAfter: retryAfter ?? 0 };
  switch (code) {
    case "idempotency_request_in_progress":
    case "idempotency_lease_lost":
      return { outcome: "in_progress", ...hint };
    case "idempotency_outcome_unknown":
      return { outcome: "outcome_unknown" };
    case "idempotency_key_payload_mismatch":
    case "invalid_idempotency_key":
    case "idempotency_result_not_kept":
      return { outcome: "settled" };
  }
  if ([408, 425, 429, 502, 503, 504].includes(status)) return { outcome: "failed", ...hint };
  if (status === 409 && retryAfter !== undefined) return { outcome: "in_progress", ...hint };
  return { outcome: "settled" };
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// asked returns the milliseconds that Retry-After asks for, if it does. A date is
// compared with the server's own clock, if scripts may see it.
function asked(headers) {
  const value = headers.get("Retry-After")?.trim();
  if (!value) return undefined;
  if (/^\d+$/.test(value)) return Number(value) * 1000;
  const at = /[a-z]/i.test(value) ? Date.parse(value) : NaN;
  const now = Date.parse(headers.get("Date") ?? "") || Date.now();
  return Number.isNaN(at) ? undefined : Math.max(at - now, 0);
}

function backoff({ retryAfter }, n, maxInterval) {
  const limit = Math.max(maxInterval, 0);
  let d = limit / 10;
  if (!retryAfter) d = Math.min(d * 2 ** Math.min(n - 1, 4), limit);
  return d / 2 + Math.random() * (d / 2);
}

// sleep returns false if the signal ends it.
function sleep(ms, signal) {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve(false);
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve(!signal?.aborted);
    };
    const timer = setTimeout(end, Math.min(ms, 2 ** 31 - 1));
    signal?.addEventListener("abort", end, { once: true });
  });
}
