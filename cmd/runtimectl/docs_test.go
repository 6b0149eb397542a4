package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestDocs holds docs/runtimectl.md to the program: each command has its part
// there, and in it, or among what several have, each of its flags.
func TestDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/runtimectl.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	parts := map[string]string{}
	for _, part := range strings.Split(text, "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		for _, name := range regexp.MustCompile(`[a-z]+`).FindAllString(title, -1) {
			parts[name] += body
		}
	}
	common := parts["sandboxes"] // "Where the sandboxes are"
	also := map[string]string{"run": parts["create"] + parts["exec"], "pool": parts["create"], "serve": parts["create"]}
	p := &program{}
	var visit func(c *cobra.Command, group string)
	visit = func(c *cobra.Command, group string) {
		for _, sub := range c.Commands() {
			name := group
			if name == "" {
				name = sub.Name()
			}
			visit(sub, name)
		}
		if group == "" || group == "completion" {
			return
		}
		if !strings.Contains(text, "`"+group) {
			t.Errorf("there is nothing about %s", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
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
	for code := range 7 {
		if !strings.Contains(text, "| "+string(rune('0'+code))+" |") {
			t.Errorf("there is nothing about exit code %d", code)
		}
	}
}
