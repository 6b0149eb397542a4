package docker

import (
	"cmp"
	"strings"

	"github.com/actiond/actiond/sandbox"
)

// mountUserID is the user of a sandbox with a writable mount that is root's.
const mountUserID = 1000

// complete fills in the defaults and checks everything that can be checked
// without looking at the host.
func complete(s *sandbox.Spec) error {
	if err := sandbox.CannotHonour((*Host)(nil), s.PodOptions()); err != nil {
		return err
	}
	if s.Policy == nil {
		s.Network = cmp.Or(s.Network, "bridge")
	}
	if err := s.Complete(); err != nil {
		return err
	}
	if err := checkNetwork(s.Network); err != nil {
		return err
	}
	return checkSecurity(s.SecurityOpts)
}

func checkNetwork(name string) error {
	switch {
	case name == "host":
		return sandbox.Invalid("network host: the sandbox would reach every service that listens on this host's loopback")
	case strings.HasPrefix(name, "container:"):
		return sandbox.Invalid("network %s: the sandbox would share another container's network", name)
	case !sandbox.IsName(name):
		return sandbox.Invalid("network %q is not the name of a network", name)
	}
	return nil
}

func checkSecurity(opts []string) error {
	for _, opt := range opts {
		kind, value := splitOpt(opt)
		switch kind {
		case "seccomp", "apparmor", "label", "systempaths", "no-new-privileges":
		default:
			return sandbox.Invalid("security option %q: seccomp, apparmor, label, systempaths and no-new-privileges are known", opt)
		}
		if kind == "seccomp" && value == "" {
			return sandbox.Invalid("security option %q has no profile", opt)
		}
	}
	return nil
}

// splitOpt takes a security option apart: both "kind=value" and the engine's
// older "kind:value" are understood.
func splitOpt(opt string) (kind, value string) {
	if i := strings.IndexAny(opt, "=:"); i >= 0 {
		return opt[:i], opt[i+1:]
	}
	return opt, ""
}
