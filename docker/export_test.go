package docker

import (
	"time"

	"github.com/docker/docker/api/types/container"
)

// Engine is what a fake must be able to do.
type Engine = engine

// OpenWith is Open with another engine.
func OpenWith(config Config, e Engine) (*Host, error) {
	return open(config, e, "unix:///nowhere/docker.sock")
}

// Plan is plan for a sandbox born at a fixed time.
func Plan(s Spec, runDir, volume, pool string) (*container.Config, *container.HostConfig, error) {
	if err := s.complete(); err != nil {
		return nil, nil, err
	}
	config, host := plan(&s, birth{
		id: "0123456789ab", name: s.Name, controller: "c0ffee", created: time.Unix(1e9, 0),
		runDir: runDir, volume: volume, binary: "feed", pool: pool, ticket: "admit one",
	})
	return config, host, nil
}

// Forbids judges a mount source on a host with these secrets.
func Forbids(source string) string {
	v := hostView{stateDir: "/var/lib/actiond", homes: []string{"/root", "/home/alice"}, sockets: []string{"/opt/engine/docker.sock"}}
	return v.forbids(source, 0)
}

var (
	ResolveMounts = func(mounts []Mount) ([]Mount, error) { return resolveMounts(mounts, hostView{}) }
	DialSocket    = dialSocket
	ServerUID     = serverUID
	ContextHost   = contextHost
	ReadPull      = readPull
	StatsOf       = statsOf
	Profile       = seccompProfile
	Hint          = hint
	Findings      = findings
	DetailsOf     = details
)

// SetEngine gives the host another engine before its first use.
func SetEngine(h *Host, e Engine) { h.engine = e }

// Hash is a completed specification's hash.
func Hash(s Spec) string {
	if err := s.complete(); err != nil {
		return err.Error()
	}
	return s.hash()
}

// CheckMounts holds the sources and compares them with what a process sees at
// the targets, after between ran.
func CheckMounts(mounts []Mount, pid int, between func()) error {
	held, err := holdMounts(mounts)
	if err != nil {
		return err
	}
	defer held.release()
	between()
	return held.check(pid)
}
