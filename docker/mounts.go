package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Where things stand inside a sandbox.
const (
	insideRun    = "/run/actiond"      // the socket
	insideSocket = insideRun + "/sock" // and its name
	insideBin    = "/.actiond"         // the server
	insideServer = insideBin + "/server"
	insideState  = "/var/lib/actiond" // undo history, results
	insidePort   = "8000/tcp"         // where a socket cannot be had
)

// keepOut are paths of the host that give away the host, or secrets of its
// users. Neither they nor what is in them nor what they are in is mounted.
var keepOut = []struct{ path, why string }{
	{"/etc", "it holds the host's accounts and configuration"},
	{"/proc", "it controls the host's kernel and processes"},
	{"/sys", "it controls the host's kernel"},
	{"/dev", "it holds the host's devices"},
	{"/boot", "it holds the host's kernel"},
	{"/run", "it holds the sockets of the host's services, the engine's too"},
	{"/var/run", "it holds the sockets of the host's services, the engine's too"},
	{"/var/lib/docker", "it holds the engine's data"},
	{"/var/lib/containerd", "it holds the engine's data"},
	{"/var/lib/containers", "it holds an engine's data"},
	{"/var/lib/kubelet", "it holds the secrets of a cluster's pods"},
	{"/var/spool/cron", "what is written there runs on the host"},
	{"/bin", "it holds the host's programs"},
	{"/sbin", "it holds the host's programs"},
	{"/lib", "it holds the host's libraries"},
	{"/lib64", "it holds the host's libraries"},
	{"/usr/bin", "it holds the host's programs"},
	{"/usr/sbin", "it holds the host's programs"},
	{"/usr/lib", "it holds the host's libraries"},
}

// secretNames are directories and files that hold a user's secrets wherever
// they are.
var secretNames = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".netrc", ".git-credentials",
	"docker.sock", "containerd.sock", "podman.sock", "crio.sock",
}

// secretPlaces are such paths of more than one name.
var secretPlaces = []string{"/.config/gcloud/", "/.config/gh/", "/.config/containers/"}

// secretIn is the name of a user's secrets that lie directly in the directory:
// then it is a home, wherever homes are on this host.
func secretIn(dir string) string {
	for _, name := range secretNames {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	return ""
}

// hostView is what mounts are judged against.
type hostView struct {
	stateDir string   // of this package
	homes    []string // home directories that hold secrets
	sockets  []string // of the engine
}

// resolveMounts puts every source in the place its links lead to and refuses
// what may not be mounted, with the reason. It returns the mounts that the
// engine is to get.
func resolveMounts(mounts []Mount, view hostView) ([]Mount, error) {
	var resolved []Mount
	for _, m := range mounts {
		if !filepath.IsAbs(m.Source) {
			return nil, refuse("mount %s: the source must be an absolute path", m.Source)
		}
		source, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return nil, fmt.Errorf("%w: mount %s: %w", ErrInvalid, m.Source, err)
		}
		info, err := os.Lstat(source)
		if err != nil {
			return nil, fmt.Errorf("%w: mount %s: %w", ErrInvalid, m.Source, err)
		}
		if why := view.forbids(source, info.Mode()); why != "" {
			if source != m.Source {
				return nil, refuse("mount %s (which leads to %s): %s", m.Source, source, why)
			}
			return nil, refuse("mount %s: %s", m.Source, why)
		}
		if name := secretIn(source); name != "" {
			return nil, refuse("mount %s: there is %s in it, which holds secrets", m.Source, name)
		}
		if err := checkTarget(m.Target, resolved); err != nil {
			return nil, err
		}
		resolved = append(resolved, Mount{source, m.Target, m.ReadOnly})
	}
	return resolved, nil
}

// forbids says why a source may not be mounted, or nothing.
func (v hostView) forbids(source string, mode fs.FileMode) string {
	if !mode.IsDir() && !mode.IsRegular() {
		return "only directories and regular files are mounted, no sockets, pipes and devices"
	}
	if source == "/" {
		return "it is the whole host"
	}
	for _, k := range keepOut {
		if why := within(source, k.path, k.why); why != "" {
			return why
		}
	}
	for _, s := range v.sockets {
		if why := within(source, s, "whoever reaches the engine's socket owns the host"); why != "" {
			return why
		}
	}
	if why := within(source, v.stateDir, "it holds the keys and sockets of the sandboxes"); why != "" {
		return why
	}
	for _, home := range v.homes {
		if home != "/" && (source == home || under(home, source)) {
			return "it holds a home directory with its secrets; mount a directory in it"
		}
	}
	for name := range strings.SplitSeq(source, "/") {
		if slices.Contains(secretNames, name) {
			return name + " holds secrets"
		}
	}
	for _, place := range secretPlaces {
		if strings.Contains(source+"/", place) || strings.HasSuffix(source, "/.config") {
			return "it holds secrets"
		}
	}
	return ""
}

// within says why, if source is forbidden, in it or around it.
func within(source, forbidden, why string) string {
	switch {
	case forbidden == "":
		return ""
	case source == forbidden, under(source, forbidden):
		return why
	case under(forbidden, source):
		return fmt.Sprintf("%s is in it: %s", forbidden, why)
	}
	return ""
}

// under tells whether p lies below dir.
func under(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

// checkTarget refuses places that the sandbox needs for itself.
func checkTarget(target string, others []Mount) error {
	if err := cleanAbsolute("mount target", target); err != nil {
		return err
	}
	for _, own := range []string{"/", "/proc", "/sys", "/dev", insideRun, insideBin, insideState} {
		if target == own || (own != "/" && (under(target, own) || under(own, target))) {
			return refuse("mount target %s: the sandbox needs %s for itself", target, own)
		}
	}
	for _, other := range others {
		if other.Target == target {
			return refuse("mount target %s is given twice", target)
		}
	}
	return nil
}

func cleanAbsolute(what, p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, "\x00\n") {
		return refuse("%s %q must be an absolute path without '..', doubled or trailing slashes", what, p)
	}
	return nil
}

// mountOwner is the owner of the first writable mount, unless there is none or
// it is root.
func mountOwner(mounts []Mount) (uid int, ok bool) {
	for _, m := range mounts {
		if m.ReadOnly {
			continue
		}
		info, err := os.Lstat(m.Source)
		if err != nil {
			return 0, false
		}
		stat, isUnix := info.Sys().(*syscall.Stat_t)
		return int(stat.Uid), isUnix && stat.Uid != 0
	}
	return 0, false
}

// view looks at this host once.
func view(stateDir, engineHost string) hostView {
	v := hostView{stateDir: stateDir, homes: []string{"/root"}}
	if home, err := os.UserHomeDir(); err == nil {
		v.homes = append(v.homes, home)
	}
	if entries, err := os.ReadDir("/home"); err == nil || errors.Is(err, fs.ErrNotExist) {
		for _, e := range entries {
			v.homes = append(v.homes, filepath.Join("/home", e.Name()))
		}
	}
	if socket, ok := strings.CutPrefix(engineHost, "unix://"); ok {
		v.sockets = append(v.sockets, socket)
		if real, err := filepath.EvalSymlinks(socket); err == nil {
			v.sockets = append(v.sockets, real)
		}
	}
	return v
}
