package bash_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/bash"
)

// splits are the inputs of the contract's table, each with the commands it is
// made of; one means that the text is run as it is. Where the product differs
// from the reference on purpose the name says so.
var splits = []struct {
	name string
	text string
	want []string // nil: the text itself
}{
	{"empty", "", nil},
	{"blank lines", "\n\n", nil},
	{"one line", "ls", nil},
	{"one line and its newline", "ls\n", nil},
	{"two lines", "ls\npwd", []string{"ls", "pwd"}},
	{"three lines", "a\nb\nc", []string{"a", "b", "c"}},
	{"blank lines between", "ls\n\n\n  pwd\n", []string{"ls", "pwd"}},
	{"background", "ls &\npwd", []string{"ls &", "pwd"}},
	{"semicolon at the end of a line", "echo a;\necho b", []string{"echo a;", "echo b"}},
	{"carriage returns", "ls\r\npwd", []string{"ls", "pwd"}},
	{"exports", "export A=1\nexport B=2", []string{"export A=1", "export B=2"}},
	{"list", "ls; pwd", nil},
	{"two on one line, one on the next", "a; b\nc", []string{"a; b", "c"}},
	{"background on one line", "sleep 1 & echo hi\nls", []string{"sleep 1 & echo hi", "ls"}},
	{"and", "ls && pwd", nil},
	{"and at the end of a line", "ls &&\npwd", nil},
	{"or at the end of a line", "ls ||\npwd", nil},
	{"pipe at the end of a line", "ls |\nwc -l", nil},
	{"and before a continuation", "cd /tmp &&\\\nls", nil},
	{"semicolon before a continuation", "ls; \\\npwd", nil},
	{"continuation", "ls \\\n -l", nil},
	{"newline in double quotes", "echo \"a\nb\"", nil},
	{"newline in single quotes", "echo 'a\nb'", nil},
	{"python in an argument", "python3 -c \"\nimport os\n\"", nil},
	{"newline in a substitution", "echo $(ls\npwd)", nil},
	{"heredoc", "cat <<EOF\na\nEOF", nil},
	{"heredoc to a file", "cat <<'EOF' > f\nx\nEOF", nil},
	{"heredoc with tabs", "cat <<-EOF\n\ta\n\tEOF", nil},
	{"heredoc and a second command on its line", "cat <<EOF > /tmp/x && echo ok\nabc\nEOF", nil},
	{"heredoc and a list on its line", "cat <<EOF; ls\na\nEOF\npwd", []string{"cat <<EOF; ls\na\nEOF", "pwd"}},
	{"heredoc and a command after it", "cat <<EOF\na\nEOF\necho done", []string{"cat <<EOF\na\nEOF", "echo done"}},
	{"empty heredoc and a command after it", "cat <<EOF\nEOF\necho done", []string{"cat <<EOF\nEOF", "echo done"}},
	{"two heredocs", "cat <<A <<B\na\nA\nb\nB\nls", []string{"cat <<A <<B\na\nA\nb\nB", "ls"}},
	{"arithmetic in a heredoc", "cat <<EOF\n$((1+1))\nEOF\nls", []string{"cat <<EOF\n$((1+1))\nEOF", "ls"}},
	{"here string", "cat <<< \"hi\"\nls", []string{"cat <<< \"hi\"", "ls"}},
	{"comment", "# c", nil},
	{"comments", "# c\n# d", nil},
	{"comment behind", "ls # c", nil},
	{"comment on the next line", "ls\n# trailing comment", nil},
	{"leading comment belongs to the command (product)", "# comment\nls", nil},
	{"interpreter line (product)", "#!/bin/bash\nls", nil},
	{"leading comment and two commands (product)", "# c\nls\npwd", []string{"# c\nls", "pwd"}},
	{"comments belong to the command before", "ls # c\n# d\npwd", []string{"ls # c\n# d", "pwd"}},
	{"backslash in a comment, which the parser takes to go on", "ls # c \\\npwd", nil},
	{"function", "f() {\n echo hi\n}", nil},
	{"function and its call", "f() {\n echo hi\n}\nf", []string{"f() {\n echo hi\n}", "f"}},
	{"function and its call on one line", "f() {\n echo hi\n}; f", nil},
	{"subshell", "(\nls\n)", nil},
	{"group", "{\nls\n}", nil},
	{"if", "if true\nthen\nls\nfi", nil},
	{"for", "for x in a b\ndo\nls\ndone", nil},
	{"while", "while false\ndo\nls\ndone", nil},
	{"until", "until true\ndo\nls\ndone", nil},
	{"for and a command", "for x in a\ndo\nls\ndone\nls", []string{"for x in a\ndo\nls\ndone", "ls"}},
	{"set and a command", "set -e\nls", []string{"set -e", "ls"}},
	{"alias and its use", "alias x=y\nx", []string{"alias x=y", "x"}},
	{"what looks like python", "x = 1\ny = 2", []string{"x = 1", "y = 2"}},
	{"let", "let x=1\nls", []string{"let x=1", "ls"}},
	{"negation", "! true\nls", []string{"! true", "ls"}},
	{"process substitution", "cat <(ls)\nls", []string{"cat <(ls)", "ls"}},
	{"arithmetic in a default", "echo ${a:-$((1))}\nls", []string{"echo ${a:-$((1))}", "ls"}},

	{"test clause", "[[ -f x ]]\nls", nil},
	{"arithmetic command", "(( x++ ))\nls", nil},
	{"arithmetic expansion", "echo $((1+1))\nls", nil},
	{"arithmetic in quotes", "echo \"a $((1+1))\"\nls", nil},
	{"arithmetic in a function", "f() { echo $((1)); }\nf", nil},
	{"old arithmetic", "echo $[1+1]\nls", nil},
	{"arithmetic for", "for ((i=0;i<3;i++)); do\nls\ndone\nls", nil},
	{"array", "a=(1 2)\nls", nil},
	{"declared array", "declare -a a=(1 2)\nls", nil},
	{"case", "case a in\na) ls;;\nesac\nls", nil},
	{"select", "select a in b; do\nls\ndone\nls", nil},
	{"coproc", "coproc ls\nls", nil},
	{"time", "time ls\nls", nil},
	{"extended pattern", "ls !(a)\nls", nil},
	{"unsupported in the last line", "ls\npwd\n[[ a ]]", nil},

	{"unclosed quote", "echo \"a\nls", nil},
	{"unclosed backtick", "echo `a\nls", nil},
	{"unclosed heredoc", "cat <<EOF\nls\npwd", nil},
	{"python calls", "print(\"x\")\nprint(\"y\")", nil},
	{"python function", "def f():\n return 1", nil},
	{"stray fi", "ls\nfi", nil},
	{"stray brace", "ls\n}", nil},
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, tt := range splits {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			if want == nil {
				want = []string{tt.text}
			}
			if got := bash.Split(tt.text); !slices.Equal(got, want) {
				t.Errorf("Split(%q) = %q, want %q", tt.text, got, want)
			}
		})
	}
}

// TestSplitBounds gives the parser what would end the process or take for ever:
// a stack overflow cannot be recovered from, so that the test ends is the test.
func TestSplitBounds(t *testing.T) {
	t.Parallel()
	for _, opener := range []string{
		"(", "((", "( (", "{ ", "$(", "\"$(", "`", "\\`", "${a:-", "\"${a:-", "${a/", "${a[", "a[", "$[", "$((", "<(", "@(",
		"if ", "while ", "until ", "! ", "a|", "a&&", "a||", "a;", "a&", "f() ", "function f ", "time ", "coproc ", "[[ ! ", "[[ ( ",
		"case a in a) ", "for a in b; do ", "select a in b; do ", "if a; then b; else ", "a | time ", "let a=", "a=(", "<<a ", "'", "\"", "#", "\\\n",
	} {
		many := strings.Repeat(opener, 1<<18/len(opener))
		for _, text := range []string{
			"ls\n" + many,
			"ls\n((" + many,
			"ls\n[[ " + many[:len(many)/32],
			"ls\ncat <<E\n" + many[:len(many)/32] + "\nE\n",
			strings.Repeat(opener+"\n", 1e4),
		} {
			text = text[:min(len(text), 1<<20)]
			pieces := bash.Split(text)
			if joined := strings.Join(pieces, "\n"); len(joined) > len(text) {
				t.Errorf("pieces of %d bytes of %q have %d bytes", len(text), opener, len(joined))
			}
		}
	}
}

// TestSplitLong checks that length alone is no reason to give up.
func TestSplitLong(t *testing.T) {
	t.Parallel()
	line := "echo \"$(date)\" '(' [ ] { } | cat # if for while\n"
	text := strings.Repeat(line, 1<<20/len(line))
	if got := len(bash.Split(text)); got != strings.Count(text, "\n") {
		t.Errorf("got %d commands, want %d", got, strings.Count(text, "\n"))
	}
	if got := len(bash.Split(text + line)); got != 1 {
		t.Errorf("beyond 1 MiB: got %d commands, want 1", got)
	}
}

func FuzzSplit(f *testing.F) {
	for _, tt := range splits {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pieces := bash.Split(text)
		if len(pieces) == 0 {
			t.Fatalf("Split(%q) has no pieces", text)
		}
		if !strings.Contains(text, "\n") && (len(pieces) != 1 || pieces[0] != text) {
			t.Fatalf("Split(%q) = %q, want the text", text, pieces)
		}
		rest := text
		for _, piece := range pieces {
			if len(pieces) > 1 && strings.TrimSpace(piece) != piece {
				t.Fatalf("Split(%q): piece %q is not trimmed", text, piece)
			}
			before, after, found := strings.Cut(rest, piece)
			if !found || strings.TrimSpace(before) != "" {
				t.Fatalf("Split(%q) = %q: %q is lost", text, pieces, before)
			}
			rest = after
		}
		if strings.TrimSpace(rest) != "" {
			t.Fatalf("Split(%q) = %q: %q is lost", text, pieces, rest)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	script := "for f in *.go; do\n  grep -n \"$f\" <<EOF\nsome text\nEOF\ndone | sort -u > out && echo \"done: $(date)\"\n"
	for _, bb := range []struct {
		name string
		text string
	}{
		{"one line", "cd /workspace && go test ./... 2>&1 | tail -n 20"},
		{"two lines", "cd /workspace\ngo test ./..."},
		{"heredoc of 16 KiB", "cat > f <<'EOF'\n" + strings.Repeat("print('hello', [1, 2])\n", 700) + "EOF"},
		{"script of 64 KiB", strings.Repeat(script, 64<<10/len(script))},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(bb.text)))
			for b.Loop() {
				bash.Split(bb.text)
			}
		})
	}
}

var keys = []struct {
	text string
	want string // "": no key
}{
	{"C-c", "\x03"},
	{"C-C", "\x03"},
	{"C-d", "\x04"},
	{"C-z", "\x1a"},
	{"C-a", "\x01"},
	{" C-c\n", "\x03"},
	{"C-@", "\x00"},
	{"C-[", "\x1b"},
	{`C-\`, "\x1c"},
	{"C-]", "\x1d"},
	{"C-^", "\x1e"},
	{"C-_", "\x1f"},
	{"C-?", "\x7f"},

	{"", ""},
	{"C-", ""},
	{"C- ", ""},
	{"c-c", ""},
	{"C-cc", ""},
	{"C-C-c", ""},
	{"^C", ""},
	{"C-1", ""},
	{"C--", ""},
	{"C-é", ""},
	{"C-\x01", ""},
	{"M-x", ""},
	{"Enter", ""},
	{"-1", ""},
	{"echo C-c", ""},
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, tt := range keys {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			sent, ok := bash.Key(tt.text)
			if string(sent) != tt.want || ok != (tt.want != "") {
				t.Fatalf("Key(%q) = %q, %t, want %q", tt.text, sent, ok, tt.want)
			}
		})
	}
}

func TestNamedKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"ENTER": "\r", "tab": "\t", " Bs ": "\x7f", "ESC": "\x1b", "UP": "\x1b[A", "Home": "\x1b[H", "pgup": "\x1b[5~",
		"C-c": "\x03", "c-C": "\x03", "CTRL-d": "\x04", "ctrl+Z": "\x1a", "CTRL+[": "\x1b", "CTRL++": "", "CTRL-cc": "", "UPS": "", "": "",
	} {
		control, other := bash.NamedKey(text)
		if got := string(control) + string(other); got != want || len(control) > 1 {
			t.Errorf("NamedKey(%q) = %q, %q, want %q", text, control, other, want)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, tt := range keys {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sent, ok := bash.Key(text)
		if ok != (len(sent) == 1) || ok && sent[0] >= 0x20 && sent[0] != 0x7f {
			t.Errorf("Key(%q) = %q, %t, want one control character or none", text, sent, ok)
		}
	})
}
