//go:build kubernetes

package kubernetes_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/kubernetes/manifests"
	"github.com/actiond/actiond/sandbox"
	"github.com/actiond/actiond/sandbox/agent"
	"github.com/actiond/actiond/sandbox/drivertest"
)

// podRange is the range of the addresses of Pods.
var podRange = netip.MustParsePrefix("10.244.77.0/24")

// egressPods are the Pods of the egress proxy that are ready.
func egressPods(ctx context.Context, space string) (ready []corev1.Pod, err error) {
	list, err := shared.api.CoreV1().Pods(space+"-egress").List(ctx, metav1.ListOptions{LabelSelector: "actiond.dev/component=egress"})
	if err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready = append(ready, pod)
		}
	}
	return ready, nil
}

func awaitEgress(t *testing.T, space string) {
	t.Helper()
	if err := shared.await("the egress proxy", "kubelet", func(ctx context.Context) error {
		ready, err := egressPods(ctx, space)
		if err == nil && len(ready) == 0 {
			err = errors.New("it is not ready")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// withEgress installs the manifests with the egress proxy and without gateways, and is the Service of
// the proxy, as kube-proxy would be.
func withEgress(t *testing.T) (space, kubeconfig string) {
	t.Helper()
	none := 0
	space, kubeconfig = installWith(t, manifests.Options{Image: serverImage, Replicas: &none})
	service, err := shared.api.CoreV1().Services(space+"-egress").Get(t.Context(), "actiond-egress", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := service.Spec.ClusterIP + "/32"
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "add", address, "dev", nodeLink).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx := context.WithoutCancel(t.Context())
	l, err := forward(service.Spec.ClusterIP+":3128", func() (string, error) {
		ready, err := egressPods(ctx, space)
		if err != nil || len(ready) == 0 {
			return "", errors.New("no egress proxy is ready")
		}
		return ready[0].Status.PodIP + ":3128", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		if out, err := exec.CommandContext(ctx, "ip", "address", "del", address, "dev", nodeLink).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	awaitEgress(t, space)
	return space, kubeconfig
}

// target runs a Pod with a web server at port 80 and an echo at port 7, and returns its address.
func target(t *testing.T, space string) string {
	t.Helper()
	pods := shared.api.CoreV1().Pods(space)
	if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "target"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "target", Image: busyboxImage, ImagePullPolicy: corev1.PullNever,
		Command: []string{"sh", "-c", "mkdir /tmp/www; echo welcome >/tmp/www/index.html; httpd -p 80 -h /tmp/www; exec nc -ll -p 7 -e cat"},
	}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var address string
	if err := shared.await("the target", "kubelet", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "target", metav1.GetOptions{})
		if err != nil {
			return err
		}
		address = pod.Status.PodIP
		for _, port := range []string{"80", "7"} {
			conn, err := net.Dial("tcp", net.JoinHostPort(address, port))
			if err != nil {
				return err
			}
			conn.Close()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return address
}

// connect asks the egress proxy for a target with a token, as root of a sandbox could. The status is
// 0 where no proxy answers.
func connect(t *testing.T, proxy, token, to string) (conn net.Conn, status int) {
	t.Helper()
	opened, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, 0
	}
	t.Cleanup(func() { opened.Close() })
	header := ""
	if token != "" {
		header = "Proxy-Authorization: Bearer " + token + "\r\n"
	}
	fmt.Fprintf(opened, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", to, to, header)
	answer, err := http.ReadResponse(bufio.NewReaderSize(opened, 16), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, 0
	}
	defer answer.Body.Close() // which is not the connection
	return opened, answer.StatusCode
}

// tokenOf reads the token of a sandbox where the driver keeps it.
func tokenOf(t *testing.T, space string, s *sandbox.Sandbox) string {
	t.Helper()
	secret, err := shared.api.CoreV1().Secrets(space).Get(t.Context(), "sandbox-"+s.ID, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ Token string }
	if err := json.Unmarshal(secret.Data["record"], &record); err != nil || record.Token == "" {
		t.Fatalf("no token: %v", err)
	}
	return record.Token
}

// TestNetworkPolicy: a sandbox reaches what its policy admits through the egress proxy of the cluster,
// which knows it by a token that its agent cannot read. It runs with the rights of the manifests.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	space, kubeconfig := withEgress(t)
	d := openIn(t, kubeconfig, kubernetes.Config{Direct: true})
	to := target(t, space)
	spec := small
	spec.Policy, spec.Private = &egress.Policy{Mode: egress.ModeAllowlist, Allow: drivertest.Rules(t, to)}, []netip.Prefix{podRange}
	made := func(spec sandbox.Spec) *sandbox.Sandbox {
		s, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := made(spec)
	spec.Policy, spec.Private = &egress.Policy{Mode: egress.ModeNoNetwork}, nil
	b := made(spec)
	do := func(command string) (content string, n *api.Network) {
		t.Helper()
		key, err := a.Key()
		if err != nil {
			t.Fatal(err)
		}
		c, err := agent.Client(a.Dial, key)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: command}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(api.Content(o)), api.NetworkOf(o)
	}
	want := func(what, command, text string) *api.Network {
		t.Helper()
		content, n := do(command)
		if !strings.Contains(content, text) {
			t.Errorf("%s: got %q, want %q", what, content, text)
		}
		return n
	}
	if n := want("an address that the policy admits", "wget -q -O- http://"+to+"/", "welcome"); n != nil {
		t.Errorf("denied: %+v", n)
	}
	n := want("a host that it refuses", "wget -q -O- http://evil.example/ 2>&1", "403")
	if n == nil || len(n.Denied) != 1 || n.Denied[0].Host != "evil.example" || n.Denied[0].Port != 80 || n.Denied[0].Reason != "not in the allow list" ||
		n.Denied[0].Process != "wget" && n.Denied[0].Process != "busybox" || !n.Attributed {
		t.Errorf("denied: %+v", n)
	}
	if all, err := d.Denied(t.Context(), a, 0, 0); err != nil || len(all) != 1 || all[0].Host != "evil.example" {
		t.Errorf("Denied: %+v, %v", all, err)
	}
	if n, err := d.Network(t.Context(), a); err != nil || n.Names != "on" {
		t.Errorf("names: %+v, %v", n, err)
	}
	if n := want("by a program that knows no proxy", "http_proxy= wget -q -O- http://evil.example/ 2>&1", "403"); n == nil || len(n.Denied) != 1 || n.Denied[0].Host != "evil.example" {
		t.Errorf("denied: %+v", n)
	}

	service, err := shared.api.CoreV1().Services(space+"-egress").Get(t.Context(), "actiond-egress", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	proxy := service.Spec.ClusterIP + ":3128"
	want("the proxy without a token", "http_proxy=http://"+proxy+" wget -q -O- http://"+to+"/ 2>&1", "407")
	token, other := tokenOf(t, space, a), tokenOf(t, space, b)
	secret, otherSecret := strings.TrimPrefix(token, a.ID+"."), strings.TrimPrefix(other, b.ID+".")
	// Nothing that the agent's user may read has the token; the pattern does not match itself.
	pattern := "[" + secret[:1] + "]" + secret[1:]
	want("the token", "grep -rls '"+pattern+"' /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/mem /etc /tmp /run /var /root /.actiond 2>/dev/null; env | grep '"+pattern+"'; id -u; echo searched", "searched")
	if content, _ := do("{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; cat $(find / -xdev -type f -size -64k 2>/dev/null); } 2>/dev/null | grep -c '" + pattern + "'; id -u"); !strings.HasPrefix(content, "0\n") || strings.HasSuffix(content, "\n0") {
		t.Errorf("found the token, or searched as root: %q", content)
	}
	for name, try := range map[string]struct {
		token string
		want  int
	}{
		"its own": {token, http.StatusOK}, "none": {"", http.StatusProxyAuthRequired}, "that of another sandbox": {other, http.StatusForbidden},
		"its id with the other's secret": {a.ID + "." + otherSecret, http.StatusProxyAuthRequired}, "its hash": {a.ID + "." + egress.HashToken(token), http.StatusProxyAuthRequired},
		"the other's id with its secret": {b.ID + "." + secret, http.StatusProxyAuthRequired},
	} {
		if conn, status := connect(t, proxy, try.token, to+":7"); status != try.want || status == http.StatusOK && !testhelp.Echoes(conn) {
			t.Errorf("with token %s: got %d, want %d", name, status, try.want)
		}
	}
	for _, never := range []string{"169.254.169.254:80", nodeIP + ":21250", apiService + ":443", "127.0.0.1:3129"} {
		if _, status := connect(t, proxy, token, never); status != http.StatusForbidden {
			t.Errorf("%s: got %d", never, status)
		}
	}

	// From outside of the cluster the proxy is asked by port forwarding.
	outside := openIn(t, shared.kubeconfig(), kubernetes.Config{Cluster: "test/" + space})
	if n, err := outside.Network(t.Context(), a); err != nil || !n.Up || n.Generation != 1 || n.Denied == 0 {
		t.Errorf("by port forwarding: %+v, %v", n, err)
	}

	conn, status := connect(t, proxy, token, to+":7")
	if status != http.StatusOK || !testhelp.Echoes(conn) {
		t.Fatalf("the echo: %d", status)
	}
	changed, err := d.SetNetwork(t.Context(), a, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModeNoNetwork; return nil })
	if err != nil || !changed.Up || changed.Generation != 2 || changed.Open != 0 {
		t.Errorf("SetNetwork: %+v, %v", changed, err)
	}
	if !testhelp.Ended(conn) {
		t.Error("a connection outlived the policy that admits it")
	}
	want("the same address then", "wget -q -O- http://"+to+"/ 2>&1", "403")
	if _, err := d.SetNetwork(t.Context(), a, func(n *sandbox.Network) error { n.Policy.Mode = egress.ModeAllowlist; return nil }); err != nil {
		t.Fatal(err)
	}

	// Without the proxy all is closed, and said not to be a rule; the next one knows the policies by itself.
	if conn, status = connect(t, proxy, token, to+":7"); status != http.StatusOK || !testhelp.Echoes(conn) {
		t.Fatalf("the echo: %d", status)
	}
	pods, err := egressPods(t.Context(), space)
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	killed := pods[0]
	now := int64(0)
	if err := shared.api.CoreV1().Pods(killed.Namespace).Delete(t.Context(), killed.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	if !testhelp.Ended(conn) {
		t.Error("a connection outlived the egress proxy")
	}
	if content, n := do("wget -q -O- http://" + to + "/ 2>&1"); !strings.Contains(content, "welcome") && (!strings.Contains(content, "503") || n != nil) {
		t.Errorf("without the proxy: %q, %+v", content, n)
	}
	awaitEgress(t, space)
	want("the next proxy", "wget -q -O- http://"+to+"/", "welcome")
	if n, err := d.Network(t.Context(), a); err != nil || !n.Up || n.Generation != 3 {
		t.Errorf("after that: %+v, %v", n, err)
	}

	// The cluster's network plugin enforces policies. The one of these tests enforces nothing, and doctor says so.
	direct, _ := do("nc -w 5 " + to + " 7 </dev/null && echo reached")
	found, err := outside.Examine(t.Context())
	if err != nil {
		t.Error(err)
	}
	unenforced := slices.ContainsFunc(found, func(f sandbox.Finding) bool {
		return f.About == "network plugin" && f.Status == "weaker" && strings.Contains(f.Text, "or a network policy too")
	})
	t.Logf("past the proxy the target is reached: %t; doctor says that nothing enforces policies: %t", direct == "reached", unenforced)
	if direct == "reached" && !unenforced {
		t.Errorf("doctor does not say that the policies are not enforced: %+v", found)
	}
	if !slices.ContainsFunc(found, func(f sandbox.Finding) bool {
		return f.About == "network policies" && f.Status == "ok" && strings.Contains(f.Text, space+"-egress")
	}) {
		t.Errorf("doctor about the proxy: %+v", found)
	}

	testNetworkWords(t, space, to)
	if err := errors.Join(d.Delete(t.Context(), a), d.Delete(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	left, err := shared.api.CoreV1().Secrets(space+"-egress").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
	testhelp.Eventually(t, func() bool {
		_, status := connect(t, proxy, token, to+":7")
		return status == http.StatusProxyAuthRequired
	}, "the egress proxy has forgotten the sandbox")
}

// TestNetworkSecret: the egress proxy of the cluster opens TLS to a host that has a secret, and sends it
// there; the sandbox has a placeholder, and trusts its own authority.
func TestNetworkSecret(t *testing.T) {
	t.Parallel()
	space, kubeconfig := withEgress(t)
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%d letters: %s", len(r.Header.Get("Authorization")), r.Header.Get("Authorization"))
	}))
	address := bridgeAddress(t)
	l, err := net.Listen("tcp", net.JoinHostPort(address, "443"))
	if err != nil {
		t.Fatal(err)
	}
	upstream.Listener.Close()
	upstream.Listener = l
	upstream.StartTLS() // its certificate is for example.com
	defer upstream.Close()
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: upstream.Certificate().Raw})
	if _, err := shared.api.CoreV1().ConfigMaps(space+"-egress").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "actiond-egress-roots"}, Data: map[string]string{"ca-certificates.crt": string(roots)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	before, err := egressPods(t.Context(), space)
	if err != nil || len(before) != 1 {
		t.Fatal(before, err)
	}
	// There is no name server in the cluster of these tests.
	patch := fmt.Sprintf(`{"spec": {"template": {"spec": {"hostAliases": [{"ip": %q, "hostnames": ["example.com"]}]}}}}`, address)
	if _, err := shared.api.AppsV1().Deployments(space+"-egress").Patch(t.Context(), "actiond-egress", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := shared.await("the next egress proxy", "kubelet", func(ctx context.Context) error {
		ready, err := egressPods(ctx, space)
		if err == nil && (len(ready) != 1 || ready[0].UID == before[0].UID) {
			err = errors.New("it is not ready")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	host, err := egress.ParseHost("example.com")
	if err != nil {
		t.Fatal(err)
	}
	const value = "sesame-open-the-door"
	spec := small
	spec.Policy = &egress.Policy{Mode: egress.ModeAllowlist, Secrets: []egress.Secret{{Name: "API", Hosts: []egress.Host{host}, Var: "API_KEY", Value: value}}}
	spec.Private = []netip.Prefix{podRange}
	d := openIn(t, kubeconfig, kubernetes.Config{Direct: true})
	s, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	service, err := shared.api.CoreV1().Services(space+"-egress").Get(t.Context(), "actiond-egress", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.Client(s.Dial, key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	o, err := c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "cat $SSL_CERT_FILE; echo $API_KEY"}})
	if err != nil {
		t.Fatal(err)
	}
	content := api.Content(o)
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM([]byte(content)) || !strings.Contains(content, "actiond-secret-API") || strings.Contains(content, value) {
		t.Fatalf("the sandbox has %s", content)
	}
	conn, status := connect(t, service.Spec.ClusterIP+":3128", tokenOf(t, space, s), "example.com:443")
	if status != http.StatusOK {
		t.Fatalf("got %d", status)
	}
	inside := tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "example.com"})
	fmt.Fprint(inside, "GET / HTTP/1.1\r\nHost: example.com\r\nAuthorization: Bearer actiond-secret-API\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(inside)
	if err != nil || !strings.Contains(string(answer), fmt.Sprintf("%d letters", len("Bearer "+value))) || strings.Contains(string(answer), value) {
		t.Errorf("got %s, %v", answer, err)
	}
	if n, err := d.Network(t.Context(), s); err != nil || len(n.Policy.Secrets) != 1 || n.Policy.Secrets[0].Value != "" {
		t.Errorf("Network: %+v, %v", n, err)
	}
	if err := d.Delete(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// bridgeAddress is the address of this machine on the bridge of Pods.
func bridgeAddress(t *testing.T) string {
	t.Helper()
	link, err := net.InterfaceByName(podBridge)
	if err != nil {
		t.Fatal(err)
	}
	all, err := link.Addrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && podRange.Contains(prefix.Addr()) {
			return prefix.Addr().String()
		}
	}
	t.Fatalf("%s has the addresses %v", podBridge, all)
	return ""
}

// testNetworkWords makes and changes policies by the command line, from outside of the cluster. to is the
// target, which is in podRange.
func testNetworkWords(t *testing.T, space, to string) {
	t.Helper()
	w := newWords(t)
	secret := filepath.Join(t.TempDir(), "secret")
	testhelp.WriteFile(t, secret, "sesame-open-the-door", 0o600)
	w.env = append(w.env, "ACTIOND_ON=kubernetes:test/"+space, "ACTIOND_STATE_DIR="+t.TempDir())
	policy := []string{"--pull", "never", "--memory", "64m", "--allow", to, "--private", podRange.String()}
	fetch := []string{"exec", "words", "--", "wget", "-q", "-O-", "http://" + to + "/"}

	pool := w.begin("is kept warm", append(append([]string{"pool"}, policy...), busyboxImage)...)
	w.want("", "", append(append([]string{"create", "--name", "words", "--secret", "id=API,src=" + secret + ",host=api.example"}, policy...), busyboxImage)...)
	w.want("welcome", "", fetch...)
	w.want("API to api.example", "", "network", "words")
	w.want("no-network", "", "network", "--mode", "no-network", "words")
	if out, said, code := w.try("", fetch...); code == 0 || !strings.Contains(said, "403") {
		t.Errorf("in mode no-network: %d, %s", code, out)
	}
	w.want("allowlist", "", "network", "--mode", "allowlist", "--allow", "b.example:443", "--remove", to, "--remove-secret", "API", "words")
	w.want("b.example:443", "", "network", "words")
	if out, _, code := w.try("", "network", "--check", to+":80", "words"); code != 1 || !strings.Contains(out, "denied") {
		t.Errorf("the removed rule: %d, %s", code, out)
	}
	w.want("words", "", "inspect", "words", "-o", "json")

	until(t, "a sandbox of the pool is ready", func() bool {
		out, _, _ := w.try("", "ls", "--filter", "pool=default", "--filter", "state=ready", "--quiet")
		return out != ""
	})
	if _, said, code := w.try("", append(append([]string{"create", "--name", "warm", "--pool", "default"}, policy...), busyboxImage)...); code != 0 || strings.Contains(said, "this one was made") {
		t.Errorf("a claim: %d, %s", code, said)
	}
	fetch[1] = "warm"
	w.want("welcome", "", fetch...)
	pool()
	w.begin("http://", "serve", "--addr", "127.0.0.1:0", "--secret", "id=API,src="+secret+",host=api.example", "--private", podRange.String())()
	w.want("", "", "rm", "words", "warm")
}
