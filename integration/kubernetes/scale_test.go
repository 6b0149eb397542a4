//go:build kubernetes && scale

package kubernetes_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/kubernetes"
	"github.com/actiond/actiond/sandbox"
)

const (
	kwokModule = "sigs.k8s.io/kwok@v0.8.0"
	fakeNodes  = 1000
	creators   = 16 // creations at a time
	warmSize   = 20 // sandboxes in the pool
	pageSize   = 1000
)

func init() { //nolint:gochecknoinits // before the cluster is started
	// Other tests may run beside it.
	controlOnly, etcdURL, etcdPeerURL, apiPort = true, "http://127.0.0.1:23791", "http://127.0.0.1:23801", "26444"
	// Controllers and the scheduler are not what is measured. Fake nodes report seldom.
	controllerFlags = []string{"--kube-api-qps=1000", "--kube-api-burst=2000", "--node-monitor-grace-period=12h", "--node-startup-grace-period=12h"}
	schedulerFlags = []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
}

// answering is an agent of servers that always answer: those of fake nodes do not run.
type answering struct{ sandbox.Agent }

func (answering) Ready(context.Context, sandbox.DialFunc, string) error { return nil }

func (answering) Claim(context.Context, sandbox.DialFunc, sandbox.Claim) error { return nil }

func (answering) Renew(context.Context, sandbox.DialFunc, string, string, time.Duration) error {
	return nil
}

// TestScale measures what the driver and a gateway cost as the sandboxes of a namespace
// become more. Nodes and servers are faked, the control plane is real.
func TestScale(t *testing.T) {
	var sizes []int
	for word := range strings.FieldsSeq(cmp.Or(os.Getenv("ACTIOND_SCALE"), "100 1000")) {
		size, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, size)
	}
	startFakeNodes(t)
	space := namespace(t)
	w := newWords(t)
	meter := startMeter(t, "127.0.0.1:"+apiPort)
	config := testhelp.ReadFile(t, shared.kubeconfig())
	metered := filepath.Join(t.TempDir(), "kubeconfig")
	testhelp.WriteFile(t, metered, bytes.ReplaceAll(config, []byte(apiPort), []byte(meter.port)), 0o600)
	w.env = append(w.env, "KUBECONFIG="+metered, "ACTIOND_ON=kubernetes:test/"+space)
	t.Setenv("KUBECONFIG", shared.kubeconfig())
	maker := openScale(t, space)
	t.Setenv("KUBECONFIG", metered)

	table := &figures{}
	for i, size := range sizes {
		table.sizes = append(table.sizes, size)
		table.add("create one, "+strconv.Itoa(creators)+" at a time (ms)", grow(t, maker, size))
		measureLists(t, table, w, meter, space)
		measureGateway(t, table, w, meter)
		measureClaims(t, table, meter, space)
		measurePrune(t, table, meter, space, size)
		t.Logf("after %d of %d sizes:\n%s", i+1, len(sizes), table)
	}
}

func openScale(t *testing.T, space string) *kubernetes.Driver {
	t.Helper()
	d, err := kubernetes.Open(kubernetes.Config{Cluster: "test/" + space, ServerImage: serverImage, Agent: answering{}, Direct: true, ReadyTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// startFakeNodes starts the program that plays nodes and their Pods.
func startFakeNodes(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", kwokModule).Output()
	if err != nil {
		t.Fatalf("getting %s: %v: %s", kwokModule, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	program, version, _ := strings.Cut(kwokModule, "@")
	install := exec.CommandContext(t.Context(), "go", "install", "-trimpath", program+"/cmd/kwok@"+version)
	install.Env = append(os.Environ(), "GOBIN="+shared.dir)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("building kwok: %v: %s", err, out)
	}
	var config bytes.Buffer
	for _, stage := range []string{"node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease", "pod/fast/pod-ready", "pod/fast/pod-delete"} {
		text := testhelp.ReadFile(t, filepath.Join(module.Dir, "kustomize/stage", stage+".yaml"))
		fmt.Fprintf(&config, "---\n%s\n", text)
	}
	testhelp.WriteFile(t, shared.path("kwok.yaml"), config.Bytes(), 0o600)
	if err := shared.start("kwok", shared.path("kwok"), "--kubeconfig", shared.kubeconfig(), "--config", shared.path("kwok.yaml"),
		"--manage-all-nodes=true", "--node-lease-duration-seconds=40000"); err != nil {
		t.Fatal(err)
	}
	size := corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("110")}
	for i := range fakeNodes {
		name := fmt.Sprintf("fake-%04d", i)
		if _, err := shared.api.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Allocatable: size, Capacity: size},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := shared.await("the fake nodes", "kwok", func(ctx context.Context) error {
		nodes, err := shared.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		ready := 0
		for i := range nodes.Items {
			if len(nodes.Items[i].Spec.Taints) == 0 {
				ready++
			}
		}
		if ready < fakeNodes {
			return fmt.Errorf("%d nodes of %d take Pods", ready, fakeNodes)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// meter passes connections on and counts the bytes that come back.
type meter struct {
	port  string
	bytes atomic.Int64
}

func startMeter(t *testing.T, to string) *meter {
	t.Helper()
	l := testhelp.Listen(t)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{port: port}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go func() {
				_, _ = io.Copy(io.MultiWriter(client, m), server)
				_ = client.Close()
			}()
		}
	}()
	return m
}

// Write counts.
func (m *meter) Write(p []byte) (int, error) {
	m.bytes.Add(int64(len(p)))
	return len(p), nil
}

// during is how many MB came while do ran.
func (m *meter) during(do func()) float64 {
	before := m.bytes.Load()
	do()
	return float64(m.bytes.Load()-before) / 1e6
}

// figures are a table with a column for each size.
type figures struct {
	sizes []int
	names []string
	rows  map[string][]float64
}

func (f *figures) add(name string, value float64) {
	if f.rows == nil {
		f.rows = map[string][]float64{}
	}
	if !slices.Contains(f.names, name) {
		f.names = append(f.names, name)
	}
	f.rows[name] = append(f.rows[name], value)
}

// String is the table, with the exponent of each row.
func (f *figures) String() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, size := range f.sizes {
		fmt.Fprintf(&b, " %d |", size)
	}
	b.WriteString(" exponent |\n")
	for _, name := range f.names {
		fmt.Fprintf(&b, "| %s |", name)
		for _, value := range f.rows[name] {
			fmt.Fprintf(&b, " %.3g |", value)
		}
		fmt.Fprintf(&b, " %.2f |\n", f.exponent(name))
	}
	return b.String()
}

// exponent is the slope of the straight line through the logarithms, by least squares.
func (f *figures) exponent(name string) float64 {
	var x, y, xx, xy, n float64
	for i, value := range f.rows[name] {
		if value <= 0 {
			continue
		}
		a, b := math.Log(float64(f.sizes[i])), math.Log(value)
		x, y, xx, xy, n = x+a, y+b, xx+a*a, xy+a*b, n+1
	}
	return (n*xy - x*y) / (n*xx - x*x)
}

// median is the middle of some runs, in milliseconds.
func median(t *testing.T, runs int, do func() error) float64 {
	t.Helper()
	var all []float64
	for range runs {
		begun := time.Now()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(begun).Seconds()*1000)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// scaleSpec is what all sandboxes are made of.
func scaleSpec() sandbox.Spec {
	return sandbox.Spec{Image: busyboxImage, Memory: 512 << 20, Labels: map[string]string{"team": "scale"}, Owner: "scale"}
}

// grow makes sandboxes until there are size, and returns the mean time of one.
func grow(t *testing.T, d *kubernetes.Driver, size int) float64 {
	t.Helper()
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	missing := int64(size - len(all))
	var left, took atomic.Int64
	left.Store(missing)
	var group sync.WaitGroup
	for range creators {
		group.Go(func() {
			for left.Add(-1) >= 0 && !t.Failed() {
				begun := time.Now()
				if _, err := d.Create(t.Context(), scaleSpec()); err != nil {
					t.Error(err)
				}
				took.Add(time.Since(begun).Milliseconds())
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return float64(took.Load()) / float64(max(missing, 1))
}

// measureLists measures a process that asks once.
func measureLists(t *testing.T, table *figures, w *words, m *meter, space string) {
	t.Helper()
	d := openScale(t, space)
	list := func() error { _, err := d.List(t.Context()); return err }
	table.add("list, pages from the API server (ms)", median(t, 5, list))
	table.add("list, pages from the API server (MB received)", m.during(func() { median(t, 1, list) }))
	table.add("runtimectl ls (ms)", median(t, 3, func() error {
		cmd := exec.CommandContext(t.Context(), w.program, "ls")
		cmd.Env = w.env
		return cmd.Run()
	}))
}

// measureGateway measures 'runtimectl serve'.
func measureGateway(t *testing.T, table *figures, w *words, m *meter) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	secret := strings.Repeat("k", 40)
	testhelp.WriteFile(t, key, secret, 0o600)
	serve := exec.CommandContext(t.Context(), w.program, "serve", "--key-file", key, "--addr", "127.0.0.1:0", busyboxImage)
	serve.Env = w.env
	serve.Stderr = os.Stderr
	out, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(url string, into any) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-Api-Key", secret)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			return errors.Join(err, fmt.Errorf("%s: %d %s", url, answer.StatusCode, data))
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(data, into)
	}
	type page struct {
		Sandboxes []struct{ ID string }
		Next      string
	}
	var url string
	var first page
	begun := time.Now()
	table.add("gateway: start until its lists need no call (MB received)", m.during(func() {
		if err := serve.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		url = strings.TrimSpace(line) + "/v1/sandboxes"
		for { // until nothing but heartbeats comes from the API server
			received := m.during(func() {
				if err := ask(url+"?limit=100", &first); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second) // the first round of the reaper
			})
			if received < 0.01 {
				break
			}
		}
	}))
	t.Logf("the gateway was ready after %v", time.Since(begun))
	table.add("gateway: 10 s without requests (MB received)", m.during(func() { time.Sleep(10 * time.Second) }))
	received := m.during(func() {
		table.add("gateway: GET a page of 100 (ms)", median(t, 21, func() error { return ask(url+"?limit=100", nil) }))
		table.add("gateway: GET all in pages of 1000 (ms)", median(t, 3, func() error {
			for p := (page{Next: "0-000000000000"}); p.Next != ""; {
				next := p.Next
				p = page{}
				if err := ask(fmt.Sprintf("%s?limit=%d&after=%s", url, pageSize, next), &p); err != nil {
					return err
				}
			}
			return nil
		}))
		one := 0
		table.add("gateway: GET one (ms)", median(t, 51, func() error {
			one++
			return ask(url+"/"+first.Sandboxes[one%len(first.Sandboxes)].ID, nil)
		}))
		table.add("gateway: scrape /metrics (ms)", median(t, 5, func() error {
			return ask(strings.TrimSuffix(url, "/v1/sandboxes")+"/metrics", nil)
		}))
	})
	table.add("gateway: all of these requests (MB received)", received)
	// A request to a sandbox makes the gateway remember all of them. No server answers it.
	if err := ask(strings.TrimSuffix(url, "/v1/sandboxes")+"/sandboxes/"+first.Sandboxes[0].ID+"/alive", nil); err == nil {
		t.Error("a server of a fake node answered")
	}
	status := testhelp.ReadFile(t, fmt.Sprintf("/proc/%d/status", serve.Process.Pid))
	for _, row := range [][2]string{{"RssAnon:", "gateway: private memory (MiB)"}, {"VmHWM:", "gateway: most resident memory (MiB)"}} {
		_, rest, _ := strings.Cut(string(status), row[0])
		kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		table.add(row[1], kib/1024)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Error(err)
	}
}

// mirroring is a driver that mirrors until stop.
func mirroring(t *testing.T, space string) (d *kubernetes.Driver, stop func()) {
	t.Helper()
	d = openScale(t, space)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Events(ctx, func(sandbox.Event) error { return nil }) // a test that fails ends it
	}()
	return d, func() { end(); <-ended }
}

// settled returns when calls of do receive next to nothing.
func settled(t *testing.T, m *meter, do func() error) {
	t.Helper()
	for {
		received := m.during(func() {
			time.Sleep(time.Second)
			if err := do(); err != nil {
				t.Fatal(err)
			}
		})
		if received < 0.01 {
			return
		}
	}
}

// measureClaims measures claims of warm sandboxes, one after the other.
func measureClaims(t *testing.T, table *figures, m *meter, space string) {
	t.Helper()
	d, stop := mirroring(t, space)
	defer stop()
	settled(t, m, func() error { _, err := d.List(t.Context()); return err })
	table.add("list from the mirror (ms)", median(t, 21, func() error { _, err := d.List(t.Context()); return err }))
	pool, err := sandbox.NewPool(t.Context(), d, "scale", scaleSpec(), warmSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range warmSize {
		if err := d.Warm(t.Context(), "scale", scaleSpec()); err != nil {
			t.Fatal(err)
		}
	}
	var claimed []*sandbox.Sandbox
	received := m.during(func() {
		table.add("claim a warm sandbox (ms)", median(t, warmSize, func() error {
			s, warm, err := pool.Claim(t.Context(), scaleSpec())
			if err == nil && !warm {
				err = errors.New("it was not warm")
			}
			claimed = append(claimed, s)
			return err
		}))
	})
	table.add("a claim (MB received)", received/warmSize)
	for _, s := range claimed {
		if err := d.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// measurePrune measures a round of the reaper, with nothing to do and with a hundredth
// of the sandboxes, which it then makes again.
func measurePrune(t *testing.T, table *figures, m *meter, space string, size int) {
	t.Helper()
	d, stop := mirroring(t, space)
	defer stop()
	prune := func(want int) func() error {
		return func() error {
			removed, err := d.Prune(t.Context(), false)
			if err == nil && len(removed) != want {
				err = fmt.Errorf("removed %d sandboxes, want %d: %v", len(removed), want, removed)
			}
			return err
		}
	}
	settled(t, m, prune(0))
	received := m.during(func() { table.add("prune nothing (ms)", median(t, 5, prune(0))) })
	table.add("prune nothing (MB received)", received/5)
	all, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	over := size / 100
	for _, s := range all[:over] {
		if err := d.Renew(t.Context(), s, time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(1500 * time.Millisecond)
	table.add("prune a hundredth (ms)", median(t, 1, prune(over)))
	table.add("for each removed (ms)", table.last("prune a hundredth (ms)")/float64(over))
}

// last is the newest value of a row.
func (f *figures) last(name string) float64 {
	values := f.rows[name]
	return values[len(values)-1]
}
