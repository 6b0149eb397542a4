package cli

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestDocs holds docs/reference/runtimectl.md, and runtimectl-changes.md, to the program: each command has its part
// there, and in it, or among what several have, each of its flags, with its
// default; and no part has others.
func TestDocs(t *testing.T) {
	t.Parallel()
	text := ""
	for _, page := range []string{"runtimectl", "runtimectl-changes"} {
		data := testhelp.ReadFile(t, "../../../docs/reference/"+page+".md")
		text += string(data)
	}
	parts := map[string]string{}
	for _, part := range strings.Split(text, "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		for _, name := range regexp.MustCompile(`[a-z-]+`).FindAllString(title, -1) {
			parts[name] += body
		}
	}
	common := parts["sandboxes"] // "Where the sandboxes are"
	also := map[string]string{"run": parts["create"] + parts["exec"], "pool": parts["create"], "serve": parts["create"]}
	p := newProgram(output.Streams{})
	flags := map[string]map[string]*pflag.Flag{} // by command and name
	var visit func(c *cobra.Command, group string)
	visit = func(c *cobra.Command, group string) {
		for _, sub := range c.Commands() {
			name := group
			if name == "" {
				name = sub.Name()
			}
			visit(sub, name)
		}
		if group == "" || group == "completion" || c.Hidden {
			return
		}
		if !strings.Contains(text, "`"+group) {
			t.Errorf("there is nothing about %s", c.CommandPath())
		}
		if flags[group] == nil {
			flags[group] = map[string]*pflag.Flag{}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden { // of "docker's words"
				return
			}
			flags[group][f.Name] = f
			for _, place := range []string{parts[group], common, also[group]} {
				if regexp.MustCompile("--" + f.Name + "[ `]").MatchString(place) {
					return
				}
			}
			if f.Name != "help" {
				t.Errorf("there is nothing about --%s of %s", f.Name, c.CommandPath())
			}
		})
	}
	visit(p.root(), "")
	for group, known := range flags {
		checkTables(t, group, parts[group], known)
	}
	for code := range 7 {
		if !strings.Contains(text, "| "+string(rune('0'+code))+" |") {
			t.Errorf("there is nothing about exit code %d", code)
		}
	}
}

var (
	flagName  = regexp.MustCompile("--([a-z-]+)")
	plainWord = regexp.MustCompile("^`[^`]+`|^[0-9]\\w*") // others are sentences
)

// checkTables holds the tables in the part of a command to its flags: those that
// stand there are there, with the default that stands beside them.
func checkTables(t *testing.T, command, part string, flags map[string]*pflag.Flag) {
	t.Helper()
	for line := range strings.Lines(part) {
		cells := strings.Split(line, " | ")
		if len(cells) < 2 || !strings.Contains(cells[0], "`--") {
			continue
		}
		for _, name := range flagName.FindAllStringSubmatch(cells[0], -1) {
			f := flags[name[1]]
			said := strings.Trim(plainWord.FindString(cells[1]), "`")
			switch {
			case f == nil && command == "start": // its part is that of stop too
			case f == nil:
				t.Errorf("%s has no --%s", command, name[1])
			case !strings.Contains(f.Usage+" (default "+f.DefValue+")", said):
				t.Errorf("the default of --%s of %s is not %s: %s (default %s)", name[1], command, said, f.Usage, f.DefValue)
			}
		}
	}
}

// TestPagesCommands holds the pages to the program: each command that they name in a line of text or of
// code exists, with all its flags.
func TestPagesCommands(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"README.md", "SECURITY.md", "docs/start/*.md", "docs/guides/*.md", "docs/migrate/*.md", "docs/reference/*.md"} {
		found, err := filepath.Glob("../../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		pages = append(pages, found...)
	}
	root, checked := newProgram(output.Streams{}).root(), 0
	for _, page := range pages {
		data := testhelp.ReadFile(t, page)
		for _, match := range regexp.MustCompile("(?m)(?:`|^\\$? ?)runtimectl ([^`\n|;#&>()]*)").FindAllStringSubmatch(string(data), -1) {
			ours, _, _ := strings.Cut(match[1]+" ", " -- ") // behind it are the words of another program
			words := strings.Fields(ours)
			command, _, err := root.Find(words)
			if err != nil && words[0] != "COMMAND" {
				t.Errorf("%s: runtimectl %s: %v", page, match[1], err)
			}
			if err != nil || command == root {
				continue
			}
			for _, flag := range regexp.MustCompile(" --([a-z-]+)").FindAllStringSubmatch(ours, -1) {
				checked++
				if command.Flag(flag[1]) == nil && flag[1] != "help" {
					t.Errorf("%s: runtimectl %s: there is no --%s", page, match[1], flag[1])
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d flags were found", checked)
	}
}
