package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// Address is [sandbox.Addresser]'s.
func (h *Host) Address(s *sandbox.Sandbox) (string, error) {
	of, err := h.own(s)
	switch {
	case err != nil:
		return "", err
	case of.transport == "socket":
		path := filepath.Join(h.state.runPath(of.origin), filepath.Base(insideSocket))
		return (&url.URL{Scheme: "unix", Path: path}).String(), nil
	case of.port == 0:
		return "", fmt.Errorf("sandbox %s has no port: it is %s", s.ID, s.State)
	}
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(int(of.port))), nil
}

// Inspect asks the engine about a sandbox. It fails with ErrNotFound if that is
// gone.
func (h *Host) Inspect(ctx context.Context, s *sandbox.Sandbox) (*sandbox.Details, error) {
	info, err := h.inspect(ctx, "looking at sandbox "+s.ID, s.Instance)
	if isNotFound(err) {
		return nil, fmt.Errorf("sandbox %s: %w", s.ID, sandbox.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	d := details(info)
	d.Instance = s.Instance
	if of, err := h.own(s); err == nil {
		if conf, err := h.state.loadConf(of.origin); err == nil {
			d.Network, d.Names = string(conf.Policy.Mode), h.names(ctx, of)
		}
	}
	return d, nil
}

// WorkDir returns where the shells of a sandbox start. It fails with ErrNotFound if
// the sandbox is gone.
func (h *Host) WorkDir(ctx context.Context, s *sandbox.Sandbox) (string, error) {
	d, err := h.Inspect(ctx, s)
	if err != nil {
		return "", err
	}
	return d.WorkDir, nil
}

func details(info container.InspectResponse) *sandbox.Details {
	d := &sandbox.Details{ImageID: info.Image}
	if state := info.State; state != nil {
		d.ExitCode, d.OutOfMemory = state.ExitCode, state.OOMKilled
		d.Removing = state.Status == container.StateRemoving || state.Status == container.StateDead
		d.Started, d.Ended = when(state.StartedAt), when(state.FinishedAt)
	}
	user, allowRoot, gpus := "", false, sandbox.GPUs{}
	var policy *egress.Policy // which one, the container does not know
	if config := info.Config; config != nil {
		d.Server = config.Labels[labelBinary]
		user, _, _ = strings.Cut(config.Labels[labelUser], ":")
		allowRoot = config.Labels[labelAllowRoot] == "true"
		gpus, _ = sandbox.ParseGPUs(config.Labels[labelGPUs])
		if i := slices.Index(config.Cmd, "--working-dir"); i >= 0 && i+1 < len(config.Cmd) {
			d.WorkDir = config.Cmd[i+1]
		}
	}
	if host := info.HostConfig; host != nil {
		d.Network, d.Runtime, d.ReadOnly = string(host.NetworkMode), host.Runtime, host.ReadonlyRootfs
		d.Memory, d.CPUs = host.Memory, float64(host.NanoCPUs)/1e9
		if host.PidsLimit != nil {
			d.Pids = *host.PidsLimit
		}
		for _, m := range host.Mounts {
			if m.Target == insideEgress {
				policy = &egress.Policy{}
			} else if m.Type == mount.TypeBind && m.Target != insideRun {
				d.Mounts = append(d.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
			}
		}
		for _, opt := range host.SecurityOpt {
			if opt == "seccomp="+seccompProfile {
				opt = "seccomp=(built in)"
			}
			d.SecurityOpts = append(d.SecurityOpts, opt)
		}
	}
	if info.NetworkSettings != nil {
		for _, name := range slices.Sorted(maps.Keys(info.NetworkSettings.Networks)) {
			if n := info.NetworkSettings.Networks[name]; n != nil && n.IPAddress != "" {
				d.Addresses = append(d.Addresses, n.IPAddress)
			}
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(d.SecurityOpts), func(opt string) bool { return opt == "seccomp=(built in)" })
	d.LostProtection, d.GainedProtection = Protection(sandbox.Spec{
		User: user, AllowRoot: allowRoot, GPUs: gpus, Mounts: d.Mounts, Network: d.Network, Policy: policy, Runtime: d.Runtime, ReadOnly: d.ReadOnly, SecurityOpts: chosen,
	})
	return d
}

// when reads the engine's time; it writes "0001-…" for never.
func when(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1970 {
		return time.Time{}
	}
	return t
}

// EngineInfo describes the engine and its machine, as the engine reports them.
type EngineInfo struct {
	Version, Kernel, System, Arch string
	StorageDriver, CgroupVersion  string
	CPUs                          int
	Memory                        int64
	Runtimes                      []string
	Transport                     string // how sandboxes are reached: "socket" or "port"
	Findings                      []Finding
	// Shared names resources that the sandboxes share although each has its limits.
	Shared []Finding
}

// Finding is a property of the engine by which a promise does not hold.
type Finding struct {
	What string // is so
	So   string // the consequence, and a remedy
}

// Engine asks the engine about itself. It fails with ErrUnknown if the engine
// cannot be reached.
func (h *Host) Engine(ctx context.Context) (*EngineInfo, error) {
	info, err := h.info(ctx)
	if err != nil {
		return nil, err
	}
	learned, err := h.learn(ctx)
	if err != nil {
		return nil, err
	}
	e := &EngineInfo{
		Version: info.ServerVersion, Kernel: info.KernelVersion, System: info.OperatingSystem, Arch: info.Architecture,
		StorageDriver: info.Driver, CgroupVersion: cmp.Or(info.CgroupVersion, "1"), CPUs: info.NCPU, Memory: info.MemTotal,
		Runtimes: slices.Sorted(maps.Keys(info.Runtimes)), Transport: "port",
	}
	if learned.socket {
		e.Transport = "socket"
	}
	e.Findings = findings(info, learned.socket)
	if learned.local {
		users, err := h.usedUserIDs(ctx)
		if err != nil {
			return nil, err
		}
		e.Shared = sharedQuotas(learned, users, "/proc/sys")
	}
	if why := h.noDiskLimit(info); why != "" {
		e.Shared = append(e.Shared, Finding{
			"the disk of a sandbox cannot be limited, because " + why,
			"one sandbox can fill the engine's disk, and --disk is refused",
		})
	}
	return e, nil
}

func findings(info system.Info, socket bool) []Finding {
	var found []Finding
	add := func(is bool, what, so string) {
		if is {
			found = append(found, Finding{what, so})
		}
	}
	has := func(option string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name="+option) })
	}
	add(!has("seccomp"), "the engine has no seccomp",
		"every system call reaches the kernel, and a sandbox that asks for a profile does not start: use an engine and a kernel with seccomp")
	add(!has("apparmor") && !has("selinux"), "there is neither AppArmor nor SELinux",
		"one layer less between the agent and the host; the other ones hold")
	add(!info.MemoryLimit, "memory cannot be limited", "one sandbox can take all memory: enable the memory control group")
	add(info.MemoryLimit && !info.SwapLimit, "swap cannot be limited", "a sandbox can use swap beyond its memory limit: boot with swapaccount=1")
	add(!info.CPUCfsQuota, "processors cannot be limited", "one sandbox can take all processors")
	add(!info.PidsLimit, "processes cannot be limited", "a fork bomb can take down the host: enable the pids control group")
	add(!info.LiveRestoreEnabled, "live-restore is off", "sandboxes end when the engine is restarted: set \"live-restore\": true in daemon.json")
	add(!socket, "sandboxes are reached by a port on 127.0.0.1", fmt.Sprintf(
		"slower than a socket, and other users of this host can knock: for a socket the engine must run on this Linux host, and this program as root (it is user %d)", os.Geteuid()))
	add(remapped(info), "limits of interprocess communication cannot be set",
		"an agent can fill its sandbox's memory with shared memory that no process owns, until its server ends; other sandboxes do not notice")
	add(info.CgroupVersion == "1", "control groups are of version 1", "memory is counted less exactly; everything else holds")
	for _, warning := range info.Warnings {
		add(strings.HasPrefix(warning, "WARNING: API is accessible on http"), warning, "a client that reaches that port owns the host: close it")
	}
	return found
}

// Prepare pulls the image if need be and puts the server into its volume, so
// that the first creation does not wait for them.
func (h *Host) Prepare(ctx context.Context, spec sandbox.Spec) error {
	if err := h.complete(ctx, &spec); err != nil {
		return err
	}
	arch, err := h.image(ctx, &spec)
	if err != nil {
		return err
	}
	binary, err := h.serverFor(arch)
	if err != nil {
		return err
	}
	_, err = h.delivery(ctx, binary, spec.Image)
	return err
}
