package benchmarks_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lines returns n lines of 60 bytes. One in the middle has a word of its own.
func lines(n int) string {
	var out strings.Builder
	for i := 1; i <= n; i++ {
		word := map[bool]string{true: "ping", false: "some"}[i == n/2]
		out.WriteString(fmt.Sprintf("line %d holds %s words of no importance, and so it goes on", i, word)[:59] + "\n")
	}
	return out.String()
}

const (
	thousand = 1000
	megabyte = 1_000_000 / 60 // lines
)

func writes(path, content string) []byte {
	return action("write", "", map[string]any{"path": path, "content": content})
}

const written = `"observation":"write"`

// replaceFile replaces a file durably.
func replaceFile(path string, data []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close(), os.Rename(path+".tmp", path))
}

func readFile(path string, _ []byte) error {
	_, err := os.ReadFile(path)
	return err
}

// BenchmarkFiles reads files, and changes them: one word forth and back, or the whole.
func BenchmarkFiles(b *testing.B) {
	words := [2]string{"holds ping words", "holds pong words"}
	replace := func(s *server, path string) func(int) error {
		return func(i int) error {
			return s.do(action("edit", "", map[string]any{
				"command": "str_replace", "path": path, "impl_source": "oh_aci", "old_str": words[i%2], "new_str": words[(i+1)%2],
			}), "has been edited")
		}
	}
	rewrite := func(s *server, path string) func(int) error {
		content := lines(megabyte)
		requests := [2][]byte{writes(path, strings.Replace(content, words[0], words[1], 1)), writes(path, content)}
		return func(i int) error { return s.do(requests[i%2], written) }
	}
	for _, test := range []struct {
		name  string
		lines int
		ours  func(s *server, path string) func(int) error
		bare  func(path string, data []byte) error
	}{
		{"str_replace-1000-lines", thousand, replace, replaceFile},
		{"str_replace-1MB", megabyte, replace, replaceFile},
		{"write-1MB-over", megabyte, rewrite, replaceFile},
		{"write-1MB-new", megabyte, func(s *server, path string) func(int) error {
			request := writes(path, lines(megabyte))
			return func(int) error { return errors.Join(os.Remove(path), s.do(request, written)) }
		}, replaceFile},
		{"put-1MB-over", megabyte, func(s *server, path string) func(int) error {
			content := lines(megabyte)
			target := "/v1/files?path=" + url.QueryEscape(path)
			request := append(fmt.Appendf(nil, "PUT %s HTTP/1.1\r\nHost: sandbox\r\nContent-Length: %d\r\n\r\n", target, len(content)), content...)
			return func(int) error { _, err := s.ask(request); return err }
		}, replaceFile},
		{"read-1000-lines", thousand, func(s *server, path string) func(int) error {
			read := action("read", "", map[string]any{"path": path})
			return func(int) error { return s.do(read, "line 1000 ") }
		}, readFile},
		{"get-1MB", megabyte, func(s *server, path string) func(int) error {
			request := get("/v1/files?path=" + url.QueryEscape(path))
			return func(int) error { _, err := s.ask(request); return err }
		}, readFile},
	} {
		b.Run(test.name, func(b *testing.B) {
			compare(b, way{"server", func(b *testing.B) func(int) error {
				b.Helper()
				s := launch(b, "tcp", "--state-dir", scratch(b))
				path := filepath.Join(s.dir, "f")
				check(b, s.do(writes(path, lines(test.lines)), written))
				return test.ours(s, path)
			}}, way{"bare", func(b *testing.B) func(int) error {
				b.Helper()
				path, data := filepath.Join(scratch(b), "f"), []byte(lines(test.lines))
				check(b, os.WriteFile(path, data, 0o600))
				return func(int) error { return test.bare(path, data) }
			}})
		})
	}
}

// BenchmarkNotebook needs ipykernel.
func BenchmarkNotebook(b *testing.B) {
	s := launch(b, "tcp")
	cell := func(code string) []byte { return action("run_ipython", "", map[string]any{"code": code}) }
	begun := time.Now()
	answer := must(s.ask(cell("1")))(b)
	first := time.Since(begun)
	if bytes.Contains(answer, []byte(`"observation":"error"`)) {
		b.Skipf("there is no kernel: %.500s", answer)
	}
	var want strings.Builder
	for i := range thousand {
		fmt.Fprintf(&want, `%d\n`, i)
	}
	check(b, s.do(cell("for i in range(1000): print(i, flush=True)"), `"content":"`+want.String()+`[`))
	one := cell("1+1")
	measure(b, func(int) error { return s.do(one, `"content":"2\n[`) })
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
}

// fox returns a file of a hundred million bytes in lines of so many columns.
func fox(b *testing.B, columns int) string {
	b.Helper()
	line := strings.Repeat("the quick brown fox jumps over the lazy dog; ", 3)[:columns] + "\n"
	path := filepath.Join(scratch(b), "fox")
	check(b, os.WriteFile(path, bytes.Repeat([]byte(line), 100_000_000/len(line)), 0o644))
	return path
}

// BenchmarkOutput is output on a terminal.
func BenchmarkOutput(b *testing.B) {
	for name, text := range map[string]string{"seq": "seq 1 200000", "100MB": "cat " + fox(b, 100)} {
		b.Run(name, func(b *testing.B) { compare(b, way{"server", runs(text, "tcp")}, way{"bare", types(text)}) })
	}
}

// BenchmarkExec runs programs in pipes.
func BenchmarkExec(b *testing.B) {
	for name, text := range map[string]string{"true": "true", "seq": "seq 1 200000", "100MB": "cat " + fox(b, 54)} {
		b.Run(name, func(b *testing.B) {
			compare(b, way{"server", func(b *testing.B) func(int) error {
				b.Helper()
				s, request := launch(b, "tcp"), action("exec", "", map[string]any{"command": text})
				return func(int) error { return s.run(request) }
			}}, way{"bare", func(*testing.B) func(int) error {
				return func(int) error {
					cmd := exec.Command("/bin/sh", "-c", text)
					cmd.Stdout = struct{ io.Writer }{io.Discard} // through a pipe
					return cmd.Run()
				}
			}})
		})
	}
}
