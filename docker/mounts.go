package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/actiond/actiond/internal/hostpath"
	"github.com/actiond/actiond/sandbox"
)

// Paths inside a sandbox.
const (
	insideRun    = "/run/actiond"      // the socket
	insideSocket = insideRun + "/sock" // and its name
	insideBin    = "/.actiond"         // the server
	insideServer = insideBin + "/server"
	insideState  = "/var/lib/actiond"   // undo history, results
	insidePort   = "8000/tcp"           // where a socket cannot be had
	insideStart  = insideRun + "/start" // FIFO that lets the server start
)

// keepOut are paths of the host that give away the host, or secrets of its
// users. Neither they nor their contents nor the directories above them are mounted.
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

// hostView holds the paths of this host that mounts are checked against.
type hostView struct {
	stateDir string   // of this package
	homes    []string // home directories that hold secrets
	sockets  []string // of the engine
}

// resolveMounts replaces every source by the path that its links lead to and
// refuses a path that may not be mounted, with the reason. follow is asked before a link
// is followed. It returns the mounts for the engine, and the owner of the first
// writable one, or 0.
func resolveMounts(mounts []sandbox.Mount, view hostView, follow func(hostpath.Link) error) (resolved []sandbox.Mount, owner int, err error) {
	writable := false
	for _, m := range mounts {
		source, uid, err := view.resolve(m, follow)
		if err != nil {
			return nil, 0, err
		}
		if err := checkTarget(m.Target, resolved); err != nil {
			return nil, 0, err
		}
		if !m.ReadOnly && !writable {
			writable, owner = true, uid
		}
		resolved = append(resolved, sandbox.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return resolved, owner, checkNested(resolved)
}

// resolve returns the path of a mount's source without links, and its owner.
func (v hostView) resolve(m sandbox.Mount, follow func(hostpath.Link) error) (source string, uid int, err error) {
	if !filepath.IsAbs(m.Source) {
		return "", 0, sandbox.Invalid("mount %s: the source must be an absolute path", m.Source)
	}
	file, err := hostpath.Open(m.Source, follow)
	if errors.Is(err, sandbox.ErrUnknown) {
		return "", 0, err
	}
	if err != nil {
		return "", 0, fmt.Errorf("%w: mount %s: %w", sandbox.ErrInvalid, m.Source, err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", 0, fmt.Errorf("%w: mount %s: %w", sandbox.ErrInvalid, m.Source, err)
	}
	source = file.Path()
	if why := v.forbids(source, info.Mode()); why != "" {
		if source != m.Source {
			return "", 0, sandbox.Invalid("mount %s (which leads to %s): %s", m.Source, source, why)
		}
		return "", 0, sandbox.Invalid("mount %s: %s", m.Source, why)
	}
	if name := secretIn(source); name != "" {
		return "", 0, sandbox.Invalid("mount %s: it contains %s, which holds secrets", m.Source, name)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		uid = int(stat.Uid)
	}
	return source, uid, nil
}

// checkNested refuses a target inside of another mount that a link in that mount
// leads elsewhere: an agent made it, or could have.
func checkNested(mounts []sandbox.Mount) error {
	for _, m := range mounts {
		for _, outer := range mounts {
			if !under(m.Target, outer.Target) {
				continue
			}
			below := strings.TrimPrefix(m.Target, outer.Target)
			file, err := hostpath.Open(outer.Source+below, hostpath.NoLinks)
			if err == nil {
				_ = file.Close()
			}
			if errors.Is(err, hostpath.ErrLink) {
				return fmt.Errorf("%w: mount target %s, in the mount of %s: %w", sandbox.ErrInvalid, m.Target, outer.Source, err)
			}
		}
	}
	return nil
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
		if why := within(source, s, "a process that reaches the engine's socket owns the host"); why != "" {
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

// under reports whether p lies below dir.
func under(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

// checkTarget refuses places that the sandbox needs for itself.
func checkTarget(target string, others []sandbox.Mount) error {
	if err := sandbox.CleanAbsolute("mount target", target); err != nil {
		return err
	}
	for _, own := range []string{"/", "/proc", "/sys", "/dev", insideRun, insideBin, insideState, insideEgress, insideTrust} {
		if target == own || (own != "/" && (under(target, own) || under(own, target))) {
			return sandbox.Invalid("mount target %s: the sandbox needs %s for itself", target, own)
		}
	}
	for _, other := range others {
		if other.Target == target {
			return sandbox.Invalid("mount target %s is given twice", target)
		}
	}
	return nil
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
