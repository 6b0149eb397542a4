package docker_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
	"github.com/actiond/actiond/sandbox/drivertest"
)

// TestDriver runs the suite of drivers on an engine whose containers are processes
// of this machine. integration has the same for a real engine.
func TestDriver(t *testing.T) {
	t.Parallel()
	server := drivertest.BuildServer(t)
	work := t.TempDir()
	drivertest.Suite{
		Spec: sandbox.Spec{Image: "debian", WorkDir: work},
		Open: func(t *testing.T) sandbox.Driver {
			t.Helper()
			f := dockertest.New(t)
			f.Start = func(c *dockertest.Container) (func(), error) { return serve(t, server, work, c) }
			return fakeHost(t, f, func(c *docker.Config) { c.Agent, c.ReadyTimeout = onHost{}, 0 })
		},
	}.Run(t)
}

// onHost claims servers that are processes of this machine, which have no mounts.
type onHost struct{ agent.Agent }

func (a onHost) Claim(ctx context.Context, dial sandbox.DialFunc, c sandbox.Claim) error {
	if c.Egress != "" && c.Egress != "unix:/run/actiond-egress/s" {
		return errors.New("another egress proxy: " + c.Egress)
	}
	c.Egress = ""
	return a.Agent.Claim(ctx, dial, c)
}

// serve starts the server of a container, with its command line, as a process whose
// working directory appears in the container.
func serve(t *testing.T, server, work string, c *dockertest.Container) (func(), error) {
	t.Helper()
	socket := filepath.Join(c.RunDir(), "sock")
	if err := errors.Join(os.RemoveAll(socket), os.RemoveAll(c.Root+work), os.MkdirAll(c.Root+filepath.Dir(work), 0o700), os.Symlink(work, c.Root+work)); err != nil {
		return nil, err
	}
	var args []string
	for i := 0; i < len(c.Config.Cmd); i++ {
		switch word := c.Config.Cmd[i]; word {
		case "--username", "--user-id", "--start-fifo": // the user of this test; the engine has read the FIFO
			i++
		case "--state-dir":
			args = append(args, word, filepath.Join(c.Root, "state"))
			i++
		default:
			args = append(args, strings.Replace(word, "unix:/run/actiond/sock", "unix:"+socket, 1))
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), server, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}, nil
}
