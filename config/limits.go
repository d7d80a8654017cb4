package config

// Limits of a configuration, since who writes it must not be able to exhaust the memory of
// the program, nor its time.
const (
	// MaxFileSize is the maximum size of one file, in bytes, and maxSize that of all.
	MaxFileSize = 1 << 20
	maxSize     = 2 << 20
	// maxKeys is the maximum number of keys and tables of a configuration.
	maxKeys = 20_000
	// maxResources is the maximum number of resources of a configuration.
	maxResources = 1000
	// maxVirtual is the maximum number of virtual devices of a configuration.
	maxVirtual = 10_000
	// maxAllAlternatives is the maximum number of alternatives of all patterns of a
	// configuration.
	maxAllAlternatives = 20_000
	// maxVariables is the maximum number of variables of a text, and maxText its length:
	// no string of an environment is longer than 128 KiB (execve(2)).
	maxVariables = 100
	maxText      = 64 << 10
	// maxProblems is how many problems are reported, and maxFound how many are kept to find
	// the first of them.
	maxProblems = 100
	maxFound    = 1000
)
