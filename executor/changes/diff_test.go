package changes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/changes"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300<<10)
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"a": "1\n2\n3\n", "end": "1\n", "binary": "\x00", "latin": "\xe9", "long": long, "d/moved": "1\n", "gone": "1\n", "meta": "1\n"}
			write := func(all map[string]string) {
				t.Helper()
				for name, text := range all {
					if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)); err != nil {
						t.Fatal(err)
					}
				}
			}
			write(files)
			tracker := track(t, changes.Config{Root: dir, Store: contents(t, 0)})
			before := step(t, tracker)
			keep(t, tracker)
			do(t, dir, "mv d e\nrm gone\nchmod meta 700")
			write(map[string]string{"a": "1\n2b\n3\n4\n", "end": "1\n2", "binary": "\x00\x00", "latin": "\xe9\xe9", "long": long + "x", "e/moved": "2\n", "new": "a\n"})
			after := step(t, tracker)
			entries, truncated, err := tracker.Diff(before, after, changes.Compare(before, after, changes.Limits{}), 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, fmt.Sprintf("%s %s +%d -%d %q %s", e.Op, e.Path, e.Added, e.Removed, e.Diff, e.Content))
			}
			want := []string{
				`modified a +2 -1 "@@ -2 +2 @@\n-2\n+2b\n@@ -3,0 +4 @@\n+4" `,
				`modified binary +0 -0 "" `,
				`renamed e +0 -0 "" `,
				`modified e/moved +1 -1 "@@ -1 +1 @@\n-1\n+2" `,
				`modified end +1 -0 "@@ -1,0 +2 @@\n+2\n\\ No newline at end of file" `,
				`deleted gone +0 -1 "@@ -1 +0,0 @@\n-1" `,
				`modified latin +0 -0 "" `,
				`modified long +0 -0 "" pending`,
				`meta meta +0 -0 "" `,
				`created new +1 -0 "@@ -0,0 +1 @@\n+a" `,
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") || truncated {
				t.Errorf("got\n%s\nwant\n%s\n(truncated %t)", strings.Join(got, "\n"), strings.Join(want, "\n"), truncated)
			}
			if _, truncated, err := tracker.Diff(before, after, changes.Compare(before, after, changes.Limits{}), 30); err != nil || !truncated {
				t.Errorf("30 bytes: truncated %t (%v)", truncated, err)
			}
		})
	}
}

// Types and modes, and the lines of links and of files whose type changed.
func TestDiffTypes(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			shell(t, dir, `umask 22; printf '1\n' > becomes-link; printf '1\n' > becomes-dir; printf '1\n' > both; printf '1\n' > mode; : > no-lines
				ln -s one link; ln -s one gone; ln -s one becomes-file; mkdir d`)
			tracker := track(t, changes.Config{Root: dir, Store: contents(t, 0)})
			before := step(t, tracker)
			keep(t, tracker)
			shell(t, dir, `umask 22; rm -r becomes-* gone no-lines d; ln -s two becomes-link; mkdir -m 755 becomes-dir; printf 2 > becomes-file; chmod 600 becomes-file
				printf '2\n' > both; chmod 755 both mode; ln -sfn two link; : > empty; chmod 600 empty; mkfifo -m 600 fifo`)
			after := step(t, tracker)
			entries, truncated, err := tracker.Diff(before, after, changes.Compare(before, after, changes.Limits{}), 0)
			if err != nil || truncated {
				t.Fatal(err, truncated)
			}
			var got []string
			for _, e := range entries {
				got = append(got, fmt.Sprintf("%s %s %06o %06o %t +%d -%d %q", e.Op, e.Path, e.Was, e.Now, e.Read, e.Added, e.Removed, e.Diff))
			}
			want := []string{
				`modified becomes-dir 100644 040755 true +0 -1 "@@ -1 +0,0 @@\n-1"`,
				`modified becomes-file 120777 100600 true +1 -1 "@@ -1 +0,0 @@\n-one\n\\ No newline at end of file\n@@ -0,0 +1 @@\n+2\n\\ No newline at end of file"`,
				`modified becomes-link 100644 120777 true +1 -1 "@@ -1 +0,0 @@\n-1\n@@ -0,0 +1 @@\n+two\n\\ No newline at end of file"`,
				`modified both 100644 100755 true +1 -1 "@@ -1 +1 @@\n-1\n+2"`,
				`deleted d 040755 000000 false +0 -0 ""`,
				`created empty 000000 100600 true +0 -0 ""`,
				`created fifo 000000 010600 false +0 -0 ""`,
				`deleted gone 120777 000000 true +0 -1 "@@ -1 +0,0 @@\n-one\n\\ No newline at end of file"`,
				`modified link 120777 120777 true +1 -1 "@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file"`,
				`meta mode 100644 100755 false +0 -0 ""`,
				`deleted no-lines 100644 000000 true +0 -0 ""`,
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func BenchmarkDiff(b *testing.B) {
	dir := b.TempDir()
	text := strings.Repeat("a line of text\n", 200)
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	tracker := track(b, changes.Config{Root: dir, Store: contents(b, 0)})
	last := step(b, tracker)
	keep(b, tracker)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if _, err := f.WriteString("x"); err != nil {
			b.Fatal(err)
		}
		now := step(b, tracker)
		entries, _, err := tracker.Diff(last, now, changes.Compare(last, now, changes.Limits{}), 0)
		if err != nil || len(entries) != 1 || entries[0].Diff == "" {
			b.Fatal(entries, err)
		}
		last = now
	}
}
