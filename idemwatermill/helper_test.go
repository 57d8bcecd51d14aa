package idemwatermill_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemwatermill"
)

var errFlaky = errors.New("connection reset")

// A rig is a router with one handler, "billing", from the topic in to the topic
// out, on Watermill's own channels, which deliver a nacked message again at once.
type rig struct {
	t      *testing.T
	pubsub *gochannel.GoChannel

	mu       sync.Mutex
	runs     map[string]int // of the handler, by UUID
	poisoned []string
	out      []string
	failing  int // how many times publishing to out is to fail
}

// inBubble runs a test with a rig on the fake clock of a synctest bubble.
func inBubble(t *testing.T, f func(*rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f(&rig{
			t: t, runs: map[string]int{},
			pubsub: gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1000}, watermill.NopLogger{}),
		})
	})
}

// start starts the router with the middlewares around the handler.
func (r *rig) start(h message.HandlerFunc, around ...message.HandlerMiddleware) {
	r.t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		r.t.Fatal(err)
	}
	router.AddMiddleware(around...)
	router.AddHandler("billing", "in", r.pubsub, "out", r, func(msg *message.Message) ([]*message.Message, error) {
		r.run(msg)
		return h(msg)
	})
	poison, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		r.t.Fatal(err)
	}
	poison.AddConsumerHandler("poison", "poison", r.pubsub, func(m *message.Message) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.poisoned = append(r.poisoned, fmt.Sprintf("%s %s: %s", m.UUID, m.Payload, m.Metadata.Get(middleware.ReasonForPoisonedKey)))
		return nil
	})
	for _, router := range []*message.Router{router, poison} {
		go func() { _ = router.Run(context.Background()) }()
		<-router.Running()
		r.t.Cleanup(func() { _ = router.Close() })
	}
	r.t.Cleanup(func() { _ = r.pubsub.Close() })
}

func (r *rig) run(msg *message.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[msg.UUID]++
}

// Publish is the router's publisher to out. It keeps the order, which channels
// with a goroutine for each message do not.
func (r *rig) Publish(_ string, msgs ...*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing--; r.failing >= 0 {
		return errFlaky
	}
	for _, m := range msgs {
		r.out = append(r.out, fmt.Sprintf("%s %s %v", m.UUID, m.Payload, m.Metadata))
	}
	return nil
}

func (r *rig) Close() error { return nil }

// send publishes a message to in.
func (r *rig) send(uuid, payload string) {
	r.t.Helper()
	if err := r.pubsub.Publish("in", message.NewMessage(uuid, []byte(payload))); err != nil {
		r.t.Fatal(err)
	}
}

// once is the middleware under test.
func (r *rig) once(store idem.Store, opts ...idemwatermill.Option) message.HandlerMiddleware {
	r.t.Helper()
	m, err := idemwatermill.Middleware(store, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) poisonQueue() message.HandlerMiddleware {
	r.t.Helper()
	m, err := middleware.PoisonQueueWithFilter(r.pubsub, "poison", idemwatermill.IsPoison)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) want(what string, want, got any) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func done(*message.Message) ([]*message.Message, error) { return nil, nil }
