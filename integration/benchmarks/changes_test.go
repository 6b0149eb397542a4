package benchmarks_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// workspace makes a tree of so many names, ten to a directory, with the file d1/f1.
func workspace(b *testing.B, names int) string {
	b.Helper()
	dir := scratch(b)
	for i := range names / 10 {
		sub := filepath.Join(dir, fmt.Sprint("d", i))
		check(b, os.Mkdir(sub, 0o755))
		for j := range 9 {
			check(b, os.WriteFile(filepath.Join(sub, fmt.Sprint("f", j)), fmt.Appendf(nil, "file %d of directory %d\n", j, i), 0o644))
		}
	}
	return dir
}

// followed starts a server in a workspace and waits until it knows all contents that it wants.
func followed(b *testing.B, dir, mode string) *server {
	b.Helper()
	s := launch(b, "unix", "--working-dir", dir, "--changes", mode, "--state-dir", scratch(b))
	check(b, s.run(command("true")))
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		answer := must(s.ask(get("/server_info")))(b)
		if state := `"baseline":{"state":"`; bytes.Contains(answer, []byte(state+"done")) || bytes.Contains(answer, []byte(state+"off")) {
			return s
		}
		if time.Since(begun) > 5*time.Minute {
			b.Fatalf("not all is known after 5 minutes: %s", answer)
		}
	}
}

// acts returns the request for a command that says what it changed, if asked is not "".
func acts(text, asked string) []byte {
	request := map[string]any{"action": map[string]any{"action": "run", "args": map[string]any{"command": text}}}
	if asked != "" {
		request["changes"] = asked
	}
	data, err := json.Marshal(request)
	if err != nil {
		panic(err) // it is text
	}
	return append(fmt.Appendf(nil, "POST /v1/actions HTTP/1.1\r\nHost: sandbox\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(data)), data...)
}

// BenchmarkChanges has commands say what they changed, in turns: off follows nothing, facts names the files, diff
// keeps contents and shows lines.
func BenchmarkChanges(b *testing.B) {
	for _, names := range []int{5_000, 100_000} {
		b.Run(fmt.Sprint("names=", names), func(b *testing.B) {
			servers := map[string]*server{"off": followed(b, workspace(b, 100), "off")}
			for asked, mode := range map[string]string{"facts": "facts", "diff": "undo"} {
				servers[asked] = followed(b, workspace(b, names), mode)
			}
			for name, text := range map[string]string{"true": "true", "one-file": "echo %d > d1/f1"} {
				b.Run(name, func(b *testing.B) {
					took := map[string][]time.Duration{}
					for i := 0; b.Loop(); i++ {
						for by, s := range servers {
							asked := strings.TrimPrefix(by, "off")
							want := `"exit_code":0`
							if name == "one-file" && asked != "" && i > 0 {
								want = `"exact":true,"counts":{"created":0,"modified":1,`
							}
							line, _, _ := strings.Cut(fmt.Sprintf(text, i), "%!")
							begun := time.Now()
							err := s.do(acts(line, asked), want)
							took[by] = append(took[by], time.Since(begun))
							check(b, err)
						}
					}
					b.ReportMetric(0, "ns/op") // of all
					for by := range servers {
						slices.Sort(took[by])
						b.ReportMetric(float64(took[by][len(took[by])/2].Nanoseconds()), by+"-p50-ns")
					}
				})
			}
		})
	}
}

// BenchmarkShadowGit has a repository outside of the workspace keep its state after each command, as other tools do.
func BenchmarkShadowGit(b *testing.B) {
	for _, names := range []int{5_000, 100_000} {
		dir, at := workspace(b, names), scratch(b)
		git := func(args ...string) error {
			cmd := exec.Command("git", append([]string{"--git-dir", at, "--work-tree", dir, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"}, args...)...)
			said, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("git %s: %w: %s", args, err, said)
			}
			return err
		}
		commit := func() error {
			if err := git("add", "-A"); err != nil {
				return err
			}
			return git("commit", "--quiet", "--allow-empty", "--message", "an action")
		}
		check(b, git("init", "--quiet"))
		check(b, commit())
		for name, text := range map[string]string{"true": "true", "one-file": "echo %d > d1/f1"} {
			b.Run(fmt.Sprintf("names=%d/%s", names, name), func(b *testing.B) {
				s := followed(b, dir, "off")
				measure(b, func(i int) error {
					line, _, _ := strings.Cut(fmt.Sprintf(text, i), "%!")
					if err := s.run(acts(line, "")); err != nil {
						return err
					}
					return commit()
				})
			})
		}
	}
}
