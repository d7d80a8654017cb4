package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Answer runs a call of the kubelet. The context of f ends after a time, and Answer returns at the latest a
// grace period later, even if f hangs. What f has written must not be read after an error: f may still run. A
// panic is an error.
func Answer(ctx context.Context, log *slog.Logger, call string, within, grace time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// Capacity 1: a call that hangs can end after Answer has returned.
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			done <- err
		}()
		defer Recovered(log, call, &err)
		err = f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// A call that waits ends now, with an error that says what it waits for.
	select {
	case err := <-done:
		return err
	case <-time.After(grace):
		return fmt.Errorf("no answer within %s", within)
	}
}

// Recovered turns a panic into the error of a call, and logs its stack. It must be deferred directly.
func Recovered(log *slog.Logger, call string, err *error) {
	if v := recover(); v != nil {
		log.Error("panic", "call", call, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
		*err = fmt.Errorf("internal error: panic: %v", v)
	}
}
