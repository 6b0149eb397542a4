package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/process"
	"github.com/actiond/actiond/internal/identity"
)

// programUser returns the user that an action names; nil for the sandbox's own. An *api.Error
// refuses it.
func (e *Executor) programUser(a api.ExecAction, w api.Watch) (*identity.User, error) {
	own := e.cfg.User
	if a.User == "" || a.User == own.Username() {
		return nil, nil //nolint:nilnil // nil is a user
	}
	u := &identity.User{}
	if a.User != api.UserRoot { // whatever /etc/passwd makes of the name
		var err error
		if u, err = identity.Find(a.User); errors.As(err, new(user.UnknownUserError)) {
			return nil, api.Unprocessable(fmt.Sprintf(`action "exec": argument "user": this sandbox has no user %s`, api.Excerpt(a.User)))
		}
		if err != nil {
			return nil, api.Unprocessable(fmt.Sprintf(`action "exec": argument "user": %v`, err))
		}
	}
	if u.UID == 0 {
		u = &identity.User{Name: api.UserRoot, Home: "/root"}
	}
	switch {
	case int(u.UID) == own.EffectiveUID():
		return nil, nil //nolint:nilnil // the same
	case !w.Operator:
		return nil, api.BadRequest(`action "exec": argument "user": only POST /v1/actions runs a program as another user than the sandbox's`)
	case e.others == nil:
		return nil, api.BadRequest(`action "exec": argument "user": this sandbox was not created with --allow-root, so all programs run as its own user`)
	}
	return u, nil
}

// asUser makes a command one of another user's than the sandbox's. Nothing of it is inherited or
// chosen by the agent; the request sets the variables over it, and the directory.
func asUser(c process.Command, u *identity.User, a api.ExecAction, network map[string]string) process.Command {
	if a.Cwd == "" {
		c.Dir = "/"
	}
	c.User, c.ClearEnv, c.Env = u, true, fixedEnvironment(u)
	maps.Copy(c.Env, network)
	if a.ClearEnv { // without PATH a shell has a default, with directories that the agent may write to
		c.Env = map[string]string{"PATH": c.Env["PATH"]}
	}
	maps.Copy(c.Env, a.Env)
	return c
}

// systemPath are the directories that programs of other users are looked for in.
var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// fixedEnvironment has the variables of a program of another user than the sandbox's. No directory
// in it is one that the agent may write to, unless it runs as this user.
func fixedEnvironment(u *identity.User) map[string]string {
	home := ownedBy(u.UID, u.Home)
	if home == "" {
		home = "/"
	}
	var path []string
	for _, dir := range systemPath {
		if real := ownedBy(0, dir); real != "" && !slices.Contains(path, real) {
			path = append(path, real)
		}
	}
	return map[string]string{
		"HOME": home, "LOGNAME": u.Name, "PAGER": "cat", "PATH": strings.Join(path, ":"), "SHELL": "/bin/sh",
		"TERM": "xterm-256color", "USER": u.Name,
	}
}

// ownedBy returns the path of a directory without links, or "" where it, or one above it, is
// missing, belongs to another user and not to root, or may be written by others than its owner.
func ownedBy(uid uint32, dir string) string {
	if !filepath.IsAbs(dir) || len(dir) > unix.PathMax {
		return ""
	}
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
		if !ok || stat.Uid != 0 && stat.Uid != uid || !info.IsDir() || info.Mode()&othersWrite != 0 {
			return ""
		}
		if at == "/" {
			return real
		}
	}
}
