package main

import (
	"os/exec"
	"strings"
	"testing"
)

// stores maps a file, closes it and stores to it, then once more for each line of a FIFO, which it answers.
const stores = `import mmap, sys
f = open(sys.argv[1], "r+b")
m = mmap.mmap(f.fileno(), 0)
f.close()
n = 0
while True:
    n += 1
    m[0:5] = b"%05d" % n
    open("../done", "w").write("\n")
    open("../go").readline()
`

// A store through a mapping leaves no event, and after the first one no time. It is seen in the action that starts the program, however
// that is left and whatever else lives, and in each later one.
func TestChangesThroughMappings(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no Python")
	}
	for _, tt := range []struct{ name, before, start string }{
		{"a job", "true", "python3 -c \"$P\" f & read x <../done"},
		{"a daemon", "true", "setsid -f python3 -c \"$P\" f; read x <../done"},
		{"behind another one", "setsid -f sleep 100", "setsid -f python3 -c \"$P\" f; read x <../done"},
		{"behind many", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100 & done", "setsid -f python3 -c \"$P\" f; read x <../done"},
		{"behind one that changed something", "setsid -f sleep 100; echo x >>g", "(setsid -f python3 -c \"$P\" f); read x <../done"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, address := serveForTest(t)
			c := callerOf(t, address)
			c.sh("mkdir w; cd w; echo 00000 >f; mkfifo ../go ../done")
			c.sh("export P='" + strings.ReplaceAll(stores, "'", `'\''`) + "'")
			c.sh(tt.before)
			// A file in the same directory would have that listed, and all its files looked at.
			if got := c.sh(tt.start + " >/dev/null 2>&1"); !strings.HasPrefix(said(got), "modified w/f") {
				t.Errorf("at first: got %q", said(got))
			}
			for range 2 {
				if got := c.sh("echo >../go; read x <../done"); said(got) != "modified w/f during" {
					t.Errorf("later: got %q", said(got))
				}
			}
			if got := c.sh("true"); said(got) != "" {
				t.Errorf("without a store: got %q", said(got))
			}
		})
	}
}
