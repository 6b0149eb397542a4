//go:build kubernetes

package kubernetes_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// mortal counts the steps of a caller that change something: its calls of the API server,
// which come by its proxy, and of sandboxes' servers. In one step the caller dies: no later
// step is carried out. A death between two of them, in what only reads, leaves the same.
type mortal struct {
	agent.Agent

	last  int    // the step in which it dies
	after bool   // that step is carried out, and its answer lost
	die   func() // ends the caller's waits

	mu    sync.Mutex
	steps int
	name  string // of the last step, once it came
}

var errDead = errors.New("the caller died")

// step reports whether a step is carried out, and whether the caller gets the answer.
func (m *mortal) step(name string) (do, tell bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps++
	if m.steps == m.last {
		m.name = name
	}
	return m.steps < m.last || m.steps == m.last && m.after, m.steps < m.last
}

func (m *mortal) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.steps >= m.last
}

func (m *mortal) ask(ctx context.Context, name string, dial sandbox.DialFunc, ask func() error) error {
	conn, err := dial(ctx)
	if err != nil { // a server that does not listen yet is asked again: that is the same step
		return err
	}
	_ = conn.Close()
	do, tell := m.step(name)
	if do {
		err = ask()
	}
	if !tell {
		m.die()
		return errDead
	}
	return err
}

func (m *mortal) Claim(ctx context.Context, dial sandbox.DialFunc, c sandbox.Claim) error {
	return m.ask(ctx, "claim", dial, func() error { return m.Agent.Claim(ctx, dial, c) })
}

func (m *mortal) Ready(ctx context.Context, dial sandbox.DialFunc, key string) error {
	return m.ask(ctx, "the first command", dial, func() error { return m.Agent.Ready(ctx, dial, key) })
}

// proxy passes the caller's calls on to the API server, and returns a kubeconfig for it.
func (m *mortal) proxy(t *testing.T) (kubeconfig string) {
	t.Helper()
	return proxied(t, func(pass *httputil.ReverseProxy) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && !m.dead() {
				pass.ServeHTTP(w, r)
				return
			}
			do, tell := m.step(r.Method + " " + r.URL.Path)
			if tell {
				pass.ServeHTTP(w, r)
				return
			}
			if do {
				pass.ServeHTTP(httptest.NewRecorder(), r)
			}
			http.Error(w, errDead.Error(), http.StatusInternalServerError)
			m.die()
		}
	})
}

// proxied returns a kubeconfig for a proxy that handles calls by passing them on to the API
// server.
func proxied(t *testing.T, handler func(pass *httputil.ReverseProxy) http.HandlerFunc) (kubeconfig string) {
	t.Helper()
	target, err := url.Parse("https://127.0.0.1:" + apiPort)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+adminToken) // client-go sends none without TLS
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // HTTP/2 upgrades no connection
	}
	server := httptest.NewServer(handler(pass))
	t.Cleanup(func() {
		server.CloseClientConnections() // watches
		server.Close()
	})
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, server.URL, adminToken)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	testhelp.WriteFile(t, kubeconfig, config, 0o600)
	return kubeconfig
}

// openLater is a driver for which the API server's clock is so late that Prune takes callers
// for dead, and no pool is old yet.
func openLater(t *testing.T, space string) *kubernetes.Driver {
	t.Helper()
	return openIn(t, proxied(t, func(pass *httputil.ReverseProxy) http.HandlerFunc {
		pass.ModifyResponse = func(r *http.Response) error {
			at, err := http.ParseTime(r.Header.Get("Date"))
			r.Header.Set("Date", at.Add(sandbox.PoolAge/2).Format(http.TimeFormat))
			return err
		}
		return pass.ServeHTTP
	}), kubernetes.Config{Cluster: "test/" + space, Direct: true})
}

// objects are the Pods of a namespace that are not being removed, and its Secrets.
func objects(t *testing.T, space string) (pods []corev1.Pod, secrets []corev1.Secret) {
	t.Helper()
	all, err := shared.api.CoreV1().Pods(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range all.Items {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	kept, err := shared.api.CoreV1().Secrets(space).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pods, kept.Items
}

// consistent reports whether there is at most one Pod, whose sandbox is ready and whose Secret is the only one, and says what
// there is.
func consistent(t *testing.T, d sandbox.Driver, space string) (there int, ok bool, found string) {
	t.Helper()
	pods, secrets := objects(t, space)
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ok = len(pods) == len(secrets) && len(pods) <= 1 && len(all) == len(pods)
	for i := range min(len(pods), len(secrets), len(all)) {
		owners := secrets[i].OwnerReferences
		ok = ok && all[i].State == sandbox.Ready && secrets[i].Name == "sandbox-"+all[i].ID && len(owners) == 1 && owners[0].UID == pods[i].UID
	}
	for _, pod := range pods {
		found += fmt.Sprintf("Pod %s: %v\n", pod.Name, pod.Annotations)
	}
	for _, secret := range secrets {
		found += fmt.Sprintf("Secret %s of %v\n", secret.Name, secret.OwnerReferences)
	}
	return len(pods), ok, found
}

// dies runs work as callers that die before and after each of its steps, until it has no
// more steps. prepare makes what work needs. After a caller that got no answer Prune
// leaves one sandbox or none; after one that died before a step the next caller with the
// key gets exactly one.
func dies(t *testing.T, prepare func(d *kubernetes.Driver), work func(ctx context.Context, d *kubernetes.Driver, spec sandbox.Spec) error) {
	t.Helper()
	space := namespace(t)
	healthy := openIn(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + space, Direct: true})
	later := openLater(t, space)
	for last := 1; ; last++ {
		for _, after := range []bool{false, true} {
			prepare(healthy)
			ctx, die := context.WithCancel(t.Context())
			m := &mortal{last: last, after: after, die: die}
			caller := openIn(t, m.proxy(t), kubernetes.Config{Cluster: "test/" + space, Direct: true, Agent: m})
			spec := small
			spec.Key = fmt.Sprint("step ", last, after)
			spec.Name = fmt.Sprintf("step-%d-%v", last, after)
			err := work(ctx, caller, spec)
			die()
			if m.name == "" {
				if err != nil {
					t.Errorf("without a death: %v", err)
				}
				return
			}
			m.name = strings.ReplaceAll(m.name, space, "SPACE")
			if after {
				testhelp.Eventually(t, func() bool { // its list of Pods may be older than the last step: then the next one finds them
					removed, err := later.Prune(t.Context(), false)
					if err != nil {
						t.Errorf("Prune after the death in step %d: %v", last, err)
					}
					there, ok, found := consistent(t, healthy, space)
					t.Logf("step %d, carried out: %s: Prune leaves %d sandboxes, removed %v\n%s", last, m.name, there, removed, found)
					return ok
				}, "Prune leaves one sandbox or none")
			} else {
				s, err := healthy.Create(t.Context(), spec)
				if err != nil || s.ID != sandbox.ID(spec.Key) {
					t.Errorf("the next caller after the death in step %d: %v, %v", last, s, err)
				}
				for _, member := range members(t, healthy) { // of the pool, where the claimer did not come so far
					if err := healthy.Discard(t.Context(), member); err != nil {
						t.Error(err)
					}
				}
				if s != nil && s.Instance != "" { // the record of a Pod in the pool goes by Prune
					if _, err := later.Prune(t.Context(), false); err != nil {
						t.Error(err)
					}
				}
				there, ok, found := consistent(t, healthy, space)
				t.Logf("step %d, not carried out: %s: the next caller gets one of %d", last, m.name, there)
				if there != 1 || !ok {
					t.Errorf("step %d: %d sandboxes\n%s", last, there, found)
				}
			}
			all, err := healthy.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if err := healthy.Delete(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// members are the sandboxes that wait in a pool.
func members(t *testing.T, d sandbox.Driver) (members []*sandbox.Sandbox) {
	t.Helper()
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Pool != "" {
			members = append(members, s)
		}
	}
	return members
}

// A creator dies in each step.
func TestCreatorDies(t *testing.T) {
	t.Parallel()
	dies(t, func(*kubernetes.Driver) {}, func(ctx context.Context, d *kubernetes.Driver, spec sandbox.Spec) error {
		_, err := d.Create(ctx, spec)
		return err
	})
}

// A claimer of a warm sandbox dies in each step.
func TestClaimerDies(t *testing.T) {
	t.Parallel()
	var warm []*sandbox.Sandbox
	dies(t, func(d *kubernetes.Driver) {
		if err := d.Warm(t.Context(), "p", small); err != nil {
			t.Fatal(err)
		}
		warm = members(t, d)
	}, func(ctx context.Context, d *kubernetes.Driver, spec sandbox.Spec) error {
		s, _, err := d.Claim(ctx, spec, warm)
		if err == nil && s == nil {
			err = errors.New("there was none")
		}
		return err
	})
}
