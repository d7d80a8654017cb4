package agent_test

import "flag"

var long = flag.Bool("long", false, "run the tests with random events as long as make model does")

// randomSteps returns the number of steps of a test with random events: full in make model, and a
// tenth of it in make test, which only shows that the test works.
func randomSteps(full int) int {
	if *long {
		return full
	}
	return full / 10
}
