package plugin

import (
	"errors"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	old := time.Hour
	refused := result{err: errors.New("connection refused")}
	rejected := result{err: errors.New("no"), connected: true}
	ended := result{ended: CauseStreamEnded, connected: true, lived: time.Second}
	steadily := result{ended: CauseStreamEnded, connected: true, lived: steady}

	var p pace
	for range 1000 {
		if d := p.next(refused, fastWindow-1); d != retryFast {
			t.Fatalf("right after the socket was made: got %s, want %s", d, retryFast)
		}
	}
	for name, r := range map[string]result{"refused": refused, "rejected": rejected, "ended": ended} {
		p.reset()
		if d := p.next(r, old); d != retryFast {
			t.Errorf("%s: first pause: got %s, want %s", name, d, retryFast)
		}
		last := time.Duration(0)
		for range 100 {
			d := p.next(r, old)
			if d < retryMin/2 || d > retryMax || d < last/2 {
				t.Errorf("%s: pause of %s after %s", name, d, last)
			}
			last = d
		}
		if last < retryMax*3/4 {
			t.Errorf("%s: last pause: got %s, want nearly %s", name, last, retryMax)
		}
	}
	if d := p.next(steadily, old); d != retryFast {
		t.Errorf("after a good registration: got %s, want %s", d, retryFast)
	}
}
