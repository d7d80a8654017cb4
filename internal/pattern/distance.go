package pattern

// Distance returns the number of edits that turn a into b: letters to add, drop or replace, or to swap
// with their neighbours (optimal string alignment).
//
// It counts bytes, not characters. Callers compare keys, names and values for typing errors.
func Distance(a, b string) int {
	// Each row has the distances from a prefix of a to all prefixes of b.
	before := make([]int, len(b)+1) // to the prefix of a that is two letters shorter
	last := make([]int, len(b)+1)   // to the prefix of a that is one letter shorter
	row := make([]int, len(b)+1)
	// The empty prefix of a needs j added letters.
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		// The empty prefix of b needs i dropped letters.
		row[0] = i
		for j := 1; j <= len(b); j++ {
			drop := last[j] + 1
			add := row[j-1] + 1
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(drop, add, replace)
			if i > 1 && j > 1 && isSwap(a[i-2:i], b[j-2:j]) {
				swap := before[j-2] + 1
				row[j] = min(row[j], swap)
			}
		}
		// The rows rotate, so that no row is allocated in the loop. The oldest row is
		// overwritten.
		oldest := before
		before = last
		last = row
		row = oldest
	}
	return last[len(b)]
}

// isSwap reports whether two pairs of letters are the same letters in reverse order.
func isSwap(a, b string) bool {
	return a[0] == b[1] && a[1] == b[0]
}
