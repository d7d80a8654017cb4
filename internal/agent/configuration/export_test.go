package configuration

// WaitWritten waits for the writes beside a start, as if the program died after them.
func (t *Trial) WaitWritten() { t.pending.Wait() }
