package platform

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// parseSpec is the specification that flags ask for.
func parseSpec(t *testing.T, env map[string]string, args ...string) (sandbox.Spec, error) {
	t.Helper()
	c := &cobra.Command{}
	flags := AddSpec(c)
	if err := c.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	p := &Platform{Streams: output.Streams{Getenv: func(name string) string { return env[name] }}}
	return flags.Spec(p, "image")
}

func TestSpec(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "env")
	testhelp.WriteFile(t, file, "# comment\n\n  A=from file\r\nB=x=y # z\nHERE\nABSENT\nC=\n", 0o600)
	bare := sandbox.Spec{Image: "image", Env: map[string]string{}, Labels: map[string]string{}, NodeSelector: map[string]string{}}
	tests := []struct {
		args string
		want func(s *sandbox.Spec)
	}{
		{"", func(*sandbox.Spec) {}},
		{"--name n --key k --owner o -w /w --network none --runtime runsc --read-only --pull never", func(s *sandbox.Spec) {
			s.Name, s.Key, s.Owner, s.WorkDir, s.Network, s.Runtime, s.ReadOnly, s.Pull = "n", "k", "o", "/w", "none", "runsc", true, "never"
		}},
		{"-m 512m --cpus 0.5 --pids-limit 99 --nofile 999 --ttl 2h --idle 90s", func(s *sandbox.Spec) {
			s.Memory, s.CPUs, s.Pids, s.OpenFiles, s.TTL, s.Idle = 512<<20, 0.5, 99, 999, 2*time.Hour, 90*time.Second
		}},
		{"-v /a:/b -v ./c:/d:ro -v .:/e:rw", func(s *sandbox.Spec) {
			s.Mounts = []sandbox.Mount{
				{Source: "/a", Target: "/b"},
				{Source: filepath.Join(here, "c"), Target: "/d", ReadOnly: true},
				{Source: here, Target: "/e"},
			}
		}},
		{"-l a=b -l c -l d=e=f", func(s *sandbox.Spec) { s.Labels = map[string]string{"a": "b", "c": "", "d": "e=f"} }},
		{"-e A=1 -e HERE -e ABSENT -e B=", func(s *sandbox.Spec) { s.Env = map[string]string{"A": "1", "HERE": "value", "B": ""} }},
		{"--env-file " + file + " -e A=flag", func(s *sandbox.Spec) {
			s.Env = map[string]string{"A": "flag", "B": "x=y # z", "HERE": "value", "C": ""}
		}},
		{"--image-pull-secret a --image-pull-secret b --node-selector disk=ssd --toleration gpu:NoSchedule", func(s *sandbox.Spec) {
			s.PullSecrets, s.NodeSelector, s.Tolerations = []string{"a", "b"}, map[string]string{"disk": "ssd"}, []string{"gpu:NoSchedule"}
		}},
		{"--gpus all", func(s *sandbox.Spec) { s.GPUs.Count = sandbox.AllGPUs }},
		{"--gpus 2", func(s *sandbox.Spec) { s.GPUs.Count = 2 }},
		{"--gpus device=GPU-a,x.com/gpu=0", func(s *sandbox.Spec) { s.GPUs.Devices = []string{"GPU-a", "x.com/gpu=0"} }},
		{"--userns private", func(s *sandbox.Spec) { s.UserNamespace = true }},
		{"--userns host", func(*sandbox.Spec) {}},
		{"--user root", func(s *sandbox.Spec) { s.User = "root" }},
		{"--user 0", func(s *sandbox.Spec) { s.User = "root" }},
		{"--user root:0", func(s *sandbox.Spec) { s.User = "root" }},
		{"--user me:1234", func(s *sandbox.Spec) { s.User, s.UserID = "me", 1234 }},
		{"--security-opt seccomp=unconfined --security-opt apparmor=x", func(s *sandbox.Spec) {
			s.SecurityOpts = []string{"seccomp=unconfined", "apparmor=x"}
		}},
		{"--server-flag --soft-timeout=3s --server-flag=--no-enable-browser", func(s *sandbox.Spec) {
			s.Flags = []string{"--soft-timeout=3s", "--no-enable-browser"}
		}},
		{"--changes undo --track /src --server-flag=--soft-timeout=3s", func(s *sandbox.Spec) {
			s.Flags = []string{"--soft-timeout=3s", "--changes=undo", "--track=/src"}
		}},
	}
	for _, tt := range tests {
		want := bare
		tt.want(&want)
		got, err := parseSpec(t, map[string]string{"HERE": "value"}, strings.Fields(tt.args)...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v\nwant %+v", tt.args, got, err, want)
		}
	}
}

func TestSpecRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, want string }{
		{"-v volume:/x", `--volume: "volume:/x": the engine's named volumes cannot be mounted; for a directory here write ./volume`},
		{"-v /x", `--volume: "/x": must be DIR:PATH or DIR:PATH:ro`},
		{"-v /x:/y:z", `--volume: "/x:/y:z": after the path there may be ro or rw`},
		{"-l =b", `--label: "=b" has no name`},
		{"--changes all", `--changes "all": must be undo, facts or off`},
		{"--userns auto", `--userns "auto": must be host or private`},
		{"--node-selector =b", `--node-selector: "=b" has no name`},
		{"-e =secret", `--env: a variable begins with its name: NAME=VALUE, got name ""`},
		{"--env-file /no/such", "--env-file: open /no/such: no such file or directory"},
		{"--user 1000", `--user: "1000" is a number: an account needs a name, such as agent:1000`},
		{"--user nobody:0", `--user: "nobody:0": the id 0 is root's: write root, or another id`},
		{"--user a:b", `--user: "a:b": must be NAME or NAME:UID`},
		{"--cpus many", `--cpus: "many" is not a number of processors`},
		{"--cpus 0", `--cpus: "0" is not a number of processors`},
		{"--cpus NaN", `--cpus: "NaN" is not a number of processors`},
	}
	for _, tt := range tests {
		if _, err := parseSpec(t, nil, strings.Fields(tt.args)...); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v\nwant %s", tt.args, err, tt.want)
		}
	}
}
