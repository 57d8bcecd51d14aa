package main

import "strings"

// usage returns curl lines to try, each with the status that it is answered with.
func usage(addr, where string) string {
	return strings.NewReplacer("ADDR", addr, "WHERE", where, "EUR", `'{"amount":1299,"currency":"EUR"}'`, "USD", `'{"amount":1299,"currency":"USD"}'`).
		Replace(`Serving on http://ADDR. Open it in a browser; or, in another terminal, try the lines below.
Answers and payments are kept WHERE.

Pay. Send it again: the same answer, marked Idempotent-Replayed, and still one payment.
  curl -i http://ADDR/payments -H 'X-User: alice' -H 'Idempotency-Key: one' --json EUR  # 201
  curl -i http://ADDR/payments -H 'X-User: alice' -H 'Idempotency-Key: one' --json EUR  # 201
Keys belong to their user, and to one request.
  curl -i http://ADDR/payments -H 'X-User: bob' -H 'Idempotency-Key: one' --json EUR  # 201
  curl -i http://ADDR/payments -H 'X-User: alice' -H 'Idempotency-Key: one' --json USD  # 422
  curl -i http://ADDR/payments -H 'X-User: alice' -H 'Idempotency-Key;' --json EUR  # 400
  curl -i http://ADDR/payments -H 'Idempotency-Key: one' --json EUR  # 401
A request that is being processed is not started again. Send it later, and there is its answer.
  curl -i 'http://ADDR/payments?delay=3s' -H 'X-User: alice' -H 'Idempotency-Key: two' --json EUR &
  sleep 1; curl -i 'http://ADDR/payments?delay=3s' -H 'X-User: alice' -H 'Idempotency-Key: two' --json EUR  # 409
A final answer is kept, an error of the server is not: the request runs again.
  curl -i 'http://ADDR/payments?fail=422' -H 'X-User: alice' -H 'Idempotency-Key: three' --json EUR  # 422
  curl -i 'http://ADDR/payments?fail=500' -H 'X-User: alice' -H 'Idempotency-Key: four' --json EUR  # 500
What really happened:
  curl -i http://ADDR/payments  # 200
`)
}
