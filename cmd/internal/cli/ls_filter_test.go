package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func TestLsChooses(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "one", "--owner", "me", "--label", "team=a")
	m.ok("create", "--name", "two", "--owner", "you")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--filter", "owner=me", "--format", "{{.Name}} {{.Owner}}"}, "one me\n"},
		{[]string{"-a", "--filter", "label=team", "--format", "{{.Name}}"}, "one\n"},
		{[]string{"--filter", "owner=me", "--filter", "name=two", "-q"}, ""},
	} {
		if got := m.ok(append([]string{"ls"}, tt.args...)...); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, tt := range []struct{ flag, value, stderr string }{
		{"--filter", "x=y", "names are id, name, owner, image, state, pool, label\n"},
		{"--filter", "state=nonsense", "states are pending creating starting ready busy idle paused stopped unknown gone\n"},
		{"--format", "{{", "--format: template: "},
		{"--format", "{{.Nope}}", "; the fields are .ID, .Name, .Owner, "},
	} {
		code, stdout, stderr := m.run("ls", tt.flag, tt.value)
		if code != command.ExitUsage || stdout != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s %s: exit code %d, %q, %q", tt.flag, tt.value, code, stdout, stderr)
		}
	}
}

// A field of the gateway's sandboxes has the same name and form here, and --format
// has the names of JSON.
func TestMembersOfASandbox(t *testing.T) {
	t.Parallel()
	shared := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[sandboxInfo]()) {
		member, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.EqualFold(strings.ReplaceAll(member, "_", ""), f.Name) {
			t.Errorf(".%s is %q in JSON", f.Name, member)
		}
		other, ok := reflect.TypeFor[api.Sandbox]().FieldByName(f.Name)
		if !ok {
			continue
		}
		shared++
		if f.Tag != other.Tag || f.Type.Kind() != other.Type.Kind() {
			t.Errorf(".%s is %s %s, at the gateway %s %s", f.Name, f.Type, f.Tag, other.Type, other.Tag)
		}
	}
	if shared != 11 {
		t.Errorf("%d members are those of the gateway", shared)
	}
	got, err := json.Marshal(describe(&sandbox.Sandbox{IdleLimit: time.Millisecond}))
	want := `{"id":"","name":"","owner":"","image":"","state":"","created":"0001-01-01T00:00:00Z","deadline":null,"idle_limit_seconds":1,"user":"","labels":{}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

// crowd is a cluster of many sandboxes that do not answer.
type crowd struct {
	sandbox.Driver // what else it can do is not called

	dialed, keys, lists atomic.Int32
}

func (c *crowd) List(context.Context) ([]*sandbox.Sandbox, error) {
	all := make([]*sandbox.Sandbox, 100)
	for i := range all {
		all[i] = &sandbox.Sandbox{ID: fmt.Sprintf("%012d", i), Name: fmt.Sprint("n", i), Owner: fmt.Sprint("o", i%4), State: sandbox.Ready, Access: c}
	}
	all[0].State = sandbox.Gone
	return all, nil
}

func (*crowd) Close() error { return nil }

func (c *crowd) ReadKeys(context.Context, []*sandbox.Sandbox) error {
	c.lists.Add(1)
	return nil
}

func (c *crowd) Key() (string, error) {
	c.keys.Add(1)
	return "key", nil
}

func (c *crowd) Dial(context.Context) (net.Conn, error) {
	c.dialed.Add(1)
	return nil, errors.New("no answer")
}

// Only those servers are asked whose answer may be printed or chosen by, and the keys of
// many are read at once.
func TestLsAsksFew(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct{ rows, dialed, lists int32 }{
		"ls":                                    {101, 99, 1},
		"ls -q":                                 {100, 0, 0},
		"ls -q --filter owner=o1":               {25, 0, 0},
		"ls --filter owner=o1":                  {26, 25, 1},
		"ls --filter name=n7":                   {2, 1, 0},
		"ls --filter owner=nobody":              {1, 0, 0},
		"ls -q --filter state=ready":            {99, 99, 1},
		"ls -q --filter state=gone":             {1, 99, 1},
		"ls --format {{.ID}}_{{.Owner}}":        {100, 0, 0},
		"ls --format {{.ID}}_{{.State}}":        {100, 99, 1},
		"ls --format {{.}} --filter owner=o2":   {25, 25, 1},
		"ls --format x{{.Name}} --filter id=no": {0, 0, 0},
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			c := &crowd{}
			open := func(platform.Cluster) (sandbox.Driver, error) { return c, nil }
			code, stdout, stderr := inProcessWith(t.Context(), open, map[string]string{"ACTIOND_ON": "kubernetes"}, strings.Fields(line)...)
			if got := int32(strings.Count(stdout, "\n")); code != 0 || got != want.rows || c.dialed.Load() != want.dialed || c.lists.Load() != want.lists {
				t.Errorf("exit code %d, %d rows, %d servers asked, %d lists of keys; want %+v\n%s", code, got, c.dialed.Load(), c.lists.Load(), want, stderr)
			}
		})
	}
}

// The platform may stand before the command or after it, or in the environment.
func TestPlatform(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	for _, tt := range []struct {
		on   string
		args []string
	}{
		{"", []string{"--on", "local", "ls", "--state-dir", dir}},
		{"", []string{"ls", "--on", "local", "--state-dir", dir}},
		{"", []string{"ls", "--on=local", "--on=local", "--state-dir", dir}},
		{"local", []string{"ls", "--state-dir", dir}},
		{"docker", []string{"ls", "--on=local", "--state-dir", dir}},
		{"moon", []string{"ls", "--on", "local", "--state-dir", dir}},
	} {
		code, stdout, stderr := inProcess(t.Context(), map[string]string{"ACTIOND_ON": tt.on}, tt.args...)
		if code != 0 || !strings.HasPrefix(stdout, "SANDBOX") {
			t.Errorf("%s, %q: exit code %d, %q, %q", tt.on, tt.args, code, stdout, stderr)
		}
	}
	if code, _, stderr := inProcess(t.Context(), map[string]string{"ACTIOND_ON": "moon"}, "ls"); code != command.ExitUsage || !strings.Contains(stderr, "ACTIOND_ON \"moon\"") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
