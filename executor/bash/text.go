package bash

import (
	"errors"
	"io"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// keyPrefix begins the name of a control key.
const keyPrefix = "C-"

const (
	interruptKey = 'C' - '@'
	// quitKey is C-\, with which a person ends a program that ignores C-c.
	quitKey = '\\' - '@'
)

// Key returns the bytes that the terminal sends for a control key: text is, blanks at
// its ends aside, "C-" and one of a to z in either case, @ [ \ ] ^ _ or ?.
// ok is false for any other text, which is to be sent as it is.
func Key(text string) (sent []byte, ok bool) {
	name, found := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	if !found || len(name) != 1 {
		return nil, false
	}
	switch c := name[0]; {
	case c == '?':
		return []byte{0x7f}, true
	case c >= '@' && c <= '_', c >= 'a' && c <= 'z':
		return []byte{c & 0x1f}, true
	}
	return nil, false
}

// cursor begins the sequences of keys that move the cursor.
const cursor = "\x1b["

// keyNames are the bytes of keys by name.
var keyNames = map[string]string{
	"ENTER": "\r", "TAB": "\t", "BS": "\x7f", "ESC": "\x1b", "UP": cursor + "A", "DOWN": cursor + "B", "RIGHT": cursor + "C", "LEFT": cursor + "D",
	"HOME": cursor + "H", "END": cursor + "F", "PGUP": cursor + "5~", "PGDN": cursor + "6~",
}

// NamedKey returns the bytes of a control key, as Key, or of a key that is one of ENTER, TAB, BS, ESC, UP,
// DOWN, RIGHT, LEFT, HOME, END, PGUP and PGDN. Case is ignored, and CTRL- and CTRL+ mean C-.
func NamedKey(text string) (control, other []byte) {
	text = strings.ToUpper(strings.TrimSpace(text))
	if sent, ok := keyNames[text]; ok {
		return nil, []byte(sent)
	}
	for _, prefix := range []string{"CTRL-", "CTRL+"} {
		if name, found := strings.CutPrefix(text, prefix); found {
			text = keyPrefix + name
		}
	}
	control, _ = Key(text)
	return control, nil
}

// Bounds on the text that is parsed. Longer or deeper text counts as one command and is run
// as it is.
const (
	// maxSplit is the longest text that is parsed.
	maxSplit = 1 << 20

	// maxNesting bounds the stack of the parser, which descends into the
	// text: a thousand times a thousand parentheses would end the process,
	// and no recover helps. No construct nests without at least one of the
	// bytes and words that nesting counts, so their sum within one top-level
	// command bounds the depth whatever quotes it hides them in. The weights
	// are the stack that one level was measured to take, in KiB; together they
	// stay under 32 MiB.
	maxNesting = 32 << 10
)

// errNesting ends the parse of a text that may nest too deeply.
var errNesting = errors.New("too many nested constructs")

// Split returns the top-level commands of text: those on lines of their own.
// The commands of one line, or of a line that goes on in the next one, are one command,
// and comments belong to the command before them, or at the start to the first.
//
// Text is one command, and returned as it is, where it has no second line, does
// not parse as bash, or uses syntax that the reference's parser does not know:
// [[ ]], (( )), $(( )), for ((;;)), arrays, extended patterns, case, select,
// coproc and time.
func Split(text string) []string {
	if len(text) > maxSplit || !strings.Contains(strings.TrimSpace(text), "\n") {
		return []string{text}
	}
	commands, err := parse(text)
	if err != nil {
		return []string{text}
	}
	starts := lineStarts(text, commands)
	if len(starts) < 2 || unsupported(commands) {
		return []string{text}
	}
	pieces := make([]string, len(starts))
	for i, start := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		if i == 0 {
			start = 0
		}
		pieces[i] = strings.TrimSpace(text[start:end])
	}
	return pieces
}

// parse returns the top-level commands of text.
func parse(text string) (commands []*syntax.Stmt, err error) {
	source := &limitedReader{text: text}
	parser := syntax.NewParser(syntax.Variant(syntax.LangBash))
	for command, failed := range parser.StmtsSeq(source) {
		if failed != nil {
			err = failed // the sequence cannot be left: it may yield the error twice
			continue
		}
		commands = append(commands, command)
		source.spent = 0
	}
	return commands, err
}

// lineStarts returns where the commands begin that are the first of their line.
func lineStarts(text string, commands []*syntax.Stmt) []int {
	var starts []int
	for i, c := range commands {
		start := int(c.Pos().Offset())
		if i == 0 || newLineBetween(text, int(commands[i-1].End().Offset()), start) {
			starts = append(starts, start)
		}
	}
	return starts
}

// newLineBetween reports whether the command at start is on another line than
// the one that ends at end. One that ends behind start has its here-document
// there, and the two share a line.
func newLineBetween(text string, end, start int) bool {
	if end >= start {
		return false
	}
	return strings.Contains(strings.ReplaceAll(text[end:start], "\\\n", ""), "\n")
}

// unsupported reports whether a command uses syntax that makes the reference take the
// whole text as one. It does not look into here-documents and ${ }, nor does
// the reference.
func unsupported(commands []*syntax.Stmt) bool {
	found := false
	var visit func(syntax.Node) bool
	visit = func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.TestClause, *syntax.ArithmCmd, *syntax.ArithmExp, *syntax.CStyleLoop, *syntax.ArrayExpr,
			*syntax.ExtGlob, *syntax.CaseClause, *syntax.CoprocClause, *syntax.TimeClause:
			found = true
		case *syntax.ForClause:
			found = found || n.Select
		case *syntax.Redirect:
			syntax.Walk(n.Word, visit)
			return false
		case *syntax.ParamExp:
			return false
		}
		return !found
	}
	for _, c := range commands {
		syntax.Walk(c, visit)
	}
	return found
}

// limitedReader reads text until the part since the last whole command could
// nest too deeply.
type limitedReader struct {
	text  string
	at    int
	spent int
}

// Read implements io.Reader. The parser asks for a kibibyte at a time, so its
// reading ahead adds little to the bound.
func (r *limitedReader) Read(p []byte) (int, error) {
	if r.at == len(r.text) {
		return 0, io.EOF
	}
	n := copy(p, r.text[r.at:])
	r.spent += nesting(r.text, r.at, r.at+n)
	r.at += n
	if r.spent > maxNesting {
		return 0, errNesting
	}
	return n, nil
}

// nesting returns the weight of the words that may open a level in text[from:to]. A word
// is counted where it ends.
func nesting(text string, from, to int) int {
	sum := 0
	for i := from; i < to; i++ {
		switch c := text[i]; {
		case c == '(' || c == '[':
			sum += 8
		case c == '{' || c == '`':
			sum += 4
		case strings.IndexByte("!-+~*=?:,&|<>", c) >= 0:
			sum++
		case isLower(c) && (i+1 == len(text) || !isLower(text[i+1])):
			sum += wordNesting(text, i+1)
		}
	}
	return sum
}

// wordNesting returns the weight of the word that ends at end.
func wordNesting(text string, end int) int {
	const longest = len("function")
	start := end
	for start > 0 && end-start <= longest && isLower(text[start-1]) {
		start--
	}
	switch text[start:end] {
	case "if", "then", "elif", "else", "while", "until", "for", "select", "do", "case", "time", "coproc", "function":
		return 4
	}
	return 0
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
