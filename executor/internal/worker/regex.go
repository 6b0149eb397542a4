package worker

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
)

const (
	// maxPattern bounds a pattern and a replacement, in bytes.
	maxPattern = 64 << 10
	// maxTexts bounds the texts of all replacements of one search, in bytes.
	maxTexts = 16 << 20
)

// regexTask finds the matches of a pattern of RE2 in a text.
type regexTask struct {
	Pattern, Template []byte
	Most, Room        int
}

// Match is a match in a text, by offsets in bytes, and the text in its place.
type Match struct {
	Start, End int
	Text       []byte
}

// Replace returns the matches of a pattern in a text, at most most+1, and the replacement of
// each by the template: $1 and ${name} are groups, $$ is a dollar sign. The error is a *Error for a
// pattern or template that is not valid.
func (p *Pool) Replace(text, pattern, template string, most, room int) ([]Match, error) {
	if len(pattern) > maxPattern || len(template) > maxPattern {
		return nil, &Error{fmt.Sprintf("the pattern and the replacement may have %d bytes each", maxPattern)}
	}
	in, err := memfile([]byte(text))
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	var found []Match
	err = p.run(task{Regex: &regexTask{[]byte(pattern), []byte(template), most, min(room, maxTexts)}}, in, maxMatches,
		&found)
	if err != nil {
		return nil, err
	}
	done := 0
	for _, m := range found { // the child is the user's and may say anything
		if m.Start < done || m.End < m.Start || m.End > len(text) {
			return nil, errors.New("a worker found matches outside of the text")
		}
		done = m.End
	}
	return found, nil
}

func (t *regexTask) match(in io.Reader) (found []Match, err error) {
	expression, err := regexp.Compile(string(t.Pattern))
	if err != nil {
		return nil, err
	}
	if err := checkTemplate(expression, string(t.Template)); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	for _, at := range expression.FindAllSubmatchIndex(text, t.Most+1) {
		m := Match{Start: at[0], End: at[1], Text: expression.Expand(nil, t.Template, text, at)}
		if t.Room -= len(m.Text); t.Room < 0 {
			return nil, errors.New("the replacements are too large")
		}
		found = append(found, m)
	}
	return found, nil
}

// reference matches the references to groups of [regexp.Regexp.Expand].
const reference = `\$(?:\$|([\pL\p{Nd}_]+)|\{([\pL\p{Nd}_]+)\})`

// checkTemplate refuses a template that names a group which the pattern does not have:
// Expand would put nothing in its place.
func checkTemplate(expression *regexp.Regexp, template string) error {
	for _, m := range regexp.MustCompile(reference).FindAllStringSubmatch(template, -1) {
		group := m[1] + m[2]
		if group == "" || expression.SubexpIndex(group) >= 0 {
			continue
		}
		if n, err := strconv.Atoi(group); err == nil && n <= expression.NumSubexp() {
			continue
		}
		return fmt.Errorf("the replacement names the group %q, which the pattern does not have: write ${1}a for group 1 before a letter, and $$ for a dollar sign", group)
	}
	return nil
}
