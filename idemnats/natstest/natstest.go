// Package natstest starts a JetStream server inside a test. It is a module of
// its own, so that users of idemnats do not depend on the server.
package natstest

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Run returns a client of a JetStream server that lives as long as the test: one
// within this process, without a port. If the variable IDEM_TEST_NATS_URL is
// set, it is that server instead, and names of streams and subjects have to be
// free there.
func Run(tb testing.TB) jetstream.JetStream {
	tb.Helper()
	url := os.Getenv("IDEM_TEST_NATS_URL")
	var opts []nats.Option
	if url == "" {
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
		opts = append(opts, nats.InProcessServer(s))
	}
	tb.Logf("JetStream: %s", cmp.Or(url, "nats-server "+server.VERSION+" in this process"))
	nc, err := nats.Connect(url, opts...)
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
