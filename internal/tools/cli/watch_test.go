package cli_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// In a file or a pipe, a report is written only if it differs from the last one. A failed query does
// not end the watch, an interrupt does.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reports := []string{"Healthy", "Healthy", "Unhealthy", "", "Unhealthy"}
		ctx, interrupt := context.WithCancel(t.Context())
		var out strings.Builder
		err := cli.Watch(ctx, &out, time.Second, func(w io.Writer) error {
			if len(reports) == 0 {
				interrupt()
				return ctx.Err()
			}
			report := reports[0]
			reports = reports[1:]
			if report == "" {
				return errors.New("no answer")
			}
			_, err := io.WriteString(w, report+"\n")
			return err
		})
		want := "Healthy\nUnhealthy\nerror: no answer\nUnhealthy\n"
		if err != nil || out.String() != want {
			t.Errorf("%v, %q, want %q", err, out.String(), want)
		}
	})
}
