package config

// Allow is what the author of the DaemonSet lets the author of the
// configuration ask for (--allow). The zero Allow is nothing.
type Allow struct {
	Hooks, Dangerous bool
	// Mounts are the paths at or below which host paths may be mounted.
	Mounts []string
}
