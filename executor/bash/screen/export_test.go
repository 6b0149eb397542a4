package screen

// AltActive reports whether a program has switched to the alternate screen.
func (s *Screen) AltActive() bool { return s.alt != nil }
