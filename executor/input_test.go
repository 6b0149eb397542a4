package executor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
)

// The dialects with commands of several lines give them to the shell as they are.
func TestCommandsOfSeveralLines(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{Shell: bashPath(t)})
	const crlf = "\n[The line ends of the command were CRLF, and were taken for LF.]"
	for name, test := range map[string]struct {
		action          api.RunAction
		status          int
		content, suffix string
	}{
		"one only":      {api.RunAction{Command: "echo a\necho b"}, -1, "", ""},
		"v1":            {api.RunAction{Command: "echo a\necho b", Dialect: api.DialectOpenHandsV1}, -1, "", ""},
		"comments":      {api.RunAction{Command: "# a\n# b", Dialect: api.DialectAnthropic}, 0, "", ""},
		"alias":         {api.RunAction{Command: "alias zz='echo aliased'\nzz", Dialect: api.DialectStrands}, 0, "aliased", ""},
		"option":        {api.RunAction{Command: "shopt -s extglob\necho !(x)", Dialect: api.DialectGemini}, 0, "!(x)", ""},
		"here-document": {api.RunAction{Command: "echo a\ncat <<EOF 2>&1\nb\nEOF", Dialect: api.DialectAnthropic}, 0, "a\nb", ""},
		"braces":        {api.RunAction{Command: "echo a\n}\necho b\n{ echo c", Dialect: api.DialectAnthropic}, 2, "a\nbash: syntax error near unexpected token `}'", ""},
		"within":        {api.RunAction{Command: "(cd -- '/' && eval ' alias yy=pwd\nyy # here')", Dialect: api.DialectGemini}, 0, "/", ""},
		"line ends":     {api.RunAction{Command: "if true; then\r\n  cat <<EOF\r\nyes\r\nEOF\r\nfi\r\n"}, 0, "yes", crlf},
		"one line":      {api.RunAction{Command: "echo a\r\n"}, 0, "a", ""},
		"mixed ends":    {api.RunAction{Command: "printf '%q' 'a\r\nb\n'"}, 0, `$'a\r\nb\n'`, ""},
		"reference":     {api.RunAction{Command: "printf '%q' 'a\r\nb'", Reference: true}, 0, `$'a\r\nb'`, ""},
	} {
		o, err := e.Do(t.Context(), api.Request{Action: test.action, Session: strings.ReplaceAll(name, " ", "-")})
		if err != nil {
			t.Fatal(err)
		}
		run, ok := o.(api.RunObservation)
		if ok != (test.status >= 0) || ok && (run.Metadata.ExitCode != test.status || run.Content != test.content || !strings.HasSuffix(run.Metadata.Suffix, "]"+test.suffix)) {
			t.Errorf("%s: got %+v", name, o)
		}
		if want := strings.TrimSpace(strings.ReplaceAll(test.action.Command, "\r\n", "\n")); ok && test.suffix != "" && run.Command != want {
			t.Errorf("%s: the command is %q, want %q", name, run.Command, want)
		}
	}
}

// Input is typed as it is, by the reference without white space around it, and keys have names.
func TestInput(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{Shell: bashPath(t), SoftTimeout: time.Hour})
	const line, key, five = `IFS= read -r x; printf '<%q>' "$x"`, `read -rsn3 -d '' k; printf '<%q>' "$k"`, `printf '\033[?1h'; read -rsn3 k; printf '\033[?1l<%q>' "$k"`
	v1 := api.DialectOpenHandsV1
	for name, test := range map[string]struct {
		command string
		input   api.RunAction
		want    string
	}{
		"blanks":       {line, api.RunAction{Command: "  a "}, `<\ \ a\ >`},
		"reference":    {line, api.RunAction{Command: "  a ", Reference: true}, `<a>`},
		"Enter":        {line, api.RunAction{Command: "\n"}, `<''>`},
		"nothing":      {line, api.RunAction{}, `<''>`},
		"one line end": {line, api.RunAction{Command: "a\n"}, `<a>`},
		"two commands": {line + "; " + line, api.RunAction{Command: "ls\r\npwd\r\n"}, `<ls><pwd>`},
		"text":         {line, api.RunAction{Command: "ENTER"}, `<ENTER>`},
		"v1 text":      {line, api.RunAction{Command: " up there", Dialect: v1}, `<\ up\ there>`},
		"v1 Enter":     {line, api.RunAction{Command: "enter", Dialect: v1}, `<''>`},
		"v1 up":        {key, api.RunAction{Command: "UP", Dialect: v1}, `<$'\E[A'>`},
		"v1 end":       {key, api.RunAction{Command: " END\n", Dialect: v1}, `<$'\E[F'>`},
		"v1 page":      {strings.Replace(key, "3", "4", 1), api.RunAction{Command: "PGDN", Dialect: v1}, `<$'\E[6~'>`},
		"v1 mode":      {five, api.RunAction{Command: "DOWN", Dialect: v1}, `<$'\EOB'>`},
		"actiond down": {five, api.RunAction{Command: "DOWN", Dialect: api.DialectActiond}, `<$'\EOB'>`},
		"prompt":       {strings.Replace(line, "-r", "-rp v:", 1), api.RunAction{Command: " a"}, `<\ a>`},
		"v1 interrupt": {"sleep 1000", api.RunAction{Command: "ctrl+c", Dialect: v1}, `^C`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session := strings.ReplaceAll(name, " ", "-")
			command := api.RunAction{Command: command(test.command), ReturnOnInput: true, Blocking: true, Dialect: api.DialectAnthropic}
			limit, input := 300.0, test.input
			if strings.HasPrefix(test.command, "sleep") {
				if _, err := e.Do(t.Context(), api.Request{Action: api.RunAction{Command: "true"}, Session: session}); err != nil {
					t.Fatal(err)
				}
				limit = 0.1 // within which a shell may not start
			}
			if _, err := e.Do(t.Context(), api.Request{Action: command, Session: session, Timeout: &limit}); err != nil {
				t.Fatal(err)
			}
			input.IsInput, limit = true, 300
			o, err := e.Do(t.Context(), api.Request{Action: input, Session: session, Timeout: &limit})
			if run, ok := o.(api.RunObservation); err != nil || !ok || !strings.HasSuffix(strings.ReplaceAll(run.Content, "\n", ""), test.want) ||
				test.input.Dialect == "" && !strings.Contains(test.input.Command, "\r") && run.Content != test.want { // without the echo
				t.Errorf("got %+v, %v, want %s", o, err, test.want)
			}
		})
	}
}

// command runs a text in a child, whose prompt the shell cannot redraw.
func command(text string) string { return "bash -c '" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
