//go:build integration

package integration

import (
	"path/filepath"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// TestDockerPythonPath installs and removes interpreters: each command's
// observation has the path that `which` has at that moment, on the file system that
// the engine gives to containers.
func TestDockerPythonPath(t *testing.T) {
	t.Parallel()
	s := create(t, testHost(t), sandbox.Spec{Image: image(t, debianImage)})
	key := keyOf(t, s)
	program := filepath.Join(t.TempDir(), "python")
	testhelp.WriteFile(t, program, "#!/bin/sh\n", 0o755)
	asRoot := func(command string) func() {
		return func() { dockerCLI(t, "exec", "--user", "0", s.Instance, "sh", "-ec", command) }
	}
	agent := func(command string) func() {
		return func() {
			if out, code := run(t, s, command); code != 0 {
				t.Fatalf("%s: exit code %d: %s", command, code, out)
			}
		}
	}
	for _, test := range []struct {
		name string
		do   func()
	}{
		{"nothing is there", func() {}},
		{"a file that cannot be run", asRoot("touch /usr/bin/python")},
		{"that can", asRoot("chmod +x /usr/bin/python")},
		{"one earlier in PATH", asRoot("cp /bin/true /usr/local/bin/python")},
		{"a link in its place", asRoot("cp /bin/true /opt/python3; ln -sf /opt/python3 /usr/local/bin/python")},
		{"whose target goes", asRoot("rm /opt/python3")},
		{"and comes back", asRoot("cp /bin/true /opt/python3")},
		{"the directory is moved", asRoot("mv /usr/local/bin /usr/local/old; mkdir /usr/local/bin")},
		{"and back", asRoot("rmdir /usr/local/bin; mv /usr/local/old /usr/local/bin")},
		{"removed", asRoot("rm /usr/local/bin/python /usr/bin/python")},
		{"the agent's own, in a directory to come", agent("PATH=$HOME/.local/bin:$PATH")},
		{"that is made", agent("mkdir -p ~/.local/bin")},
		{"with a program", agent("cp /bin/true ~/.local/bin/python")},
		{"removed in the background", agent("(rm ~/.local/bin/python &) ; while [ -e ~/.local/bin/python ]; do :; done")},
		{"a relative part", agent("PATH=bin:$PATH; mkdir -p a/bin b/bin; cp /bin/true a/bin/python; cd a")},
		{"from another directory", agent("cd ../b")},
		{"copied into the container", func() { dockerCLI(t, "cp", program, s.Instance+":/usr/local/sbin/python") }},
		{"removed again", asRoot("rm /usr/local/sbin/python")},
	} {
		test.do()
		for range 2 {
			answer, err := runIn(t.Context(), s.Dial, key, "which python")
			if err != nil {
				t.Fatal(err)
			}
			extras, _ := answer["extras"].(map[string]any)
			metadata, _ := extras["metadata"].(map[string]any)
			want, _ := answer["content"].(string)
			if dir, _ := metadata["working_dir"].(string); want != "" && !filepath.IsAbs(want) {
				want = filepath.Join(dir, want)
			}
			if got := metadata["py_interpreter_path"]; got != want {
				t.Errorf("%s: got %q, want %q", test.name, got, want)
			}
		}
	}
}
