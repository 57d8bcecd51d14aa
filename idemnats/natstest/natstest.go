// Package natstest starts a JetStream server inside a test. It is a module of
// its own, so that users of idemnats do not depend on the server.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Run returns a client of a JetStream server that lives as long as the test: one
// within this process, without a port.
func Run(tb testing.TB) jetstream.JetStream {
	tb.Helper()
	s, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: tb.TempDir(), NoSigs: true})
	if err != nil {
		tb.Fatal(err)
	}
	s.Start()
	tb.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		tb.Fatal("the NATS server did not start")
	}
	tb.Logf("JetStream of nats-server %s, in this process", server.VERSION)
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}
