package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/docker"
)

func (p *program) doctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is missing, and which protection is there",
		Long: `Doctor looks at what sandboxes need on this machine: the server's program, the
state directory, the engine. It says what is missing and what to do about it, and
what of the protection that is promised this engine does not give, or could give
on top.

It changes nothing. The exit code is 0 when sandboxes can be made, 4 without
access to the engine, 6 without an engine, and 1 when something else is missing.`,
		Example: `  runtimectl doctor
  runtimectl doctor -o json | jq -r '.[] | select(.status != "ok") | .text'`,
		Args: noArgs,
	}
	output := addFormat(c, "table", "json", "yaml")
	p.addPlace(c)
	p.addServer(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var report checkup
		missing := errors.Join(p.checkServer(&report), p.checkPlace(cmd.Context(), &report))
		if err := p.print(output, report); err != nil {
			return err
		}
		return missing
	}
	return c
}

// finding is something that doctor found out.
type finding struct {
	// Status is "ok", "weaker" (less protection), "stronger" (it could be had on
	// top), "note", or "missing" (no sandboxes without it).
	Status string `json:"status"`
	About  string `json:"about"`
	Text   string `json:"text"`
	// So says what follows, and what to do.
	So string `json:"so,omitempty"`
}

// checkup is what doctor prints.
type checkup []finding

func add(c *checkup, status, about, text, so string) {
	*c = append(*c, finding{status, about, text, so})
}

func (c checkup) table() [][]string {
	var rows [][]string
	for _, f := range c {
		rows = append(rows, []string{f.Status, f.About, f.Text})
		if f.So != "" {
			rows = append(rows, []string{"", "", "  " + f.So})
		}
	}
	return rows
}

// checkServer looks for the program that is put into sandboxes.
func (p *program) checkServer(report *checkup) error {
	change, err := p.withServers()
	if err != nil {
		add(report, "missing", "server", "there is no program to put into sandboxes", err.Error())
		return fmt.Errorf("the server is missing: %w", err)
	}
	var c docker.Config
	change(&c)
	archs := slices.Sorted(maps.Keys(c.Servers))
	add(report, "ok", "server", fmt.Sprintf("%s, for images of %s", c.Servers[archs[0]], strings.Join(archs, " and ")), "")
	return nil
}

// checkPlace looks at where the sandboxes are.
func (p *program) checkPlace(ctx context.Context, report *checkup) error {
	err := p.in(func(where place) error {
		engine, isEngine := where.(enginePlace)
		if !isEngine {
			add(report, "weaker", "local", "--local isolates nothing", "commands run on this machine with all rights of your user")
			return p.checkSandboxes(ctx, where, report)
		}
		info, err := engine.Engine(ctx)
		if err != nil {
			return err
		}
		add(report, "ok", "engine", fmt.Sprintf("Docker %s on %s, %s, Linux %s, %d processors, %s of memory",
			info.Version, info.System, info.Arch, info.Kernel, info.CPUs, size(info.Memory)), "")
		add(report, "ok", "connection", "sandboxes are reached by a "+info.Transport, "")
		for _, f := range info.Findings {
			add(report, "weaker", "protection", f.What, f.So)
		}
		checkRuntimes(report, info.Runtimes)
		return p.checkSandboxes(ctx, where, report)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, docker.ErrUnknown) && errors.Is(err, fs.ErrPermission):
		add(report, "missing", "engine", "you may not use the Docker engine",
			"be a member of the group that its socket belongs to (docker), which is as good as being root, or use a rootless engine")
	case errors.Is(err, docker.ErrUnknown):
		add(report, "missing", "engine", "there is no Docker engine at "+p.engineAddress(), p.engineAdvice())
	default:
		add(report, "missing", "host", err.Error(), "")
	}
	return err
}

// engineAddress is where an engine was looked for, as far as variables tell.
func (p *program) engineAddress() string {
	if host := p.getenv("DOCKER_HOST"); host != "" {
		return "DOCKER_HOST=" + host
	}
	if name := p.getenv("DOCKER_CONTEXT"); name != "" {
		return "that of DOCKER_CONTEXT=" + name
	}
	return "the usual place"
}

// engineAdvice says how to come by an engine.
func (p *program) engineAdvice() string {
	const without = "; without one, --local starts servers on this machine, which isolates nothing"
	switch {
	case p.getenv("DOCKER_HOST") != "":
		return "start it, or correct DOCKER_HOST" + without
	case runtime.GOOS != "linux":
		return "install and start Docker Desktop" + without
	}
	if _, err := exec.LookPath("dockerd"); err == nil {
		return "start it, with 'systemctl start docker' or as your system does it" + without
	}
	return "install one (Debian and Ubuntu: apt-get install docker.io) and start it, or name one with DOCKER_HOST" + without
}

// checkRuntimes says which runtimes could protect the host better.
func checkRuntimes(report *checkup, runtimes []string) {
	for _, name := range runtimes {
		if _, gained := docker.Protection(docker.Spec{Runtime: name}); len(gained) > 0 {
			add(report, "stronger", "runtime", fmt.Sprintf("--runtime %s: %s", name, strings.Join(gained, ", ")), "")
		}
	}
	if !slices.Contains(runtimes, "runsc") {
		add(report, "note", "runtime", "the runtime runsc (gVisor) is not known to the engine",
			"with it, a kernel of its own would stand between an agent and this machine's: gvisor.dev/docs/user_guide/install")
	}
}

// checkSandboxes says what is there, and what 'prune' would remove.
func (p *program) checkSandboxes(ctx context.Context, where place, report *checkup) error {
	all, err := where.List(ctx)
	if err != nil {
		return err
	}
	leftovers, err := where.Prune(ctx, true)
	if err != nil {
		return err
	}
	add(report, "ok", "sandboxes", fmt.Sprintf("%d are there", len(all)), "")
	if len(leftovers) > 0 {
		add(report, "note", "sandboxes", fmt.Sprintf("%d are over, or were left half done", len(leftovers)), "'runtimectl prune' removes them")
	}
	return nil
}
