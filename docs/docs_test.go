// Package docs_test holds the documents to their own rules: links that resolve, pages that
// a reader reaches, sizes, and llms.txt.
package docs_test

import (
	"html"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// root is the checkout.
var root = os.DirFS("..")

// pages returns the text of each document by its path in the checkout: the Markdown files
// of the top, and those below docs and clients.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range []string{".", "docs", "clients"} {
		err := fs.WalkDir(root, dir, func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && dir == "." && name != ".":
				return fs.SkipDir
			case path.Ext(name) == ".md":
				data, err := fs.ReadFile(root, name)
				all[name] = string(data)
				return err
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

var (
	code    = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	noMark  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors returns what links to headings of a page may name, as GitHub makes it.
func anchors(text string) []string {
	var all []string
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(strings.ToLower(noMark.ReplaceAllString(found[1], "")), " ", "-"))
	}
	return all
}

// links returns the files of the checkout that a page links to. Those that are not there,
// and missing headings, are errors.
func links(t *testing.T, all map[string]string, page string) []string {
	t.Helper()
	var to []string
	for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(all[page], ""), -1) {
		target, anchor, _ := strings.Cut(found[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		file := page
		if target != "" {
			file = path.Join(path.Dir(page), target)
		}
		if _, err := fs.Stat(root, file); err != nil {
			t.Errorf("%s links to %s: %v", page, found[1], err)
			continue
		}
		if text, ok := all[file]; ok && anchor != "" && !slices.Contains(anchors(text), anchor) {
			t.Errorf("%s links to %s, which has no such heading", page, found[1])
		}
		to = append(to, file)
	}
	return to
}

// TestLinks also wants every page to be two steps from README.md: a reader finds what is
// linked.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	next := map[string][]string{}
	for page := range all {
		next[page] = links(t, all, page)
	}
	near := map[string]bool{"README.md": true}
	for range 2 {
		for page := range maps.Clone(near) {
			for _, file := range next[page] {
				near[file] = true
			}
		}
	}
	for page := range all {
		if !near[page] && path.Dir(page) != "docs/decisions" {
			t.Errorf("%s is more than two links away from README.md", page)
		}
	}
}

// TestSizes keeps the pages for newcomers short.
func TestSizes(t *testing.T) {
	t.Parallel()
	guides, sum := 0, 0
	for page, text := range pages(t) {
		most := 48 << 10
		switch path.Dir(page) {
		case "docs/start", "docs/migrate":
			most = 4 << 10
			guides += len(text)
		case "docs/guides":
			most = 8 << 10
			guides += len(text)
		}
		if page == "README.md" {
			most = 5 << 10
		}
		if len(text) > most {
			t.Errorf("%s has %d bytes, more than %d", page, len(text), most)
		}
		if dir := path.Dir(page); path.Dir(dir) == "docs" && dir != "docs/decisions" {
			sum += len(text)
		}
	}
	if sum > 370<<10 {
		t.Errorf("the pages for users have %d bytes, more than %d: shorten or remove one", sum, 370<<10)
	}
	if guides > 80<<10 {
		t.Errorf("the pages for newcomers have %d bytes", guides)
	}
}

// TestIndex holds llms.txt to the pages: what each is for, in the words of its second
// paragraph. UPDATE=1 writes it.
func TestIndex(t *testing.T) {
	t.Parallel()
	all := pages(t)
	var b strings.Builder
	first := func(page string) string {
		_, rest, _ := strings.Cut(all[page], "\n\n")
		paragraph, _, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
		sentence, _, _ := strings.Cut(strings.ReplaceAll(paragraph, "\n", " ")+" ", ". ")
		sentence = link.ReplaceAllString(sentence, "]")
		return strings.NewReplacer("[", "", "]", "", "**", "").Replace(strings.TrimSuffix(strings.TrimSpace(sentence), ".")) + "."
	}
	b.WriteString("# Actiond\n\n> " + first("README.md") + "\n")
	for _, part := range []struct{ title, dir string }{
		{"Start", "docs/start"}, {"Guides", "docs/guides"}, {"From other systems", "docs/migrate"}, {"Reference", "docs/reference"},
	} {
		b.WriteString("\n## " + part.title + "\n\n")
		for _, page := range slices.Sorted(maps.Keys(all)) {
			if path.Dir(page) == part.dir {
				title, _, _ := strings.Cut(strings.TrimPrefix(all[page], "# "), "\n")
				b.WriteString("- [" + title + "](" + page + "): " + first(page) + "\n")
			}
		}
	}
	if os.Getenv("UPDATE") != "" {
		testhelp.WriteFile(t, "../llms.txt", b.String(), 0o644)
	}
	if got, err := fs.ReadFile(root, "llms.txt"); err != nil || string(got) != b.String() {
		t.Errorf("llms.txt is stale: run 'make update' (%v)", err)
	}
}

// TestRecording wants the terminal of README.md to show its commands: 'make record' writes it.
func TestRecording(t *testing.T) {
	t.Parallel()
	data, err := fs.ReadFile(root, "docs/terminal.svg")
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	for _, line := range regexp.MustCompile(`<text class="c"[^>]*>([^<]*)`).FindAllStringSubmatch(string(data), -1) {
		text := html.UnescapeString(line[1])
		if strings.HasPrefix(text, "$ ") {
			text = "\n" + text
		}
		shown.WriteString(text)
	}
	want := regexp.MustCompile(`(?m)^\$ .*$`).FindAllString(pages(t)["README.md"], -1)
	if len(want) == 0 || shown.String() != "\n"+strings.Join(want, "\n") {
		t.Errorf("the recording is stale, run 'make record': got%s\nwant\n%s", shown.String(), strings.Join(want, "\n"))
	}
	if len(data) > 8<<10 {
		t.Errorf("docs/terminal.svg has %d bytes", len(data))
	}
}

// TestErrors wants the texts of troubleshooting.md to be those of the programs, in order.
func TestErrors(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(root, name)
		source.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	const page = "docs/guides/troubleshooting.md"
	text := pages(t)[page]
	for part := range strings.SplitSeq(text, "\n## ") {
		var before string
		for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(part, -1) {
			said := strings.TrimSuffix(row[1], "…")
			if !strings.Contains(source.String(), said) {
				t.Errorf("%s: no program says %q", page, said)
			}
			if order := strings.ToLower(said); order < before {
				t.Errorf("%s: %q is not in its place", page, said)
			} else {
				before = order
			}
		}
	}
}
