package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/docker/docker/client"
	"github.com/docker/go-units"

	"github.com/actiond/actiond/sandbox"
)

// Examine is [sandbox.Doctor]'s.
func (h *Host) Examine(ctx context.Context) ([]sandbox.Finding, error) {
	info, err := h.Engine(ctx)
	missing := sandbox.Finding{Status: "missing", About: "engine"}
	switch {
	case errors.Is(err, sandbox.ErrUnknown) && errors.Is(err, fs.ErrPermission):
		missing.Text = "you may not use the Docker engine"
		missing.So = "be a member of the group that its socket belongs to (docker), which is as good as being root, or use a rootless engine"
		return []sandbox.Finding{missing}, err
	case errors.Is(err, sandbox.ErrUnknown):
		missing.Text, missing.So = "there is no Docker engine at "+engineAddress(), engineAdvice()
		return []sandbox.Finding{missing}, err
	case err != nil:
		return nil, err
	}
	found := []sandbox.Finding{
		{Status: "ok", About: "engine", Text: fmt.Sprintf("Docker %s on %s, %s, Linux %s, %d processors, %s of memory",
			info.Version, info.System, info.Arch, info.Kernel, info.CPUs, units.HumanSize(float64(info.Memory)))},
		{Status: "ok", About: "connection", Text: "sandboxes are reached by a " + info.Transport},
	}
	for _, f := range info.Findings {
		found = append(found, sandbox.Finding{Status: "weaker", About: "protection", Text: f.What, So: f.So})
	}
	for _, f := range info.Shared {
		found = append(found, sandbox.Finding{Status: "note", About: "shared", Text: f.What, So: f.So})
	}
	network, err := h.examineEgress(ctx)
	return slices.Concat(found, network, betterRuntimes(info.Runtimes)), err
}

// engineAddress is the address that [connect] takes from the variables and from the
// Docker configuration.
func engineAddress() string {
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		return "DOCKER_HOST=" + host
	}
	if name := os.Getenv("DOCKER_CONTEXT"); name != "" {
		return "DOCKER_CONTEXT=" + name
	}
	if host, err := contextHost(); err == nil && host != "" {
		return host
	}
	return client.DefaultDockerHost
}

// engineAdvice says how to get an engine.
func engineAdvice() string {
	const without = "; without one, --on local starts servers on this machine, which isolates nothing"
	switch {
	case os.Getenv("DOCKER_HOST") != "":
		return "start it, or correct DOCKER_HOST" + without
	case runtime.GOOS != "linux":
		return "install and start Docker Desktop" + without
	}
	if _, err := exec.LookPath("dockerd"); err == nil {
		return "start it, with 'systemctl start docker' or as your system does it" + without
	}
	return "install one (Debian and Ubuntu: apt-get install docker.io) and start it, or name one with DOCKER_HOST" + without
}

// betterRuntimes says which runtimes could protect the host better.
func betterRuntimes(runtimes []string) (found []sandbox.Finding) {
	for _, name := range runtimes {
		if _, gained := Protection(sandbox.Spec{Runtime: name}); len(gained) > 0 {
			found = append(found, sandbox.Finding{Status: "stronger", About: "runtime", Text: fmt.Sprintf("--runtime %s: %s", name, strings.Join(gained, ", "))})
		}
	}
	if !slices.Contains(runtimes, "runsc") {
		found = append(found, sandbox.Finding{
			Status: "note", About: "runtime", Text: "the runtime runsc (gVisor) is not known to the engine",
			So: "with it, a kernel of its own would stand between an agent and this machine's: gvisor.dev/docs/user_guide/install",
		})
	}
	return found
}
