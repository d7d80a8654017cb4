package cdi

import "os"

// SetReadDir replaces os.ReadDir for foreign specs.
func (s *ForeignSpecs) SetReadDir(read func(string) ([]os.DirEntry, error)) { s.readDir = read }
