package executor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/search"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/lazyregexp"
)

// The bounds of a search's answer: those of the tools that the dialects come
// from, and a bound on the text that a model can take.
const (
	maxFound   = 100
	maxListed  = 500
	maxLimit   = 10_000
	maxFindout = 100_000 // bytes
)

// newSearcher returns a searcher with the user's rights.
func newSearcher(user *identity.User) *search.Searcher {
	ripgrep, _ := exec.LookPath("rg")
	return search.New(search.Config{User: user, Ripgrep: ripgrep})
}

// glob finds files. It never waits for a shell.
func (e *Executor) glob(ctx context.Context, a api.GlobAction, req api.Request) (api.Observation, error) {
	ctx, done := searchTime(ctx, req)
	defer done()
	files, err := e.searcher.Glob(ctx, search.GlobQuery{
		Dir: e.workingDir(req.Session), Path: a.Path, Pattern: a.Pattern,
		IgnoreCase: a.IgnoreCase, NoIgnore: a.NoIgnore, Limit: maxFound,
	})
	if err != nil {
		return searchFailed(err)
	}
	o := api.SearchObservation{
		Action: a.Kind(), Path: files.Dir, Count: len(files.Paths), Truncated: files.Cut || files.Total > len(files.Paths),
	}
	if o.Count > 0 {
		o.Files = files.Paths
	}
	o.Content = strings.Join(files.Paths, "\n")
	if a.Dialect == api.DialectOpenHandsV1 && o.Count > 0 {
		o.Content = fmt.Sprintf("Found %d file(s) matching pattern '%s' in '%s':\n%s", o.Count, a.Pattern, o.Path, o.Content)
	}
	switch {
	case files.Cut:
		o.Content += searchCut
	case files.Total == 0:
		o.Content = fmt.Sprintf("No files in %s match %q.", files.Dir, a.Pattern)
		if files.IsDir {
			o.Content += fmt.Sprintf("\n[It is a directory: the files below it match %q.]", strings.TrimSuffix(a.Pattern, "/")+"/**")
		} else if strings.ContainsRune(a.Pattern, '[') {
			o.Content += "\n[Brackets mean one of the characters in them: write \\[ and \\] for brackets in a name.]"
		}
	case o.Truncated:
		o.Content += fmt.Sprintf("\n[These are the %d newest of %d files. Use a narrower pattern to see others.]", o.Count,
			files.Total)
	}
	return o, nil
}

// searchTime bounds a search by the request's limit, at whose end it answers
// with the matches so far.
func searchTime(ctx context.Context, req api.Request) (context.Context, context.CancelFunc) {
	if timeout, ok := limit(req); ok {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithCancel(ctx)
}

// searchCut says that a search did not come to its end.
const searchCut = "\n[The search was ended by its limits: there may be more. Search fewer files, or with a longer timeout.]"

// searchFailed is the answer where nothing was searched.
func searchFailed(err error) (api.Observation, error) {
	if wrong, ok := errors.AsType[*search.Error](err); ok {
		return api.ErrorObservation{Content: wrong.Text, Code: wrong.Code}, nil
	}
	return nil, err
}

// grep finds lines of files. It never waits for a shell.
func (e *Executor) grep(ctx context.Context, a api.GrepAction, req api.Request) (api.Observation, error) {
	ctx, done := searchTime(ctx, req)
	defer done()
	limit := maxFound
	if a.Limit > 0 {
		limit = min(a.Limit, maxLimit)
	}
	m, err := e.searcher.Grep(ctx, search.GrepQuery{
		Dir: e.workingDir(req.Session), Path: a.Path, Pattern: a.Pattern, Fixed: a.Fixed, Include: a.Include, Exclude: a.Exclude,
		IgnoreCase: a.IgnoreCase, NoIgnore: a.NoIgnore, NamesOnly: a.NamesOnly,
		Limit: limit, FileLimit: a.FileLimit, Around: around(a.Before, a.After),
	})
	if err != nil {
		return searchFailed(err)
	}
	o := api.SearchObservation{Action: a.Kind(), Path: m.Dir, Count: m.Count, Truncated: m.More || m.Cut}
	var b strings.Builder
	for _, f := range m.Files {
		if b.Len() > maxFindout {
			o.Truncated = true
			break
		}
		writeFileLines(&b, f, a.NamesOnly)
		if a.NamesOnly {
			o.Files = append(o.Files, f.Path)
		}
	}
	o.Content = strings.Trim(b.String(), "\n")
	if a.Dialect == api.DialectOpenHandsV1 && o.Count > 0 {
		filter := ""
		if a.Include != "" {
			filter = fmt.Sprintf(" (filtered by '%s')", a.Include)
		}
		o.Content = fmt.Sprintf("Found %d file(s) containing pattern '%s' in '%s'%s:\n%s", o.Count, a.Pattern, o.Path, filter, o.Content)
	}
	switch {
	case m.Cut:
		o.Content += searchCut
	case m.Count == 0:
		o.Content = fmt.Sprintf("Nothing in %s matches %q.", m.Dir, a.Pattern)
		if m.Never {
			o.Content += "\n[The search goes line by line: a pattern with a line end, such as \\n, matches nothing.]"
		} else if oldSyntax().MatchString(a.Pattern) && !a.Fixed {
			o.Content += "\n[The pattern is in RE2's syntax: write | for alternatives, ( ) for groups, \\b at the ends of words; with a backslash they are characters.]"
		}
	case o.Truncated:
		o.Content += fmt.Sprintf("\n[These are the first %d: there may be more. Use a narrower pattern or a smaller directory.]", m.Count)
	}
	if m.NotText {
		o.Content += "\n[The file is not text: at most its part before the first zero byte was searched.]"
	}
	if m.Long > 0 {
		o.Content += fmt.Sprintf("\n[Only the first MiB was searched of %d longer lines.]", m.Long)
	}
	return o, nil
}

// oldSyntax matches what means alternatives, groups and words in grep's basic syntax.
var oldSyntax = lazyregexp.New(`\\[|(<>]`)

// writeFileLines writes a file's lines as Gemini's tool does, or its name.
func writeFileLines(b *strings.Builder, f search.FileLines, nameOnly bool) {
	if nameOnly {
		b.WriteString(f.Path + "\n")
		return
	}
	fmt.Fprintf(b, "\nFile: %s\n", f.Path)
	last := 0
	for _, l := range f.Lines {
		mark := ':'
		if !l.Match {
			mark = '-'
		}
		if gap := last > 0 && l.Number > last+1; gap && mark == '-' {
			b.WriteString("---\n")
		}
		fmt.Fprintf(b, "L%d%c %s\n", l.Number, mark, l.Text)
		last = l.Number
	}
}

// around gives few matches lines around them where none are asked for: it saves
// the model the next call.
func around(before, after *int) func(matches int) (int, int) {
	const most = 1000
	if before != nil || after != nil {
		b, a := 0, 0
		if before != nil {
			b = min(*before, most)
		}
		if after != nil {
			a = min(*after, most)
		}
		return func(int) (int, int) { return b, a }
	}
	return func(matches int) (int, int) {
		switch {
		case matches == 1:
			return 50, 50
		case matches <= 3:
			return 15, 15
		}
		return 0, 0
	}
}

// names returns the names in a directory, with a slash behind those of
// directories, for the completion of paths.
func (e *Executor) names(ctx context.Context, dir, path string) ([]string, error) {
	l, err := e.searcher.List(ctx, dir, path, nil, true, maxListed)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(l.Entries))
	for i, entry := range l.Entries {
		if names[i] = entry.Name; entry.Dir {
			names[i] += "/"
		}
	}
	return names, nil
}

// writeEntry writes the line of an entry in a directory.
func writeEntry(b *strings.Builder, dir string, entry search.Entry) {
	switch {
	case entry.Dir:
		fmt.Fprintf(b, "[DIR] %s%s\n", dir, entry.Name)
	case entry.Link != "":
		fmt.Fprintf(b, "%s%s -> %s\n", dir, entry.Name, entry.Link)
	default:
		fmt.Fprintf(b, "%s%s (%d bytes)\n", dir, entry.Name, entry.Size)
	}
}

// list lists a directory. It never waits for a shell.
func (e *Executor) list(ctx context.Context, a api.ListAction, req api.Request) (api.Observation, error) {
	l, err := e.searcher.List(ctx, e.workingDir(req.Session), a.Path, a.Ignore, a.NoIgnore, maxListed)
	if err != nil {
		return searchFailed(err)
	}
	var b strings.Builder
	for _, entry := range slices.Clone(l.Entries) {
		writeEntry(&b, "", entry)
		if !a.Recursive || !entry.Dir {
			continue
		}
		if len(l.Entries) >= maxListed {
			l.Cut = true
			continue
		}
		below, err := e.searcher.List(ctx, l.Dir, entry.Name, a.Ignore, a.NoIgnore, maxListed-len(l.Entries))
		if err != nil {
			fmt.Fprintf(&b, "(%s cannot be listed)\n", entry.Name)
			continue
		}
		for _, inner := range below.Entries {
			writeEntry(&b, entry.Name+"/", inner)
		}
		l.Entries, l.Total = append(l.Entries, below.Entries...), l.Total+below.Total
		l.Ignored, l.Cut = l.Ignored+below.Ignored, l.Cut || below.Cut
	}
	if l.Total == 0 {
		fmt.Fprintf(&b, "The directory %s is empty.\n", l.Dir)
	}
	if more := l.Total - len(l.Entries); more > 0 {
		fmt.Fprintf(&b, "[%d more are not shown.]\n", more)
	}
	if l.Cut {
		b.WriteString(strings.TrimPrefix(searchCut, "\n") + "\n")
	}
	if l.Ignored > 0 {
		fmt.Fprintf(&b, "(%d ignored)\n", l.Ignored)
	}
	return api.SearchObservation{
		Action: a.Kind(), Path: l.Dir, Count: len(l.Entries), Truncated: l.Cut || l.Total > len(l.Entries),
		Content: strings.ToValidUTF8(strings.TrimSuffix(b.String(), "\n"), "�"),
	}, nil
}
