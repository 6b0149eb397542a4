//go:build kubernetes

package kubernetes_test

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httputil"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// as is w with another account, and in another namespace.
func (w *words) as(kubeconfig, space string) *words {
	other := *w
	other.env = append(slices.Clone(w.env), "KUBECONFIG="+kubeconfig, "ACTIOND_ON=kubernetes:test/"+space)
	return &other
}

// Who reaches the cluster through a proxy that knows no WebSockets makes and uses sandboxes.
func TestOutsideWithoutWebSockets(t *testing.T) {
	t.Parallel()
	var refused atomic.Int32
	w := newWords(t)
	w = w.as(proxied(t, func(pass *httputil.ReverseProxy) http.HandlerFunc {
		return func(answer http.ResponseWriter, r *http.Request) {
			if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
				refused.Add(1)
				http.Error(answer, "no WebSockets here", http.StatusBadRequest)
				return
			}
			pass.ServeHTTP(answer, r)
		}
	}), spaceOf(t))
	w.want("", "", "create", "--name", "build", "--memory", "256m", "--pull", "never", busyboxImage)
	w.want("hello", "", "exec", "build", "--", "echo", "hello")
	w.want("", "", "rm", "build")
	if refused.Load() == 0 {
		t.Error("no WebSocket was asked for")
	}
}

// Who may create port forwardings alone does without WebSockets, which are got.
func TestOutsideRights(t *testing.T) {
	t.Parallel()
	space, limited := installed(t) // without port forwarding
	roles := shared.api.RbacV1()
	if _, err := roles.Roles(space).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "forward"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"create"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := roles.RoleBindings(space).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "forward"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "forward"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "actiond-gateway", Namespace: space}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := newWords(t).as(limited, space)
	w.want("does not allow this account to get pods/portforward", "", "doctor")
	w.want("", "", "create", "--name", "build", "--memory", "256m", "--pull", "never", busyboxImage)
	w.want("hello", "", "exec", "build", "--", "echo", "hello")
	w.want("", "", "rm", "build")
}

// A command from outside outlasts kubelets and API servers that are started again. Where
// they stay away, it says how to go on.
func TestOutsideOutages(t *testing.T) {
	w := newWords(t)
	w.want("", "", "create", "--name", "build", "--memory", "256m", "--pull", "never", busyboxImage)
	// counting prints numbers until there is a file, and returns the numbers as they come.
	counting := func(t *testing.T) (next func() int, wait func() (said string, code int)) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), w.program, "exec", "build", "--", "sh", "-c", "i=0; until [ -e /tmp/enough ]; do echo $((i += 1)); sleep 0.2; done")
		var said bytes.Buffer
		cmd.Env, cmd.Stderr = w.env, &said
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		return func() int {
				t.Helper()
				if !lines.Scan() {
					return 0
				}
				n, err := strconv.Atoi(lines.Text())
				if err != nil {
					t.Error(err)
				}
				return n
			}, func() (string, int) {
				_ = cmd.Wait() // its exit code is looked at
				return said.String(), cmd.ProcessState.ExitCode()
			}
	}
	away := func(t *testing.T, name string) (back func()) {
		t.Helper()
		shared.kill(t, name)
		back = sync.OnceFunc(func() {
			shared.restart(t, name)
			if err := shared.awaitNode(); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(back)
		return back
	}
	for _, name := range []string{"kubelet", "apiserver"} {
		t.Run(name, func(t *testing.T) {
			next, wait := counting(t)
			last := next()
			back := away(t, name)
			<-time.After(6 * time.Second) // as an upgrade takes
			back()
			for behind := last + 100; last < behind; last++ {
				if n := next(); n != last+1 {
					said, code := wait()
					t.Fatalf("after %d came %d; code %d, %s", last, n, code, said)
				}
			}
			w.want("", "", "exec", "build", "--", "touch", "/tmp/enough")
			for next() > 0 { // until its end
			}
			if said, code := wait(); code != 0 {
				t.Errorf("it ended with %d: %s", code, said)
			}
			w.want("", "", "exec", "build", "--", "rm", "/tmp/enough")
		})
	}
	t.Run("for long", func(t *testing.T) {
		next, wait := counting(t)
		if next() != 1 {
			t.Error("it does not begin")
		}
		back := away(t, "kubelet")
		for next() > 0 { // until it gives up
		}
		said, code := wait()
		back()
		how := regexp.MustCompile(`'runtimectl action follow build ([0-9a-f-]+)'`).FindStringSubmatch(said)
		if code != 125 || how == nil {
			t.Fatalf("it ended with %d: %s", code, said)
		}
		w.want("", "", "exec", "build", "--", "touch", "/tmp/enough")
		w.want("1\n2\n3\n", "", "action", "follow", "build", how[1])
	})
	w.want("", "", "rm", "build")
}
