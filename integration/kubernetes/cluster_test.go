//go:build kubernetes

package kubernetes_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	serverImage  = "actiond.test/server:1"
	busyboxImage = "actiond.test/busybox:1"
	pauseImage   = "actiond.test/pause:1"
	hostImage    = "actiond.test/host:1" // with this machine's programs, where its /usr is mounted
	adminToken   = "admin"
	readyTime    = 5 * time.Minute
)

// shared is the cluster of all tests.
var shared *cluster

func TestMain(m *testing.M) {
	flag.Parse()
	status := 1
	var err error
	switch shared, err = startCluster(); {
	case err != nil:
		log.Printf("the cluster did not start: %v", err)
	case os.Getenv("ACTIOND_CLUSTER_UP") != "": // 'make cluster-up': it is for a person
		shared.awaitSignal()
		status = 0
	default:
		status = m.Run()
	}
	if shared != nil {
		if err := shared.stop(); err != nil {
			log.Printf("ending the cluster: %v", err)
			status = 1
		}
	}
	os.Exit(status)
}

// cluster is one control plane and one node.
type cluster struct {
	dir       string
	program   string
	processes []*exec.Cmd // in the order of their starts
	named     map[string]*exec.Cmd
	service   net.Listener // of the Service kubernetes
	alone     net.Listener // its name goes with this process
	sysctls   map[string][]byte
	api       client.Interface
}

// sysctls are those that the kubelet changes.
var sysctls = []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"}

// startCluster returns what was started also beside an error.
func startCluster() (*cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a node needs root")
	}
	program := os.Getenv("ACTIOND_CLUSTER")
	if program == "" {
		return nil, errors.New("ACTIOND_CLUSTER does not name the program of a cluster; 'make kubernetes' builds it")
	}
	// Without this name a second cluster would use the API server of the first, at the same port.
	alone, err := net.Listen("unix", "@actiond-test-cluster-"+apiPort)
	if err != nil {
		return nil, fmt.Errorf("these tests run on this machine already: %w", err)
	}
	// Sockets have short paths.
	dir, err := os.MkdirTemp("/tmp", "k8s")
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, alone: alone, program: program, sysctls: map[string][]byte{}, named: map[string]*exec.Cmd{}}
	for _, name := range sysctls {
		if c.sysctls[name], err = os.ReadFile("/proc/sys/" + name); err != nil {
			return c, err
		}
	}
	if !controlOnly {
		if err := c.joinPods(); err != nil {
			return c, err
		}
	}
	steps := []func() error{c.build, c.startControl, c.startContainerd, c.importImages, c.startKubelet, c.serveKubernetes, c.awaitNode}
	if controlOnly {
		steps = steps[:2]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// joinPods lets the packets between Pods pass: a Docker engine on this machine sends what
// crosses a bridge through its packet filter, which drops what is not its own.
func (c *cluster) joinPods() (err error) {
	const filtered = "net/bridge/bridge-nf-call-iptables"
	c.sysctls[filtered], err = os.ReadFile("/proc/sys/" + filtered)
	if errors.Is(err, fs.ErrNotExist) { // there is no such filter
		delete(c.sysctls, filtered)
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/"+filtered, []byte("0"), 0o644)
}

// awaitSignal says how to use the cluster, and waits until it is to end.
func (c *cluster) awaitSignal() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	fmt.Printf(`The cluster is ready, with one node. In another terminal:

  export KUBECONFIG=%s ACTIOND_ON=kubernetes ACTIOND_SERVER_IMAGE=%s
  kubectl get nodes
  bin/runtimectl run %s -- uname -a

Images: %s, %s. Ctrl-C ends the cluster and everything in it.
`, c.kubeconfig(), serverImage, busyboxImage, busyboxImage, hostImage)
	<-ended
}

// kubeconfig is the file for kubectl and for the driver.
func (c *cluster) kubeconfig() string { return c.path("kubeconfig") }

// start starts a program that logs to a file.
func (c *cluster) start(name, program string, args ...string) error {
	output, err := os.OpenFile(c.path(name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	c.processes = append(c.processes, cmd)
	c.named[name] = cmd
	return nil
}

// kill ends a program as a crash does.
func (c *cluster) kill(t *testing.T, name string) {
	t.Helper()
	if err := c.named[name].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.named[name].Wait() // it was killed
}

// restart starts a program again that was killed.
func (c *cluster) restart(t *testing.T, name string) {
	t.Helper()
	if err := c.start(name, c.named[name].Path, c.named[name].Args[1:]...); err != nil {
		t.Fatal(err)
	}
}

// signal sends a signal to a program. One that is to stop has stopped afterwards: on a busy machine
// threads that wait for a processor go on for a while.
func (c *cluster) signal(t *testing.T, name string, s os.Signal) {
	t.Helper()
	process := c.named[name].Process
	if err := process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		until(t, name+" stops", func() bool { return hasStopped(t, process.Pid) })
	}
}

// hasStopped reports whether all threads of a process are stopped.
func hasStopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		_, state, _ := strings.Cut(string(stat), ") ") // behind the name, see proc(5)
		if err != nil || !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// tail is the end of a log.
func (c *cluster) tail(name string) string {
	data, _ := os.ReadFile(c.path(name + ".log"))
	return string(data[max(0, len(data)-4000):])
}

// await asks again until ready returns nil.
func (c *cluster) await(what, log string, ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w\n%s", what, err, c.tail(log))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// The ports of the control plane, and more flags for a cluster with many nodes.
var (
	etcdURL, etcdPeerURL            = "http://127.0.0.1:23790", "http://127.0.0.1:23800"
	apiPort                         = "26443"
	controllerFlags, schedulerFlags []string
)

// controlOnly leaves the node out.
var controlOnly bool

const (
	// nodeIP is an address of an interface of its own: a kubelet reports none of the
	// loopback's, and this one, which lets every client in, is no other machine's business.
	nodeIP   = "10.244.78.1"
	nodeLink = "actiond-node"
	// apiService is the address that Pods know the API server by. There is no
	// kube-proxy: the node has the address, and this process passes connections on.
	apiService = "10.96.0.1"
	podBridge  = "actiond-test"
)

func (c *cluster) startControl() error {
	if err := c.start("etcd", c.program, "etcd", c.path("etcd"), etcdURL, etcdPeerURL); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	keyFile := c.path("accounts.key")
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:%s", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`, apiPort, adminToken)
	for name, data := range map[string][]byte{
		keyFile: pem.EncodeToMemory(block), c.path("tokens"): []byte(adminToken + ",admin,admin,system:masters\n"), c.kubeconfig(): []byte(kubeconfig),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	if err := c.start("apiserver", c.program, "apiserver", "--etcd-servers", etcdURL, "--service-cluster-ip-range", "10.96.0.0/24",
		"--bind-address", "127.0.0.1", "--secure-port", apiPort, "--cert-dir", c.path("certs"), "--authorization-mode", "RBAC",
		"--token-auth-file", c.path("tokens"), "--service-account-issuer", "https://kubernetes.test",
		"--service-account-key-file", keyFile, "--service-account-signing-key-file", keyFile,
		"--kubelet-preferred-address-types", "InternalIP"); err != nil {
		return err
	}
	access, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return err
	}
	access.QPS = -1
	if c.api, err = client.NewForConfig(access); err != nil {
		return err
	}
	if err := c.await("the API server", "apiserver", func(ctx context.Context) error {
		_, err := c.api.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := c.start("controllers", c.program, append([]string{
		"controllers", "--kubeconfig", c.kubeconfig(), "--leader-elect=false",
		"--service-account-private-key-file", keyFile, "--root-ca-file", c.path("certs", "apiserver.crt"), "--secure-port", "0",
		"--node-monitor-period", "2s", "--node-monitor-grace-period", "20s",
	}, controllerFlags...)...); err != nil {
		return err
	}
	return c.start("scheduler", c.program, append([]string{"scheduler", "--kubeconfig", c.kubeconfig(), "--leader-elect=false", "--secure-port", "0"},
		schedulerFlags...)...)
}

func (c *cluster) containerdSocket() string { return c.path("containerd.sock") }

func (c *cluster) startContainerd() error {
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = %q
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
`, c.path("containerd"), c.path("containerd.run"), c.containerdSocket(), pauseImage, snapshotter(), c.path("cni"))
	network := fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "test", "plugins": [
  {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.244.77.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "loopback"}]}`, podBridge, c.path("ipam"))
	if err := os.MkdirAll(c.path("cni"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"containerd.toml": config, "cni/10-test.conflist": network} {
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := c.start("containerd", "containerd", "--config", c.path("containerd.toml")); err != nil {
		return err
	}
	return c.await("containerd", "containerd", func(ctx context.Context) error { return c.ctr(ctx, "version") })
}

// snapshotter is overlayfs where the temporary directory can carry it.
func snapshotter() string {
	dir, err := os.MkdirTemp("/tmp", "overlay")
	if err != nil {
		return "native"
	}
	defer os.RemoveAll(dir)
	var options []string
	for _, name := range []string{"lowerdir", "upperdir", "workdir", "merged"} {
		_ = os.Mkdir(filepath.Join(dir, name), 0o700)
		if name != "merged" {
			options = append(options, name+"="+filepath.Join(dir, name))
		}
	}
	merged := filepath.Join(dir, "merged")
	if syscall.Mount("overlay", merged, "overlay", 0, strings.Join(options, ",")) != nil {
		return "native"
	}
	_ = syscall.Unmount(merged, 0)
	return "overlayfs"
}

func (c *cluster) ctr(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", c.containerdSocket(), "-n", "k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", args[0], err, out)
	}
	return nil
}

// build builds the programs that are tested.
func (c *cluster) build() error {
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", c.dir, "../../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs: %w: %s", err, out)
	}
	return nil
}

// importImages makes the images of the tests, where no registry can be reached.
func (c *cluster) importImages() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTime)
	defer cancel()
	programs := map[string]string{"server": c.path("server"), "runtimectl-kubernetes": c.path("runtimectl-kubernetes")}
	busybox := map[string]string{"bin/busybox": "/usr/bin/busybox"}
	list, err := exec.CommandContext(ctx, "/usr/bin/busybox", "--list").Output()
	if err != nil {
		return fmt.Errorf("listing the programs of busybox: %w", err)
	}
	applets := map[string]string{}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			applets["bin/"+name] = "busybox"
		}
	}
	hostLinks := map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
	alternatives, err := os.ReadDir("/etc/alternatives")
	if err != nil {
		return err
	}
	for _, a := range alternatives {
		if a.Type() != os.ModeSymlink {
			continue
		}
		if hostLinks["etc/alternatives/"+a.Name()], err = os.Readlink("/etc/alternatives/" + a.Name()); err != nil {
			return err
		}
	}
	for name, image := range map[string]struct {
		files      map[string]string
		links      map[string]string
		entrypoint []string
	}{
		serverImage:  {files: programs, entrypoint: []string{"/server"}},
		busyboxImage: {files: busybox, links: applets},
		hostImage:    {links: hostLinks},
		pauseImage:   {files: busybox, entrypoint: []string{"/bin/busybox", "sleep", "2147483647"}},
	} {
		archive := c.path("image.tar")
		if err := writeImage(archive, name, image.files, image.links, image.entrypoint); err != nil {
			return err
		}
		if err := c.ctr(ctx, "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}

// writeImage writes an image of one layer as 'docker save' does.
func writeImage(archive, name string, files, links map[string]string, entrypoint []string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for dir, mode := range map[string]int64{"bin/": 0o755, "etc/": 0o755, "tmp/": 0o1777, "root/": 0o755} {
		if links[strings.TrimSuffix(dir, "/")] != "" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return err
		}
	}
	accounts := map[string][]byte{"etc/passwd": []byte("root:x:0:0::/root:/bin/sh\n"), "etc/group": []byte("root:x:0:\n")}
	for to, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		accounts[to] = data
	}
	for to, data := range accounts {
		if err := addFile(w, to, data); err != nil {
			return err
		}
	}
	for link, target := range links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: target, Mode: 0o777}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{"Entrypoint": entrypoint, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	var whole bytes.Buffer
	w = tar.NewWriter(&whole)
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"layer.tar", layer.Bytes()}, {"manifest.json", manifest}} {
		if err := addFile(w, f.name, f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(archive, whole.Bytes(), 0o600)
}

func addFile(w *tar.Writer, name string, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func (c *cluster) startKubelet() error {
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
port: 21250
readOnlyPort: 0
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://%s
serializeImagePulls: false
nodeLeaseDurationSeconds: 8
podLogsDir: %s
evictionHard: {imagefs.available: "1%%", nodefs.available: "1%%", memory.available: "50Mi"}
registerWithTaints: []
`, nodeIP, c.containerdSocket(), c.path("pods"))
	if err := os.WriteFile(c.path("kubelet.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	removeLinks() // a run that was killed has left them
	for _, args := range [][]string{
		{"link", "add", nodeLink, "type", "bridge"},
		{"address", "add", nodeIP + "/32", "dev", nodeLink},
		{"address", "add", apiService + "/32", "dev", nodeLink},
		{"link", "set", nodeLink, "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return c.start("kubelet", c.program, "kubelet", "--config", c.path("kubelet.yaml"), "--kubeconfig", c.kubeconfig(),
		"--root-dir", c.path("kubelet"), "--cert-dir", c.path("kubelet-certs"), "--hostname-override", "node", "--node-ip", nodeIP)
}

// serveKubernetes is the Service kubernetes.
func (c *cluster) serveKubernetes() (err error) {
	c.service, err = forward(apiService+":443", func() (string, error) { return "127.0.0.1:" + apiPort, nil })
	return err
}

// forward listens and passes each connection on to the address that pick returns then, as
// kube-proxy does for a Service.
func forward(address string, pick func() (string, error)) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	pass := func(in net.Conn) {
		defer in.Close()
		to, err := pick()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer out.Close()
		ended := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				ended <- struct{}{}
			}()
		}
		<-ended
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in)
		}
	}()
	return l, nil
}

func (c *cluster) awaitNode() error {
	return c.await("the node", "kubelet", func(ctx context.Context) error {
		node, err := c.api.CoreV1().Nodes().Get(ctx, "node", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				return nil
			}
		}
		return fmt.Errorf("node: %v, taints %v", node.Status.Conditions, node.Spec.Taints)
	})
}

// stop removes all Pods, ends all processes and removes what they left.
func (c *cluster) stop() error {
	var errs []error
	if c.api != nil && !controlOnly {
		if controllers := c.named["controllers"]; controllers != nil { // they would replace the Pods of Deployments
			_ = controllers.Process.Kill()
			_ = controllers.Wait()
		}
		now := int64(0)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if all, err := c.api.CoreV1().Pods("").List(ctx, metav1.ListOptions{}); err == nil {
			for _, pod := range all.Items {
				_ = c.api.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			}
		}
		errs = append(errs, c.awaitContainers(ctx))
	}
	if c.service != nil {
		errs = append(errs, c.service.Close())
	}
	for _, process := range slices.Backward(c.processes) {
		_ = process.Process.Kill()
		_ = process.Wait()
	}
	if !controlOnly {
		errs = append(errs, c.cleanNode())
	}
	if os.Getenv("ACTIOND_CLUSTER_KEEP") == "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

func removeLinks() {
	for _, link := range []string{podBridge, nodeLink} {
		_ = exec.Command("ip", "link", "delete", link).Run() // it may not be there
	}
}

// cleanNode removes what containerd and the kubelet left.
func (c *cluster) cleanNode() error {
	var errs []error
	for name, value := range c.sysctls {
		errs = append(errs, os.WriteFile("/proc/sys/"+name, value, 0o644))
	}
	removeLinks()
	mounts, err := os.ReadFile("/proc/self/mounts")
	errs = append(errs, err)
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if words := strings.Fields(line); len(words) > 1 && strings.HasPrefix(words[1], c.dir+"/") {
			_ = syscall.Unmount(words[1], syscall.MNT_DETACH)
		}
	}
	for _, dir := range []string{"/sys/fs/cgroup/*/kubepods"} { // the groups of Pods, innermost first
		groups, _ := filepath.Glob(dir)
		for _, group := range groups {
			_ = exec.Command("find", group, "-depth", "-type", "d", "-delete").Run()
		}
	}
	return errors.Join(errs...)
}

// awaitContainers waits until the node has ended everything.
func (c *cluster) awaitContainers(ctx context.Context) error {
	for {
		out, err := exec.CommandContext(ctx, "ctr", "--address", c.containerdSocket(), "-n", "k8s.io", "tasks", "list", "-q").Output()
		if err != nil || len(bytes.TrimSpace(out)) == 0 {
			return nil //nolint:nilerr // without a containerd there are no containers
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("these containers do not end: %s", out)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
