package plugin

import (
	"errors"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	old := time.Hour
	refused := registration{err: errors.New("connection refused")}
	rejected := registration{err: errors.New("no"), connected: true}
	ended := registration{ended: CauseStreamEnded, connected: true, lived: time.Second}
	steadily := registration{ended: CauseStreamEnded, connected: true, lived: steady}

	var b backoff
	for range 1000 {
		if d := b.next(refused, fastWindow-1); d != retryFast {
			t.Fatalf("right after the socket was made: got %s, want %s", d, retryFast)
		}
	}
	for name, r := range map[string]registration{"refused": refused, "rejected": rejected, "ended": ended} {
		b.reset()
		if d := b.next(r, old); d != retryFast {
			t.Errorf("%s: first pause: got %s, want %s", name, d, retryFast)
		}
		last := time.Duration(0)
		for range 100 {
			d := b.next(r, old)
			if d < retryMin/2 || d > retryMax || d < last/2 {
				t.Errorf("%s: pause of %s after %s", name, d, last)
			}
			last = d
		}
		if last < retryMax*3/4 {
			t.Errorf("%s: last pause: got %s, want nearly %s", name, last, retryMax)
		}
	}
	if d := b.next(steadily, old); d != retryFast {
		t.Errorf("after a good registration: got %s, want %s", d, retryFast)
	}
}
