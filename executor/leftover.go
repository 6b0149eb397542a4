package executor

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/mark"
)

// sessionsName is the variable of shells, kernels, MCP servers and browsers, and of their descendants. They end
// with their server. A program of exec has one of its own, which is recorded while its action waits for it.
const sessionsName = "ACTIOND_SESSIONS"

// sessionsMark is the variable of a server's sessions, by its mark.
func sessionsMark(server string) string {
	return sessionsName + strings.TrimPrefix(server, markName)
}

// withoutSessions returns the environment of programs that live on when their action ended.
func withoutSessions(env []string) (out []string) {
	for _, v := range env {
		if !strings.HasPrefix(v, sessionsName+"=") {
			out = append(out, v)
		}
	}
	return out
}

const (
	// leftGrace is how long processes of a dead server have to end by themselves, and between SIGTERM and SIGKILL.
	leftGrace = 2 * time.Second
	// leftLook is the pause between looks at them, and killLooks bounds the looks after SIGKILL.
	leftLook  = 20 * time.Millisecond
	killLooks = 50
)

// endLeftovers ends the processes that bear a recorded mark: those of sessions and of actions that had not
// ended when their server died. It returns once they are gone, or cannot be killed, or ctx ends.
func endLeftovers(ctx context.Context, marks *mark.Ledger, user *identity.User, logger *slog.Logger) {
	left := marks.Marks()
	if endMarked(ctx, left, user) {
		logger.WarnContext(ctx, "ended processes of a server that died")
	}
	if ctx.Err() != nil {
		return // the next server goes on
	}
	for m := range left {
		marks.Remove(m)
	}
}

// endMarked ends the processes that bear one of the marks, and reports whether there were any. It returns
// once they are gone, or cannot be killed, or ctx ends.
func endMarked(ctx context.Context, left map[string]bool, user *identity.User) (found bool) {
	if len(left) == 0 {
		return false
	}
	tell := func(marks map[string]bool, what unix.Signal) (found bool) {
		users := []*identity.User{user}
		if os.Geteuid() == 0 { // programs of root's may have become other users
			users = proc.Users()
		}
		for _, u := range users {
			found = proc.SignalAnyMarked(marks, u, what) || found
		}
		return found
	}
	if tell(left, 0) {
		found = true
		programs := maps.Clone(left)
		maps.DeleteFunc(programs, func(mark string, _ bool) bool { return strings.HasPrefix(mark, sessionsName+"=") })
		// Shells and kernels end by themselves, and kernels remove their files first.
		for _, told := range []map[string]bool{programs, left} {
			tell(told, unix.SIGTERM)
			for until := time.Now().Add(leftGrace); tell(left, 0) && time.Now().Before(until); {
				if channel.Sleep(ctx, leftLook) != nil {
					return found
				}
			}
		}
		for range killLooks { // one may have started another before it died
			if !tell(left, unix.SIGKILL) {
				break
			}
			if channel.Sleep(ctx, leftLook) != nil {
				return found
			}
		}
	}
	return found
}
