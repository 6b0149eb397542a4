package cmd_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCitations requires that each document that a Go comment cites by section
// is in the repository and has that section. RFCs are public.
func TestCitations(t *testing.T) {
	t.Parallel()
	root := os.DirFS("..")
	cited := regexp.MustCompile(`(RFC \d+|\S+), sections? (\d[\d.]*\d|\d)(?: and (\d[\d.]*\d|\d))?`)
	section := regexp.MustCompile(`\bsections? \d`)
	comment := regexp.MustCompile(`\n[\t ]*// ?`)
	headings := map[string]map[string]bool{}
	count := 0
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || path == "cmd/citations_test.go" {
			return err
		}
		data, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		text := comment.ReplaceAllString(string(data), " ")
		found := cited.FindAllStringSubmatch(text, -1)
		if all := section.FindAllString(text, -1); len(all) != len(found) {
			t.Errorf("%s: %d of %d sections are cited without their document", path, len(all)-len(found), len(all))
		}
		for _, citation := range found {
			document := strings.TrimLeft(citation[1], "(")
			if strings.HasPrefix(document, "RFC ") {
				continue
			}
			if headings[document] == nil {
				if headings[document], err = sectionsOf(root, document); err != nil {
					t.Errorf("%s cites %s: %v", path, document, err)
					continue
				}
			}
			for _, number := range citation[2:] {
				if number != "" && !headings[document][number] {
					t.Errorf("%s cites section %s of %s, which does not exist", path, number, document)
				}
				count++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 10 {
		t.Errorf("found %d citations; the expressions no longer fit the comments", count)
	}
}

// sectionsOf returns the numbers of the headings of a document.
func sectionsOf(root fs.FS, document string) (map[string]bool, error) {
	data, err := fs.ReadFile(root, document)
	if err != nil {
		return nil, err
	}
	numbers := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (\d[\d.]*)`).FindAllStringSubmatch(string(data), -1) {
		numbers[strings.TrimRight(heading[1], ".")] = true
	}
	return numbers, nil
}
