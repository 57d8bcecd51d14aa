package main

import (
	"context"
	"slices"
	"sync"
)

// memoryLedger keeps payments until the program ends.
type memoryLedger struct {
	mu       sync.Mutex
	payments []Payment
}

func (l *memoryLedger) Add(_ context.Context, p Payment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.payments = append(l.payments, p)
	return nil
}

func (l *memoryLedger) List(context.Context) ([]Payment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Payment{}, slices.Clone(l.payments)...), nil
}
