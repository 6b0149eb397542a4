// Package mark finds processes by a variable of their environment, the mark. All
// that descends from a process with a mark has it too, whatever session it is in
// and although its parent ended.
//
// A process can take the mark off by a new environment, so this finds a process that was
// left behind, and not one that hides. A process that puts a mark on is found with the others.
package mark

import "syscall"

// Kill kills the processes of a user that have the mark. See [Signal].
func Kill(mark string, uid int) (found bool) {
	for range 8 { // a process may have started another one before it died
		if !Signal(mark, uid, syscall.SIGKILL, nil) {
			break
		}
		found = true
	}
	return found
}
