package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idem"
)

// Payment is what the API makes.
type Payment struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"` // in the currency's smallest unit
	Currency string `json:"currency"`
}

// A Ledger keeps the payments that were made.
type Ledger interface {
	Add(ctx context.Context, p Payment) error
	List(ctx context.Context) ([]Payment, error)
}

// createPayment is a handler like any other: it knows nothing of idempotency
// keys, but that idem gives its work an id, the same for every attempt.
func createPayment(ledger Ledger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var p Payment
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Amount <= 0 || len(p.Currency) != 3 {
			http.Error(w, "want an amount above zero and a currency of three letters", http.StatusUnprocessableEntity)
			return
		}
		if simulate(w, r) {
			return
		}
		p.ID = idem.ExecutionID(r.Context())
		if err := ledger.Add(r.Context(), p); err != nil {
			http.Error(w, "the ledger is closed", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Location", "/payments/"+p.ID)
		answer(w, http.StatusCreated, p)
	}
}

func listPayments(ledger Ledger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		payments, err := ledger.List(r.Context())
		if err != nil {
			http.Error(w, "the ledger is closed", http.StatusServiceUnavailable)
			return
		}
		answer(w, http.StatusOK, payments)
	}
}

// simulate makes the request slow (?delay=2s) or makes it fail (?fail=500), and
// reports whether it has answered.
func simulate(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	if d, err := time.ParseDuration(query.Get("delay")); err == nil {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
	status, err := strconv.Atoi(query.Get("fail"))
	if err != nil || status < 400 || status > 599 {
		return false
	}
	http.Error(w, fmt.Sprintf("failing with %d, as asked", status), status)
	return true
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
