import { fetchOnce, newKey, UnsettledError } from "./idem.js";

const $ = (id) => document.getElementById(id);
const user = { "X-User": "visitor" };
const goods = [
  ["Coffee beans, 1 kg", 1299],
  ["Moka pot", 3450],
  ["Two mugs", 1880],
  ["Paper filters", 420],
];
const money = (cents, currency = "EUR") => new Intl.NumberFormat("en", { style: "currency", currency }).format(cents / 100);

// The order and its key survive a reload, as they should in any shop: the visitor
// who reloads and presses Pay again means the same payment.
const saved = sessionStorage.getItem("order");
let order = saved ? JSON.parse(saved) : newOrder(1);
let pending = 0; // calls under way

function newOrder(number) {
  const made = { number, key: newKey(), clicks: 0, requests: 0, paid: [] };
  sessionStorage.setItem("order", JSON.stringify(made));
  return made;
}

function show() {
  const [item, price] = goods[(order.number - 1) % goods.length];
  $("order-number").textContent = order.number;
  $("item").textContent = item;
  $("price").textContent = $("pay-price").textContent = money(price);
  $("key").textContent = order.key;
  $("clicks").textContent = order.clicks;
  $("requests").textContent = order.requests;
  const made = order.paid.length;
  $("made").textContent = made;
  $("made-label").textContent = made === 1 ? "payment" : "payments";
  $("made").parentElement.classList.toggle("twice", made > 1);
  document.body.dataset.pending = pending;
  sessionStorage.setItem("order", JSON.stringify(order));
}

// A bad network, which loses at most four requests or answers in a row. Nothing is
// told to the client but that there is no answer.
function badNetwork() {
  let lost = 0;
  return async (request, init) => {
    const luck = lost < 4 ? Math.random() : 0.5;
    lost++;
    const response = await send(luck, request, init);
    lost = 0;
    return response;
  };
}

async function send(luck, request, init) {
  const ms = (from, to) => new Promise((done) => setTimeout(done, from + Math.random() * (to - from)));
  if (luck < 0.2) {
    await ms(100, 400);
    throw new TypeError("the request got lost");
  }
  if (luck < 0.35) await ms(500, 1200); // slow
  const response = await fetch(request, init);
  await ms(20, 150);
  if (luck > 0.65) {
    await response.body?.cancel();
    throw new TypeError("the answer got lost");
  }
  return response;
}

// pay makes one call: fetchOnce sends it again until it is settled.
async function pay(of, click, amount) {
  const network = $("bad").checked ? badNetwork() : fetch;
  const keep = $("keep").checked;
  const counted = (request, init) => {
    of.requests++;
    if (!keep) request.headers.set("Idempotency-Key", newKey());
    show();
    return network(request, init);
  };
  pending++;
  show();
  try {
    const answer = await fetchOnce(
      "payments?delay=600ms", // the bank takes its time
      {
        method: "POST",
        headers: { "Content-Type": "application/json", ...user },
        body: JSON.stringify({ amount, currency: "EUR" }),
      },
      { key: of.key, maxRetries: 6, fetch: counted, onAttempt: (a) => log(click, a) },
    );
    if (answer.status === 422) say("Refused: the key belongs to another request.");
    else if (answer.status !== 201) say(`The server answered ${answer.status}.`);
    else said = false;
  } catch (error) {
    if (!(error instanceof UnsettledError)) throw error;
    say("No answer. Press Pay again: the key is still the same.");
  } finally {
    await refresh();
    pending--;
    show();
  }
}

let said = false; // something that the books do not tell

function say(text) {
  said = true;
  $("status").textContent = text;
}

function sayHowOften() {
  const times = order.paid.length;
  const often = ["Nothing has been paid yet.", `Order ${order.number} is paid, once.`][times];
  $("status").textContent = often ?? `Order ${order.number} was paid ${times} times!`;
}

function outcome({ outcome, status, replayed, error }) {
  if (outcome === "in_progress") return ["progress", "in progress", "the first is still being carried out"];
  if (status === 422) return ["mismatch", "mismatch", "another request: refused"];
  if (status === 201 && replayed) return ["replayed", "replayed", "the recorded answer again"];
  if (status === 201) return ["executed", "executed", "paid"];
  if (status) return ["lost", String(status), "not now"];
  return ["lost", "no answer", error?.message ?? ""];
}

function log(click, attempt) {
  const [kind, label, text] = outcome(attempt);
  const line = document.createElement("li");
  const cell = (content, className = "") => {
    const span = document.createElement("span");
    span.textContent = content;
    span.className = className;
    line.append(span);
  };
  cell(click);
  cell(label, `badge ${kind}`);
  cell(text);
  cell(attempt.attempt > 1 ? `try ${attempt.attempt}` : "");
  $("log").querySelector(".empty")?.remove();
  $("log").prepend(line);
  while ($("log").children.length > 300) $("log").lastChild.remove();
}

let refreshes = 0;

// refresh shows what the server's books say. Those that were there before the
// order are not its payments.
async function refresh() {
  const mine = ++refreshes;
  const answer = await fetch("payments", { headers: user });
  const payments = await answer.json();
  if (mine !== refreshes) return; // there is a newer one
  order.before ??= payments.length;
  if (payments.length < order.before) order.before = 0; // the server was started anew
  order.paid = payments.slice(order.before).map((p) => p.id);
  $("payments").replaceChildren(
    ...payments.reverse().map((p) => {
      const line = document.createElement("li");
      const amount = document.createElement("b");
      const id = document.createElement("code");
      amount.textContent = money(p.amount, p.currency);
      id.textContent = p.id;
      line.classList.toggle("this", order.paid.includes(p.id));
      line.append(amount, order.paid.includes(p.id) ? "this order" : "", id);
      return line;
    }),
  );
  if (payments.length === 0) $("payments").innerHTML = '<li class="empty">None.</li>';
  if (!said) sayHowOften();
  show();
}

function click() {
  const [, price] = goods[(order.number - 1) % goods.length];
  order.clicks++;
  const name = `click ${order.clicks}`;
  if ($("bad").checked) pay(order, name, price); // a double click
  pay(order, name, price);
}

$("pay").addEventListener("click", click);
$("ten").addEventListener("click", async () => {
  for (let i = 0; i < 10; i++) {
    $("pay").click();
    await new Promise((done) => setTimeout(done, 200));
  }
});
$("tamper").addEventListener("click", () => pay(order, "changed", 1));
$("new").addEventListener("click", async () => {
  order = newOrder(order.number + 1);
  $("log").innerHTML = '<li class="empty">Press Pay.</li>';
  said = false;
  await refresh();
});

await refresh();
