package journal

// BreakForgotten makes the next write of the id of a forgotten action fail.
func (j *Journal) BreakForgotten() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.forgottenFile.file.Close()
}

// DropRecord returns a record by which an action would be as if it never came.
func DropRecord(n uint64) []byte { return appendRecord(nil, record{kind: kindDropped, n: n}, nil) }
