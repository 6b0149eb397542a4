package journal

// BreakForgotten makes the next write of the identity of a forgotten action fail.
func (j *Journal) BreakForgotten() {
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.forgottenFile.file.Close()
}
