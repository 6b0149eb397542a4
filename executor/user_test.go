package executor_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// nobody is a user that every Debian has.
const nobody = "nobody"

func other(t *testing.T) *identity.User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can take on the rights of another user")
	}
	u, err := identity.Lookup(nobody)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A server of root's that runs commands as a user: the agent has the user's
// rights in the shell and in files, and cannot look into the server.
func TestDropsToUser(t *testing.T) {
	t.Parallel()
	u := other(t)
	u.Home = testhelp.PublicDir(t)
	e, _ := start(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t), Env: []string{"SESSION_API_KEY=x"}})
	if got := run(t, e, "", "id -un; id -u; echo $HOME; tty >/dev/null && echo terminal").Content; got != fmt.Sprintf("%s\n%d\n%s\nterminal", nobody, u.UID, u.Home) {
		t.Errorf("got %q", got)
	}
	if got := run(t, e, "", "cat /proc/$PPID/environ; kill -9 $PPID; echo; cat /etc/shadow"); strings.Count(got.Content, "ermitted")+strings.Count(got.Content, "denied") != 3 {
		t.Errorf("got %q, want three refusals", got.Content)
	}
	if got := run(t, e, "", "[ $(cat /proc/self/oom_score_adj) -gt $(cat /proc/$PPID/oom_score_adj) ]; echo $?").Content; got != "0" {
		t.Errorf("got %q; want a score above the server's", got)
	}
	for _, a := range []api.Action{
		api.ReadAction{Path: "/etc/shadow", End: -1},
		api.WriteAction{Path: "/etc/actiond-test", Content: "x", End: -1},
	} {
		o, err := e.Do(t.Context(), api.Request{Action: a})
		if _, refused := o.(api.ErrorObservation); err != nil || !refused {
			t.Errorf("%+v: got %+v, %v; want an error", a, o, err)
		}
	}
	if o, err := e.Do(t.Context(), api.Request{Action: api.WriteAction{Path: "mine", Content: "x", End: -1}}); err != nil || o.Kind() != "write" {
		t.Fatalf("got %+v, %v", o, err)
	}
	if got := run(t, e, "", "stat -c %U mine; C=$(cat mine); echo $C").Content; got != nobody+"\nx" {
		t.Errorf("got %q", got)
	}
}
