package server

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReleaseProgram wants fewer pages of this program to be resident, and the
// program to go on.
func TestReleaseProgram(t *testing.T) {
	before := residentFiles(t)
	releaseProgram()
	if after := residentFiles(t); after >= before {
		t.Errorf("%d KiB of files were resident, and %d KiB are after the release", before, after)
	}
}

func residentFiles(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("there is no /proc here")
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal("no RssFile in /proc/self/status:", err)
	}
	return kib
}

func TestUnchangedMappings(t *testing.T) {
	const (
		text = "00400000-00afe000 r-xp 00000000 fe:00 1234                               /bin/server\n"
		rest = "Size:               7160 kB\nRss:                2000 kB\nAnonymous:             0 kB\nVmFlags: rd ex mr mw me sd\n"
	)
	whole := mapping{0x400000, 0xafe000}
	for maps, want := range map[string][]mapping{
		text + rest: {whole},
		strings.Replace(text, "r-xp", "r--p", 1) + rest:           {whole},
		text + strings.Replace(rest, "     0 kB", "     4 kB", 1): nil,
		text: nil,
		strings.Replace(text, "r-xp", "rw-p", 1) + rest:                                 nil,
		strings.Replace(text, "r-xp", "r--s", 1) + rest:                                 nil,
		strings.Replace(text, "/bin/server", "/bin/server2", 1) + rest:                  nil,
		strings.Replace(text, "/bin/server", "", 1) + rest:                              nil,
		strings.Replace(text, "00afe000", "zz", 1) + rest:                               nil,
		text + rest + "7ffd1000-7ffd3000 r-xp 00000000 00:00 0         [vdso]\n" + rest: {whole},
		"": nil,
	} {
		if got := slices.Collect(unchangedMappings(maps, "/bin/server")); !slices.Equal(got, want) {
			t.Errorf("%q: got %#x, want %#x", maps, got, want)
		}
	}
	spaced := strings.Replace(text, "/bin/server", "/bin/a server (deleted)", 1) + rest
	if got := slices.Collect(unchangedMappings(spaced, "/bin/a server (deleted)")); !slices.Equal(got, []mapping{whole}) {
		t.Errorf("a path with spaces: got %#x", got)
	}
}
