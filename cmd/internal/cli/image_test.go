package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/internal/shellquote"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestImage builds with a docker command that has only some images and pulls
// only some, and writes down what it is asked to build.
func TestImage(t *testing.T) {
	t.Parallel()
	dockerfile := filepath.Join(t.TempDir(), "Dockerfile")
	write(t, dockerfile, "FROM base\n")
	tests := []struct {
		name              string
		args              []string
		has, pulls        string // images, with blanks around
		debootstrap, down bool
		code              int
		built             string
		stderr            string // part of it
		stdout            string
	}{
		{
			name: "base on the host", has: " debian:bookworm-slim ", stdout: "actiond:dev\n",
			built: "build --build-arg BASE=debian:bookworm-slim --tag actiond:dev -\nFROM base\n", stderr: "note: base image: debian:bookworm-slim; it is on this host\n",
		},
		{
			name: "the Dockerfile of this version", args: []string{"-f", ""}, has: " debian:bookworm-slim ", stdout: "actiond:dev\n",
			built: "build --build-arg BASE=debian:bookworm-slim --tag actiond:dev -\n" + string(testhelp.ReadFile(t, "../../../Dockerfile")),
		},
		{
			name: "base pulled", args: []string{"--base", "ubuntu:24.04", "-t", "x:1"}, pulls: " ubuntu:24.04 ", stdout: "x:1\n",
			built: "build --build-arg BASE=ubuntu:24.04 --tag x:1 -\nFROM base\n", stderr: "note: base image: ubuntu:24.04; it was pulled\n",
		},
		{
			name: "no registry, base made earlier", has: " actiond-base:bookworm ", stdout: "actiond:dev\n",
			built:  "build --build-arg BASE=actiond-base:bookworm --tag actiond:dev -\nFROM base\n",
			stderr: "note: base image: actiond-base:bookworm; it was made here of Debian's packages, since debian:bookworm-slim cannot be pulled\n",
		},
		{
			name: "no registry, base made now", debootstrap: true, stdout: "actiond:dev\n", // what takes minutes is announced
			built: "build --build-arg BASE=actiond-base:bookworm --tag actiond:dev -\nFROM base\n",
			stderr: "note: debian:bookworm-slim cannot be pulled: making actiond-base:bookworm of Debian's packages, once, which takes minutes\n" +
				"note: base image: actiond-base:bookworm; it was made here of Debian's packages, since debian:bookworm-slim cannot be pulled\n" +
				"note: building actiond:dev, which takes minutes the first time\n",
		},
		{
			name: "another base that cannot be had", args: []string{"--base", "ubuntu:24.04"}, has: " actiond-base:bookworm ", code: command.ExitNotFound,
			stderr: "ubuntu:24.04 is not on this host and cannot be pulled: give another --base",
		},
		{name: "no debootstrap", code: command.ExitFailed, stderr: "debootstrap is needed: apt-get install debootstrap"},
		{name: "no engine", down: true, code: command.ExitUnavailable, stderr: "the Docker engine cannot be reached"},
		{name: "no Dockerfile", args: []string{"-f", "/no/such"}, code: command.ExitFailed, stderr: "reading the Dockerfile: open /no/such"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.debootstrap && os.Geteuid() != 0 {
				t.Skip("debootstrap needs root")
			}
			path := toolbox(t, "sh", "cat", "tar")
			if tt.debootstrap {
				testhelp.WriteProgram(t, filepath.Join(path, "debootstrap"), "#!/bin/sh\n")
			}
			built := filepath.Join(t.TempDir(), "built")
			testhelp.WriteProgram(t, filepath.Join(path, "docker"), `#!/bin/sh
case "$1" in
version) `+map[bool]string{true: "echo no engine >&2; exit 1", false: "echo 1"}[tt.down]+` ;;
image) case "`+tt.has+`" in *" $3 "*) ;; *) exit 1 ;; esac ;;
pull) case "`+tt.pulls+`" in *" $2 "*) ;; *) echo no registry >&2; exit 1 ;; esac ;;
build) echo "$@" >`+shellquote.Word(built)+`; cat >>`+shellquote.Word(built)+` ;;
esac
`)
			cmd := exec.CommandContext(t.Context(), filepath.Join(programs(t), "runtimectl"), append([]string{"image", "-f", dockerfile}, tt.args...)...)
			cmd.Env = []string{"PATH=" + path}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code || out.String() != tt.stdout || !strings.Contains(errs.String(), tt.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q\nwant %d, %q, %q", code, out.String(), errs.String(), tt.code, tt.stdout, tt.stderr)
			}
			if got, _ := os.ReadFile(built); string(got) != tt.built {
				t.Errorf("built %q\nwant %q", got, tt.built)
			}
		})
	}
}
