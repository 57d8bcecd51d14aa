// For the test in Go that drives the client against idemhttp.Middleware: makes the
// calls, some at once, and prints the answers as a list of strings.
//
//     node calls.js <url> <calls> <callers> <milliseconds of patience>
import process from "node:process";
import "./testing.js";
import { fetchOnce, UnsettledError } from "./idem.js";

const [url, calls, callers, patience] = [process.argv[2], ...process.argv.slice(3).map(Number)];

async function settle(body) {
  const init = { method: "POST", body, headers: { "X-User": "alice" } };
  const options = { attemptTimeout: patience, maxInterval: patience / 2 };
  for (let again = {}; ; ) {
    try {
      const answer = await fetchOnce(url, init, { ...options, ...again });
      return `${answer.status} ${await answer.text()}`;
    } catch (error) {
      if (!(error instanceof UnsettledError)) throw error;
      again = error.again;
    }
  }
}

const answers = [];
const next = Array.from({ length: calls }, (_, i) => i).values();
const work = async () => {
  for (const i of next) answers[i] = await settle(`call ${i}`); // all workers take from one iterator
};
await Promise.all(Array.from({ length: callers }, work));
console.log(JSON.stringify(answers));
