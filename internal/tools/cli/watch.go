package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Watch shows a report again and again until ctx ends. On a terminal it replaces the last one;
// otherwise it only writes reports that differ from the last one. An error of one query, such as an
// API server that restarts, does not end it. It returns nil at the end of ctx, or an error of w.
func Watch(ctx context.Context, w io.Writer, interval time.Duration, show func(io.Writer) error) error {
	terminal := Terminal(w)
	last := ""
	for {
		// The whole report is written at once, so that the screen does not flicker during the
		// query.
		var text strings.Builder
		err := show(&text)
		if err != nil && !errors.Is(err, ErrReported) && ctx.Err() == nil {
			fmt.Fprintf(&text, "error: %v\n", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if terminal != nil {
			// The cursor goes to the top left, and the screen is cleared.
			fmt.Fprint(terminal, "\x1b[H\x1b[2J")
		}
		// In a file or a pipe, an equal report has no news.
		if terminal != nil || text.String() != last {
			if _, err := io.WriteString(w, text.String()); err != nil {
				return err
			}
		}
		last = text.String()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}
