package proc

import (
	"os"
	"slices"
)

// maxLineage bounds the ancestors of a process that are looked at.
const maxLineage = 256

// Lineage returns a process and its ancestors below this one, the nearest first, and then the leader
// of its session: an orphan has no other ancestor.
func Lineage(pid int) []int {
	var line []int
	session := 0
	for range maxLineage {
		p, ok := readProcess(pid)
		if !ok || pid == os.Getpid() || slices.Contains(line, pid) { // the looks are of no one moment
			break
		}
		line = append(line, pid)
		if session == 0 {
			session = p.Session
		}
		pid = p.Parent
	}
	return append(line, session)
}
