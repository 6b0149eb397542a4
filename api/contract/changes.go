package contract

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/actiond/actiond/api"
)

// DoWithChanges runs one action and returns its changes of the workspace. It is a method
// of a client.
type DoWithChanges func(ctx context.Context, req api.Request) (api.Observation, *api.Changes, error)

// Changes tests the changes of the workspace that actions report, as [Suite] tests actions. dir is an empty directory,
// and the workspace. The suite uses the sessions "changes" and "other".
func Changes(t *testing.T, do DoWithChanges, dir string) {
	t.Helper()
	s := &changesSuite{do: do, dir: dir}
	s.sh(t, "cd "+dir) // the workspace is known from here on
	t.Run("commands", s.commands)
	t.Run("other actions", s.others)
	t.Run("ignored", s.ignored)
	t.Run("names", s.names)
	t.Run("cells", s.cells)
	t.Run("background", s.background)
	t.Run("two sessions", s.sessions)
	t.Run("many", s.many)
}

type changesSuite struct {
	do  DoWithChanges
	dir string
}

func (s *changesSuite) act(t *testing.T, session string, a api.Action) *api.Changes {
	t.Helper()
	o, c, err := s.do(t.Context(), api.Request{Action: a, Session: session, Changes: api.ChangesFacts, Timeout: new(60.0)})
	if err != nil || c == nil {
		t.Fatalf("%+v: got %+v, %v", a, c, err)
	}
	if outcome, _ := api.OutcomeOf(o); outcome != api.OutcomeSucceeded {
		t.Errorf("%+v: got %s: %s", a, outcome, api.Content(o))
	}
	return c
}

func (s *changesSuite) sh(t *testing.T, command string) *api.Changes {
	t.Helper()
	return s.act(t, "changes", api.RunAction{Command: command, Blocking: true})
}

// describe describes changes in one line.
func describe(c *api.Changes) string {
	var all []string
	for _, p := range c.Paths {
		path, from := p.Names()
		if from != "" {
			path = from + " -> " + path
		}
		all = append(all, p.Op+" "+path)
	}
	for _, group := range slices.Sorted(maps.Keys(c.Ignored)) {
		all = append(all, fmt.Sprintf("%s: %d", group, c.Ignored[group]))
	}
	if !c.Exact {
		all = append(all, "inexact: "+c.Why)
	}
	if len(c.By) != 1 || c.By[0] != c.Action {
		all = append(all, fmt.Sprintf("by %v during %v", len(c.By), len(c.During)))
	}
	return strings.Join(all, ", ")
}

func (s *changesSuite) want(t *testing.T, c *api.Changes, want string) {
	t.Helper()
	if got := describe(c); got != want {
		t.Errorf("got  %s\nwant %s: %+v", got, want, c)
	}
}

func (s *changesSuite) commands(t *testing.T) {
	last := s.sh(t, "true")
	s.want(t, last, "")
	for _, step := range [][2]string{
		{"echo 1 > a; mkdir d; echo 2 > d/b", "created a, created d, created d/b"},
		{"echo x > a", "modified a"},
		{"touch -d 2001-01-01 a; echo y > a; touch -d 2001-01-01 a", "modified a"}, // of the same size, with its time put back
		{"mv d e", "renamed d -> e"},
		{"mv a e/a", "renamed a -> e/a"},
		{"chmod 700 e/a", "meta e/a"},
		{"ln -s a e/l", "created e/l"},
		{"ln e/a e/h; echo z >> e/h", "modified e/a, created e/h"},
		{"rm e/l; mkdir e/l", "modified e/l"},
		{"echo > t; rm t", ""},
		{"cat e/a > /dev/null; ls -R > /dev/null", ""},
		{"rm -r e", "deleted e, deleted e/a, deleted e/b, deleted e/h, deleted e/l"},
	} {
		c := s.sh(t, step[0])
		if got := describe(c); got != step[1] {
			t.Errorf("%s: got  %s\nwant %s", step[0], got, step[1])
		}
		if step[1] == "" != (c.Before == c.After) && step[1] != "" {
			t.Errorf("%s: got the states %s and %s", step[0], c.Before, c.After)
		}
	}
}

func (s *changesSuite) others(t *testing.T) {
	path := s.dir + "/file"
	s.want(t, s.act(t, "", api.WriteAction{Path: path, Content: "one\n"}), "created file")
	old, text := "one", "two"
	s.want(t, s.act(t, "", api.EditAction{Path: path, Command: "str_replace", OldStr: &old, NewStr: &text, ImplSource: "oh_aci"}), "modified file")
	s.want(t, s.act(t, "", api.ReadAction{Path: path}), "")
	s.want(t, s.act(t, "", api.ExecAction{Argv: []string{"sh", "-c", "echo > made"}, Cwd: api.Directory(s.dir)}), "created made")
	s.want(t, s.act(t, "", api.RunAction{Command: "rm made file", IsStatic: true, Cwd: api.Directory(s.dir), Blocking: true}), "deleted file, deleted made")
}

func (s *changesSuite) ignored(t *testing.T) {
	s.want(t, s.sh(t, "printf 'node_modules/\\n*.o\\n' > .gitignore"), "created .gitignore")
	s.want(t, s.sh(t, "mkdir -p node_modules/x .git; touch node_modules/x/a node_modules/b a.o c.c .git/HEAD"), "created c.c, *.o: 1, .git: 2, node_modules: 4")
	s.want(t, s.sh(t, "rm -r .gitignore node_modules .git a.o c.c"), "deleted .gitignore, deleted a.o, deleted c.c, deleted node_modules, deleted node_modules/b, deleted node_modules/x, deleted node_modules/x/a, .git: 2")
}

func (s *changesSuite) names(t *testing.T) {
	s.want(t, s.sh(t, `mkdir $'d\xfe'; touch $'d\xfe/\xff' $'line\nbreak' ' '`), "created  , created d\xfe, created d\xfe/\xff, created line\nbreak")
	s.want(t, s.sh(t, `mv $'d\xfe' ok; rm $'line\nbreak' ' '`), "deleted  , deleted line\nbreak, renamed d\xfe -> ok")
	s.sh(t, "rm -r ok")
}

func (s *changesSuite) cells(t *testing.T) {
	o, c, err := s.do(t.Context(), api.Request{Action: api.IPythonAction{Code: fmt.Sprintf("open(%q, 'w').close()", s.dir+"/cell")}, Session: "changes", Changes: api.ChangesFacts})
	if outcome, _ := api.OutcomeOf(o); err != nil || outcome != api.OutcomeSucceeded {
		t.Skip("there is no kernel")
	}
	s.want(t, c, "created cell")
	s.sh(t, "rm cell")
}

func (s *changesSuite) background(t *testing.T) {
	s.sh(t, "mkfifo go done; (read x < go; echo > made; echo > done; read x < go) &")
	if got := describe(s.sh(t, "echo > go; read x < done")); got != "created made, by 0 during 1" {
		t.Errorf("beside a process: got %s", got)
	}
	s.sh(t, "echo > go; wait")
	s.want(t, s.sh(t, "rm made go done"), "deleted done, deleted go, deleted made")
}

func (s *changesSuite) sessions(t *testing.T) {
	s.sh(t, "mkfifo in out")
	var slow *api.Changes
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, slow, _ = s.do(t.Context(), api.Request{Action: api.RunAction{Command: "cd " + s.dir + "; echo > out; read x < in; echo > a", Blocking: true}, Session: "other", Changes: api.ChangesFacts})
	})
	quick := s.sh(t, "read x < out; echo > b; echo > in")
	waiting.Wait()
	if slow == nil || quick.By != nil || slow.By != nil || !slices.Equal(quick.During, slow.During) || len(quick.During) != 2 {
		t.Errorf("got %+v and %+v", quick, slow)
	}
	// The other shell may still save its state: whether this is alone is not known.
	if c := s.sh(t, "rm in out a b"); c.Counts.Deleted != 4 || !c.Exact {
		t.Errorf("got %+v", c)
	}
	for c := s.sh(t, "echo > alone"); c.By == nil; c = s.sh(t, "echo >> alone") {
		if t.Context().Err() != nil {
			t.Fatalf("the other shell never ends: got %+v", c)
		}
	}
	s.sh(t, "rm alone")
}

func (s *changesSuite) many(t *testing.T) {
	c := s.sh(t, "mkdir many; cd many; i=0; while [ $i -lt 300 ]; do : > $i; i=$((i+1)); done; cd ..")
	if c.Counts.Created != 301 || len(c.Paths) != 200 || !c.Truncated || !c.Exact {
		t.Errorf("got %+v with %d paths, truncated %t", c.Counts, len(c.Paths), c.Truncated)
	}
	if c = s.sh(t, "mv many more"); describe(c) != "renamed many -> more" {
		t.Errorf("got %s", describe(c))
	}
	if c = s.sh(t, "rm -r more"); c.Counts.Deleted != 301 {
		t.Errorf("got %+v", c.Counts)
	}
}
