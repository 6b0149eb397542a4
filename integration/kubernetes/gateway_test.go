//go:build kubernetes

package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/actiond/actiond/api"
	actiond "github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/kubernetes/manifests"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
)

// installed is what the manifests make in a namespace of their own, without gateways,
// which the test runs: the kubeconfig of the gateway's account.
func installed(t *testing.T) (space, kubeconfig string) {
	t.Helper()
	return install(t, 0)
}

// install is installed with gateways, and without the egress proxy.
func install(t *testing.T, replicas int) (space, kubeconfig string) {
	t.Helper()
	return installWith(t, manifests.Options{Image: serverImage, Replicas: &replicas, NoEgress: true})
}

// installWith is installed with other options, in a namespace of its own.
func installWith(t *testing.T, o manifests.Options) (space, kubeconfig string) {
	t.Helper()
	space = fmt.Sprintf("agents-%d", time.Now().UnixNano())
	o.Namespace = space
	text, err := manifests.Gateway(o)
	if err != nil {
		t.Fatal(err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", shared.kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		spaces := []string{space}
		if !o.NoEgress {
			spaces = append(spaces, space+"-egress")
		}
		for _, space := range spaces {
			if err := shared.api.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), space, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		of := dynamic.ResourceInterface(objects.Resource(resource))
		if object.GetNamespace() != "" {
			of = objects.Resource(resource).Namespace(object.GetNamespace())
		}
		force := true
		for range 2 { // as a user does who installs the next version
			if _, err := of.Patch(t.Context(), object.GetName(), "application/apply-patch+yaml", data, metav1.PatchOptions{
				FieldManager: "test", Force: &force, FieldValidation: metav1.FieldValidationStrict,
			}); err != nil {
				t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
	awaitAccount(t, space)
	token, err := shared.api.CoreV1().ServiceAccounts(space).CreateToken(t.Context(), "actiond-gateway", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:%s", insecure-skip-tls-verify: true}}]
users: [{name: gateway, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: gateway, namespace: %s}}]
current-context: test
`, apiPort, token.Status.Token, space)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	testhelp.WriteFile(t, kubeconfig, config, 0o600)
	return space, kubeconfig
}

// replica is one of several gateways.
type replica struct {
	driver *kubernetes.Driver
	addr   string
	stop   func() // waits
}

func startReplica(t *testing.T, kubeconfig, key string) *replica {
	t.Helper()
	return serve(t, openAs(t, kubeconfig, kubernetes.Config{ServerImage: serverImage, Agent: agent.Agent{}, Direct: true}), key)
}

// serve runs a gateway until stop, which also closes its driver.
func serve(t *testing.T, d *kubernetes.Driver, key string) *replica {
	t.Helper()
	g, err := gateway.New(gateway.Config{Driver: d, Key: key, Defaults: small})
	if err != nil {
		t.Fatal(err)
	}
	l := testhelp.Listen(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, l) }()
	var once sync.Once
	r := &replica{driver: d, addr: l.Addr().String()}
	r.stop = func() {
		once.Do(func() {
			stop()
			if err := errors.Join(<-served, d.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

// service passes connections on to one of several gateways, as a Service does.
func service(t *testing.T, first string) (url string, to *atomic.Value) {
	t.Helper()
	to = &atomic.Value{}
	to.Store(first)
	l, err := forward("127.0.0.1:0", func() (string, error) { return to.Load().(string), nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String(), to
}

// sandboxBehind makes a sandbox, and returns a client of it through a service that leads to
// the first gateway, until another address is stored in to.
func sandboxBehind(t *testing.T, first *replica) (s *sandbox.Sandbox, c *actiond.Client, to *atomic.Value) {
	t.Helper()
	s, err := first.driver.Create(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	url, to := service(t, first.addr)
	c, err = actiond.New(actiond.Config{BaseURL: url + "/sandboxes/" + s.ID, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return s, c, to
}

// clientOf returns a client of a sandbox without a gateway.
func clientOf(t *testing.T, s *sandbox.Sandbox) *actiond.Client {
	t.Helper()
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.Client(s.Dial, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestGateway runs gateways with the account of the manifests: the contract of actions
// holds through them, an action survives the end of the gateway that took it, and the
// account can do no more than that.
func TestGateway(t *testing.T) { //nolint:tparallel // one test ends a gateway of the others
	t.Parallel()
	space, kubeconfig := installed(t)
	key, err := openAs(t, kubeconfig, kubernetes.Config{Agent: agent.Agent{}}).GatewayKey(t.Context(), "actiond-gateway-key")
	if err != nil {
		t.Fatal(err)
	}
	first, second := startReplica(t, kubeconfig, key), startReplica(t, kubeconfig, key)
	s, c, to := sandboxBehind(t, first)

	t.Run("contract", func(t *testing.T) { contract.Suite(t, c.Do, "/workspace") })
	t.Run("undo", func(t *testing.T) {
		s, c, _ := sandboxBehind(t, first)
		contract.Undo(t, c, "/workspace")
		if err := first.driver.Delete(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
	t.Run("rolling restart", func(t *testing.T) {
		result, limit := make(chan error, 1), 120.0
		go func() {
			o, err := c.Do(t.Context(), api.Request{Key: "survivor", Session: "restart", Timeout: &limit, Action: api.RunAction{
				Command: "echo ran >>/tmp/ran; until [ -e /tmp/go ]; do sleep 0.1; done; cat /tmp/ran",
			}})
			if run, ok := o.(api.RunObservation); err == nil && (!ok || strings.TrimSpace(run.Content) != "ran") {
				err = fmt.Errorf("got %#v", o)
			}
			result <- err
		}()
		direct := clientOf(t, s)
		shell := func(command string) {
			if _, err := direct.Do(t.Context(), api.Request{Session: "other", Action: api.RunAction{Command: command}}); err != nil {
				t.Fatal(err)
			}
		}
		shell("until [ -e /tmp/ran ]; do sleep 0.1; done")
		to.Store(second.addr)
		first.stop()
		shell("touch /tmp/go")
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
	t.Run("rights", func(t *testing.T) {
		access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		own, err := client.NewForConfig(access)
		if err != nil {
			t.Fatal(err)
		}
		other := namespace(t)
		if _, err := shared.api.CoreV1().Secrets(other).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for what, try := range map[string]func() error{
			"another tenant's Secret": func() error {
				_, err := own.CoreV1().Secrets(other).Get(t.Context(), "tenant", metav1.GetOptions{})
				return err
			},
			"Secrets of all": func() error {
				_, err := own.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
				return err
			},
			"another tenant's Secrets": func() error {
				_, err := own.CoreV1().Secrets(other).List(t.Context(), metav1.ListOptions{})
				return err
			},
			"a Pod elsewhere": func() error {
				_, err := own.CoreV1().Pods(other).Create(t.Context(), barePod("attack"), metav1.CreateOptions{})
				return err
			},
			"Pods of all": func() error {
				_, err := own.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
				return err
			},
			"its policies": func() error {
				return own.NetworkingV1().NetworkPolicies(space).Delete(t.Context(), "actiond-sandboxes", metav1.DeleteOptions{})
			},
			"its Role": func() error {
				return own.RbacV1().Roles(space).Delete(t.Context(), "actiond-gateway", metav1.DeleteOptions{})
			},
			"nodes": func() error {
				_, err := own.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
				return err
			},
			"commands in Pods": func() error {
				return own.CoreV1().RESTClient().Post().Resource("pods").Namespace(space).Name("none").SubResource("exec").Param("command", "id").Do(t.Context()).Error()
			},
			"tokens": func() error {
				_, err := own.CoreV1().ServiceAccounts(space).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
				return err
			},
		} {
			if err := try(); !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
		found, err := second.driver.Examine(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			if f.About == "rights" || f.Status == "missing" {
				t.Errorf("%+v", f)
			}
		}
	})
	if err := second.driver.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// TestContractByPortForward is the contract from outside of the cluster.
func TestContractByPortForward(t *testing.T) {
	t.Parallel()
	d := open(t, false)
	s, err := d.Create(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	contract.Suite(t, clientOf(t, s).Do, "/workspace")
	contract.Undo(t, clientOf(t, s), "/workspace")
}

// Doctor says that the network of this node enforces no policies.
func TestDoctor(t *testing.T) {
	t.Parallel()
	space, _ := installed(t)
	d := openAs(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + space, Agent: agent.Agent{}, ServerImage: serverImage})
	found, err := d.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found { // where the machine has a public address, the API server has it too
		if f.About == "network" && f.Status != "ok" && !strings.Contains(f.Text, "reach the API server at ") {
			t.Errorf("%+v", f)
		}
	}
	for _, want := range []sandbox.Finding{
		{Status: "weaker", About: "network plugin", Text: "no network plugin that enforces policies was found"},
		{Status: "weaker", About: "processes", Text: "do not limit the processes of a Pod: node"},
		{Status: "weaker", About: "user namespaces", Text: "these nodes: node"},
	} {
		there := false
		for _, f := range found {
			there = there || f.Status == want.Status && f.About == want.About && strings.Contains(f.Text, want.Text)
		}
		if !there {
			t.Errorf("%+v is not among %+v", want, found)
		}
	}
}
