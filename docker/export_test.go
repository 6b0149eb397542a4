package docker

import (
	"context"
	"os"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"

	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/sandbox"
)

// Later is later.
var Later = later

// Plan is plan for a sandbox born at a fixed time.
func Plan(s sandbox.Spec, runDir, volume, pool string) (*container.Config, *container.HostConfig, error) {
	if err := complete(&s); err != nil {
		return nil, nil, err
	}
	config, host := plan(&s, creation{
		id: "0123456789ab", name: s.Name, controller: "c0ffee", created: time.Unix(1e9, 0),
		runDir: runDir, volume: volume, binary: "feed", pool: pool, ticket: "admit one", userID: s.UserID,
	})
	return config, host, nil
}

// Forbids judges a mount source on a host with these secrets.
func Forbids(source string) string {
	v := hostView{stateDir: "/var/lib/actiond", homes: []string{"/root", "/home/alice"}, sockets: []string{"/opt/engine/docker.sock"}}
	return v.forbids(source, 0)
}

var (
	DialSocket      = dialSocket
	ServerUID       = serverUID
	ContextHost     = contextHost
	ReadReport      = readReport
	PullProgress    = pullProgress
	StatsOf         = statsOf
	Profile         = seccompProfile
	Hint            = hint
	Findings        = findings
	UnownedMemory   = unownedMemory
	LimitsTerminals = limitsTerminals
	DetailsOf       = details
)

// KeepsPolicies judges an engine that says this of itself.
func KeepsPolicies(info system.Info, socket bool, runtime string) error {
	learned := learnedFrom(info)
	learned.socket = socket
	return (&Host{}).keepsPolicies(learned, runtime)
}

// KeepPolicies makes a host keep policies also on an engine that maps users.
func KeepPolicies(h *Host) { h.triesRemapped = true }

// Hash is a completed specification's hash.
func Hash(s sandbox.Spec) string {
	if err := complete(&s); err != nil {
		return err.Error()
	}
	return s.Hash()
}

// CheckMounts holds the sources and compares them with what a process sees at
// the targets, after between ran.
func CheckMounts(mounts []sandbox.Mount, pid int, between func()) error {
	held, err := holdMounts(mounts)
	if err != nil {
		return err
	}
	defer held.release()
	between()
	return held.check(pid, os.Geteuid())
}

// ResolveMounts resolves mounts without a look at a host.
func ResolveMounts(mounts []sandbox.Mount) ([]sandbox.Mount, error) {
	resolved, _, err := resolveMounts(mounts, hostView{}, hostpath.OwnLinks)
	return resolved, err
}

// Pick picks an id that is not used.
func (r IDRange) Pick(used map[int]int) (int, error) { return r.pick(used) }

// SharedQuotas is sharedQuotas on a local engine that says this of itself.
func SharedQuotas(info system.Info, users map[int]int, sysctls string) []Finding {
	return sharedQuotas(&facts{terminals: limitsTerminals(info), remapped: remapped(info)}, users, sysctls)
}

// SetGPUs makes a host list these GPUs; nil for one that cannot know them.
func SetGPUs(h *Host, uuids []string, err error) {
	h.listGPUs = func(context.Context) ([]string, error) { return uuids, err }
}

// WholeGPUs reads a list of nvidia-smi.
var WholeGPUs = wholeGPUs
