package executor

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/process"
)

// engineFor returns the engine that starts a program of an action. An *api.Error refuses
// one as root.
func (e *Executor) engineFor(a api.ExecAction, w api.Watch) (*process.Engine, error) {
	switch {
	case a.User == "":
		return e.programs, nil
	case !w.Operator:
		return nil, api.BadRequest(`action "exec": argument "user": only POST /v1/actions runs a program as root`)
	case e.asRoot == nil:
		return nil, api.BadRequest(`action "exec": argument "user": this sandbox was not created with --allow-root, so no program runs as root`)
	}
	return e.asRoot, nil
}

// systemPath are the directories that root looks for programs in.
var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// rootEnvironment is what a program of root's starts with. Nothing of it is inherited or
// chosen by the agent, and no directory in it is one that the agent may write to.
func rootEnvironment() []string {
	home := ownedByRoot("/root")
	if home == "" {
		home = "/"
	}
	var path []string
	for _, dir := range systemPath {
		if real := ownedByRoot(dir); real != "" && !slices.Contains(path, real) {
			path = append(path, real)
		}
	}
	return []string{
		"HOME=" + home, "LOGNAME=root", "PAGER=cat", "PATH=" + strings.Join(path, ":"), "SHELL=/bin/sh", "TERM=xterm-256color", "USER=root",
	}
}

// ownedByRoot returns the path of a directory without links, or "" where it, or one above
// it, is missing, belongs to another user, or may be written by others than its owner.
func ownedByRoot(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	for at := real; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return ""
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		const othersWrite fs.FileMode = 0o022 // with an access control list, the group's bits are its mask
		if !ok || stat.Uid != 0 || !info.IsDir() || info.Mode()&othersWrite != 0 {
			return ""
		}
		if at == "/" {
			return real
		}
	}
}
