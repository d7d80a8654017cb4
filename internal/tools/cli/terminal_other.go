//go:build !unix

package cli

import "os"

// isTerminal is false: an old console of Windows does not interpret the escape sequences that
// redraw a report.
func isTerminal(*os.File) bool { return false }
