package agent_test

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	long     = flag.Bool("long", false, "run the tests with random events as long as make model does")
	longSeed = flag.Uint64("seed", 0, "repeat a run with -long; 0 takes another seed each time")
)

// randomRun returns the seed and the number of steps of a test with random events: full in make model, and
// a tenth of it in make test, which only shows that the test works, with the same events each time.
func randomRun(t *testing.T, full int) (seed uint64, steps int) {
	t.Helper()
	if !*long {
		return 1, full / 10
	}
	seed = *longSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed, full
}
