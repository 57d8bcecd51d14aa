package idemmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem/idemmq"
	"github.com/idem-go/idem/memstore"
)

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setUp func(*delivery)
		runs  time.Duration
		opts  []idemmq.Option
		want  []string
	}{
		{name: "a short handler does not pay", runs: 9 * time.Second, want: []string{"ack"}},
		{name: "every 10 s by default", runs: 25 * time.Second, want: []string{"extend", "extend", "ack"}},
		{name: "every third of what the broker waits", setUp: func(d *delivery) { d.msg.AckWait = 3 * time.Second },
			runs: 2500 * time.Millisecond, want: []string{"extend", "extend", "ack"}},
		{name: "as it is set", setUp: func(d *delivery) { d.msg.AckWait = 3 * time.Second },
			runs: 5 * time.Second, opts: []idemmq.Option{idemmq.WithHeartbeat(4 * time.Second)}, want: []string{"extend", "ack"}},
		{name: "an error does not end it", setUp: func(d *delivery) { d.extend = errFlaky },
			runs: 25 * time.Second, want: []string{"extend", "extend", "ack"}},
		{name: "a broker that cannot is not asked again", setUp: func(d *delivery) { d.extend = errors.ErrUnsupported },
			runs: 25 * time.Second, want: []string{"extend", "ack"}},
		{name: "a wrong time is taken as none", setUp: func(d *delivery) { d.msg.AckWait = -1 },
			runs: 15 * time.Second, want: []string{"extend", "ack"}},
		{name: "it has ended before the decision", setUp: func(d *delivery) { d.slow = 8 * time.Second },
			runs: 15 * time.Second, want: []string{"extend", "ack"}},
	} {
		synctestRun(t, tt.name, func(t *testing.T) {
			d := message("order-1")
			if tt.setUp != nil {
				tt.setUp(d)
			}
			_, err := idemmq.Handle(t.Context(), memstore.New(), "billing", d, func(ctx context.Context) error {
				wait(ctx, tt.runs)
				return ctx.Err()
			}, tt.opts...)
			if err != nil {
				t.Error(err)
			}
			wait(t.Context(), time.Minute)
			d.want(t, tt.want...)
		})
	}
}
