package handover

import "io"

// Unchecked is Receive of what need not be a program.
func Unchecked(dir string, r io.Reader) (*Program, error) {
	file, err := store(dir, r)
	return &Program{file: file}, err
}
