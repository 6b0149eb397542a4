// Package syntaxcheck finds syntax errors of files in the language that their names say: Go and JSON in process, Python
// with the interpreter of the image, which compiles the text and runs none of it.
package syntaxcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/scanner"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/identity"
)

// pythonTimeout bounds one look at a Python file.
const pythonTimeout = 10 * time.Second

// Issue is one thing that is wrong, with its line and column, counted from 1.
type Issue struct {
	Line, Column int
	Message      string
}

// New returns the issues of after that before does not have, whatever their lines. known is false for languages that
// are not checked here. The Python interpreter runs as user; ctx bounds the work.
func New(ctx context.Context, path, before, after string, user *identity.User) (issues []Issue, known bool) {
	var find func(string) ([]Issue, bool)
	switch strings.ToLower(filepath.Ext(path)) {
	case ".go":
		find = goIssues
	case ".json":
		find = jsonIssues
	case ".py", ".pyi":
		find = func(text string) ([]Issue, bool) { return pythonIssues(ctx, text, user) }
	default:
		return nil, false
	}
	now, known := find(after)
	if len(now) == 0 {
		return nil, known
	}
	old := map[string]int{}
	was, _ := find(before)
	for _, issue := range was {
		old[issue.Message]++
	}
	for _, issue := range now {
		if old[issue.Message]--; old[issue.Message] < 0 {
			issues = append(issues, issue)
		}
	}
	return issues, known
}

func goIssues(text string) ([]Issue, bool) {
	_, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	found, ok := errors.AsType[scanner.ErrorList](err)
	if !ok {
		return nil, true
	}
	var issues []Issue
	for _, e := range found {
		issues = append(issues, Issue{e.Pos.Line, e.Pos.Column, e.Msg})
	}
	return issues, true
}

func jsonIssues(text string) ([]Issue, bool) {
	wrong, ok := errors.AsType[*json.SyntaxError](json.Unmarshal([]byte(text), new(any)))
	if !ok {
		return nil, true
	}
	at := min(max(int(wrong.Offset)-1, 0), len(text))
	line := strings.Count(text[:at], "\n") + 1
	return []Issue{{line, at - strings.LastIndexByte(text[:at], '\n'), wrong.Error()}}, true
}

// compile prints where a text is no Python and why.
const compile = `
import sys
try:
    compile(sys.stdin.buffer.read(), "draft", "exec", 0, True)
except (SyntaxError, ValueError) as e:
    print(getattr(e, "lineno", None) or 1, getattr(e, "offset", None) or 1, getattr(e, "msg", None) or e)
`

func pythonIssues(ctx context.Context, text string, user *identity.User) ([]Issue, bool) {
	ctx, cancel := context.WithTimeout(ctx, pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-I", "-S", "-W", "ignore", "-c", compile)
	cmd.Stdin = strings.NewReader(text)
	cmd.Dir, cmd.Env = "/", []string{"LANG=C.UTF-8"}
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user.Credential()}
	var out words
	cmd.Stdout = &out
	err := proc.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, false // there is no Python, or it was too slow
	}
	parts := strings.SplitN(strings.TrimSpace(string(out)), " ", 3)
	if len(parts) < 3 {
		return nil, true
	}
	line, err1 := strconv.Atoi(parts[0])
	column, err2 := strconv.Atoi(parts[1])
	if errors.Join(err1, err2) != nil {
		return nil, true
	}
	return []Issue{{line, column, parts[2]}}, true
}

// words takes the line that is printed, and not much more: the interpreter is the
// image's, and may be anything.
type words []byte

func (w *words) Write(p []byte) (int, error) {
	const most = 64 << 10
	if len(*w)+len(p) > most {
		return 0, errors.New("more than there is to say")
	}
	*w = append(*w, p...)
	return len(p), nil
}

// Format puts issues into the words of OpenHands' editor.
func Format(issues []Issue) string {
	if len(issues) == 0 {
		return "\nNo linting issues found in the changes.\n"
	}
	var out strings.Builder
	out.WriteString("\nLinting issues found in the changes:\n")
	for _, i := range issues {
		fmt.Fprintf(&out, "- Line %d, Column %d: %s\n", i.Line, i.Column, i.Message)
	}
	return out.String()
}
