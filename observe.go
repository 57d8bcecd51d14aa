package idem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// EventKind says what an [Event] tells.
type EventKind string

// The kinds of events.
const (
	EventExecuted       EventKind = "executed"         // a closure ran; Disposition says what was kept
	EventReplayed       EventKind = "replayed"         // a recorded outcome was handed out
	EventInProgress     EventKind = "in_progress"      // another caller holds the key
	EventMismatch       EventKind = "payload_mismatch" // the key came with another payload
	EventReclaimed      EventKind = "reclaimed"        // a stale claim was taken over; its outcome is unknown
	EventOutcomeUnknown EventKind = "outcome_unknown"  // a stale claim was refused, see WithStale
	EventRenewalFailed  EventKind = "renewal_failed"   // a renewal was not answered; it is tried again
	EventLeaseLost      EventKind = "lease_lost"       // the lease ended or was taken over while the closure ran
	EventNotRecorded    EventKind = "not_recorded"     // a closure ran, its outcome could not be kept: reconcile
	EventCorrupt        EventKind = "corrupt_record"   // a record could not be read
	EventUnavailable    EventKind = "unavailable"      // the store did not answer; the closure did not run
	EventPurged         EventKind = "purged"           // expired records were deleted
	EventPurgeFailed    EventKind = "purge_failed"     // a purge did not succeed; it is tried again
)

// An Event tells an observer what happened. It never holds a user, a key, a
// payload or a result.
type Event struct {
	Kind        EventKind
	Scope       string
	ExecutionID string        // of the run that the event is about
	Attempt     int           // likewise
	Status      Status        // of EventExecuted and EventReplayed
	Disposition Disposition   // of EventExecuted
	Duration    time.Duration // of EventExecuted: how long the closure ran
	Purge       PurgeResult   // of EventPurged
	Err         error         // what went wrong in idem or in the store; never the closure's own error
}

func (c *call) emit(e Event, rec Record) {
	if c.cfg.observer == nil {
		return
	}
	e.Scope = c.key.Scope
	if rec.ExecutionID != (ID{}) {
		e.ExecutionID, e.Attempt = rec.ExecutionID.String(), rec.Attempt
	}
	c.cfg.observer(c.background, e)
}

func (c *call) event(kind EventKind, rec Record, err error) {
	c.emit(Event{Kind: kind, Status: rec.Response.Status, Err: err}, rec)
}

// refuse tells the observer why the call ends with err, and returns it.
func (c *call) refuse(rec Record, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrUnavailable): // told already
	case errors.Is(err, ErrInProgress):
		c.event(EventInProgress, rec, nil)
	case errors.Is(err, ErrPayloadMismatch):
		c.event(EventMismatch, rec, nil)
	case errors.Is(err, ErrOutcomeUnknown):
		c.event(EventOutcomeUnknown, rec, nil)
	default:
		c.event(EventCorrupt, rec, err)
	}
	return err
}

func (c *call) unavailable(cause error) error {
	c.event(EventUnavailable, Record{}, cause)
	return fmt.Errorf("%w: %w", ErrUnavailable, cause)
}

// LogEvents returns an observer for [WithObserver] that writes events to l:
// what needs a person at error level, what will mend itself at warning level,
// the rest at debug level.
func LogEvents(l *slog.Logger) func(context.Context, Event) {
	return func(ctx context.Context, e Event) {
		level := e.Kind.level()
		if !l.Enabled(ctx, level) {
			return
		}
		attrs := make([]slog.Attr, 0, 8)
		if e.Scope != "" {
			attrs = append(attrs, slog.String("scope", e.Scope))
		}
		if e.ExecutionID != "" {
			attrs = append(attrs, slog.String("execution_id", e.ExecutionID), slog.Int("attempt", e.Attempt))
		}
		if e.Status != 0 {
			attrs = append(attrs, slog.Int("status", int(e.Status)))
		}
		switch e.Kind {
		case EventExecuted:
			attrs = append(attrs, slog.String("disposition", e.Disposition.String()), slog.Duration("duration", e.Duration))
		case EventPurged:
			attrs = append(attrs, slog.Int("deleted", e.Purge.Deleted), slog.Duration("overdue", e.Purge.Overdue))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.Any("error", e.Err))
		}
		l.LogAttrs(ctx, level, "idem: "+string(e.Kind), attrs...)
	}
}

func (k EventKind) level() slog.Level {
	switch k {
	case EventLeaseLost, EventNotRecorded, EventOutcomeUnknown, EventCorrupt:
		return slog.LevelError
	case EventRenewalFailed, EventUnavailable, EventPurgeFailed, EventReclaimed, EventMismatch:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// String returns "keep", "release" or "hold".
func (d Disposition) String() string {
	switch d {
	case Keep:
		return "keep"
	case Release:
		return "release"
	case Hold:
		return "hold"
	}
	return "invalid"
}
