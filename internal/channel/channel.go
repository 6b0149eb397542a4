// Package channel has a helper for channels that are closed as a signal.
package channel

// Closed reports whether c, to which no value is ever sent, is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
