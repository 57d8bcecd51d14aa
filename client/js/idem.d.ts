/** What an attempt's end means for the call. */
export type Outcome =
  /** This is the answer. */
  | "settled"
  /** No answer, or none now: a network error, 408, 425, 429, 502, 503, 504. */
  | "failed"
  /** An earlier attempt is being processed. */
  | "in_progress"
  /** The server says that nobody knows what became of the call. */
  | "outcome_unknown";

export interface Attempt {
  /** Counts from 1. */
  attempt: number;
  key: string;
  outcome: Outcome;
  /** Undefined if there was no answer. */
  status?: number;
  /** The answer is the recorded one of an earlier attempt. */
  replayed: boolean;
  /** What fetch failed with. */
  error?: unknown;
  /** Milliseconds until the next attempt; undefined if there is none. */
  wait?: number;
}

export interface Options {
  /**
   * The key of the call, sent as it is; a header that the request has itself
   * counts more. `false` sends the request as it is, and once. Default: a new
   * one for each call.
   */
  key?: string | false;
  /** When the server may have forgotten `key`, in milliseconds since 1970. */
  expires?: number;
  /** What generated keys begin with. Default: nothing. */
  prefix?: string;
  /** The header that carries the key. Default: Idempotency-Key. */
  header?: string;
  /** Attempts after one another's failure. Default: 3. */
  maxRetries?: number;
  /** Attempts that may find the call in progress. Default: 48. */
  maxPolls?: number;
  /**
   * Bounds the waits, which double from a tenth of it and are jittered; in
   * milliseconds. Retry-After can make them longer. Default: 2500.
   */
  maxInterval?: number;
  /** Milliseconds from the first attempt to the start of the last. Default: 120000. */
  budget?: number;
  /**
   * Milliseconds for an attempt's answer to begin, or to be there if it is short.
   * What was merely slow is found in progress by the next attempt. Default: 15000.
   */
  attemptTimeout?: number;
  /**
   * Milliseconds for which the server remembers a key, from the first attempt.
   * Afterwards there is none: it could do the work twice. Default: 14 days.
   */
  retention?: number;
  /** Told of each attempt, once it has ended. */
  onAttempt?: (attempt: Attempt) => void;
  /** Makes the attempts. Default: the global fetch. */
  fetch?: typeof fetch;
}

/**
 * Like fetch, but an unsafe request (not GET, HEAD, OPTIONS or TRACE) gets a key,
 * and is repeated with it until there is an answer that settles the call: any
 * but those that say "not now". The signal of `init` covers all attempts and the
 * waits between them.
 *
 * @throws {UnsettledError} if the call is given up; see there.
 */
export function fetchOnce(input: RequestInfo | URL, init?: RequestInit, options?: Options): Promise<Response>;

/** Returns a random key: a UUID, behind the prefix. */
export function newKey(prefix?: string): string;

/**
 * Thrown for a call that was given up without an answer that settles it: it may
 * have been carried out, or be carried out later. To go on with the same call:
 *
 *     fetchOnce(url, init, { ...options, ...error.again })
 */
export class UnsettledError extends Error {
  readonly name: "UnsettledError";
  /**
   * Why it was given up: the last attempt's outcome, "outcome_unknown" also when
   * the key's life is over, or "aborted" by the signal, whose reason is `cause`.
   */
  readonly reason: "failed" | "in_progress" | "outcome_unknown" | "aborted";
  readonly key: string;
  /** When the server may have forgotten the key, in milliseconds since 1970. */
  readonly expires: number;
  /** How many requests were sent. */
  readonly attempts: number;
  /** The last answer, if the last attempt got one. */
  readonly response?: Response;
  readonly cause?: unknown;
  /** The options that make another fetchOnce an attempt of the same call. */
  get again(): { key: string; expires: number };
}
