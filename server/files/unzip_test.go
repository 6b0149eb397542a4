package files

import (
	"path/filepath"
	"strings"
	"testing"
)

// No name gets out of the destination, whatever it is made of.
func FuzzMemberName(f *testing.F) {
	for _, name := range []string{
		"a", "a/b", "a/", "./a", "a//b", ".", "./", "", "/", "/a", "..", "../a", "a/..", "a/../b", "a/../../b", "...", "..a",
		`..\a`, `C:\a`, "a\x00b", "\xff", "ü", strings.Repeat("x", 256), strings.Repeat("x/", 2048), "a/./../..", "//a", "-rf", "\n",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := memberName(name)
		if err != nil {
			if got != "" {
				t.Errorf("%q: got %q and %v", name, got, err)
			}
			return
		}
		if !filepath.IsLocal(got) || filepath.Clean(got) != got || strings.ContainsRune(got, 0) {
			t.Errorf("%q: got %q, which may leave the destination", name, got)
		}
		if again, err := memberName(got); err != nil || again != got {
			t.Errorf("%q: got %q, then %q, %v", name, got, again, err)
		}
	})
}
