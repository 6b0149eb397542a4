//go:build integration

package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// BenchmarkDockerNetwork measures the egress proxy of 16 sandboxes: what a connection through a
// sandbox's socket takes beside one from this host to the same container, its memory, a change of a
// policy, and a command in a sandbox with a policy beside one without. It is to run with -benchtime
// 1000x at most: a sandbox opens 256 connections, and then 50 a second.
func BenchmarkDockerNetwork(b *testing.B) {
	state, err := os.MkdirTemp("/tmp", "policy-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(state) })
	h := testHost(b, func(c *docker.Config) { c.StateDir = state })
	addr, _ := programTarget(b)
	private := []netip.Prefix{netip.MustParsePrefix(dockerCLI(b, "network", "inspect", "-f", "{{(index .IPAM.Config 0).Subnet}}", "bridge"))}
	withPolicy := sandbox.Spec{Image: image(b, busyboxImage), Policy: &egress.Policy{Mode: egress.ModePublic}, Private: private}
	var all []*sandbox.Sandbox
	for range 16 {
		all = append(all, create(b, h, withPolicy))
	}
	pid, err := strconv.Atoi(dockerCLI(b, "inspect", "-f", "{{.State.Pid}}", egressProxies(b, state)[0]))
	if err != nil {
		b.Fatal(err)
	}
	memory := func(b *testing.B, what string) {
		b.Helper()
		p, err := procfs.NewProc(pid)
		if err != nil {
			b.Fatal(err)
		}
		rollup, err := p.ProcSMapsRollup()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(rollup.Anonymous)/(1<<20), what+"-private-MiB")
	}
	target := net.JoinHostPort(addr, "7")
	next := 0
	ways := map[string]func() net.Conn{
		"direct": func() net.Conn {
			c, err := net.Dial("tcp", target)
			if err != nil {
				b.Fatal(err)
			}
			return c
		},
		"proxy": func() net.Conn {
			next++
			return throughSocket(b, filepath.Join(state, "egress/run", all[next%len(all)].ID, "s"), target)
		},
	}
	b.Run("idle", func(b *testing.B) {
		for b.Loop() { // there is nothing to repeat
		}
		memory(b, "16-sandboxes")
	})
	b.Run("true", func(b *testing.B) { benchmarkPolicyTrue(b, h, all[0]) })
	b.Run("create", func(b *testing.B) { benchmarkPolicyCreate(b, h, withPolicy) })
	b.Run("connect", func(b *testing.B) {
		took := map[string][]time.Duration{}
		for b.Loop() {
			for way, dial := range ways {
				begun := time.Now()
				c := dial()
				if !testhelp.Echoes(c) {
					b.Fatalf("no echo, %s", way)
				}
				took[way] = append(took[way], time.Since(begun))
				c.Close()
			}
		}
		reportTurns(b, took)
	})
	for way, dial := range ways {
		b.Run("throughput/"+way, func(b *testing.B) {
			const portion = 1 << 20
			c := dial()
			defer c.Close()
			b.SetBytes(portion)
			sent := make([]byte, portion)
			for b.Loop() {
				go func() { _, _ = c.Write(sent) }()
				if _, err := io.CopyN(io.Discard, c, portion); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("open", func(b *testing.B) {
		var conns []net.Conn
		for range 255 {
			c := ways["proxy"]()
			if !testhelp.Echoes(c) {
				b.Fatal("no echo")
			}
			conns = append(conns, c)
		}
		for b.Loop() { // there is nothing to repeat
		}
		memory(b, "255-connections")
		for _, c := range conns {
			c.Close()
		}
	})
	b.Run("change", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			begun := time.Now()
			n, err := h.SetNetwork(b.Context(), all[1], func(n *sandbox.Network) error { n.Policy.MaxBytes++; return nil })
			if err != nil || !n.Up {
				b.Fatalf("%+v, %v", n, err)
			}
			took = append(took, time.Since(begun))
		}
		reportTurns(b, map[string][]time.Duration{"change": took})
	})
}

// benchmarkPolicyTrue runs true in a sandbox with a policy and in one without, in turns.
func benchmarkPolicyTrue(b *testing.B, h *docker.Host, with *sandbox.Sandbox) {
	b.Helper()
	boxes := []*sandbox.Sandbox{with, create(b, h, sandbox.Spec{Image: busyboxImage})}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for i, name := range []string{"policy", "plain"} {
			c := clientOf(b, boxes[i])
			begun := time.Now()
			if _, err := c.Do(b.Context(), api.Request{Action: api.RunAction{Command: "true"}}); err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(begun))
		}
	}
	reportTurns(b, took)
}

// benchmarkPolicyCreate creates sandboxes with a policy and without one, in turns, until a command is
// answered. The egress proxy runs.
func benchmarkPolicyCreate(b *testing.B, h *docker.Host, withPolicy sandbox.Spec) {
	b.Helper()
	specs := map[string]sandbox.Spec{"policy": withPolicy, "plain": {Image: withPolicy.Image}}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, spec := range specs {
			begun := time.Now()
			s := create(b, h, spec)
			took[name] = append(took[name], time.Since(begun))
			if err := h.Delete(context.Background(), s); err != nil {
				b.Fatal(err)
			}
		}
	}
	reportTurns(b, took)
}

// reportTurns reports the median of each way.
func reportTurns(b *testing.B, took map[string][]time.Duration) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // of all ways
	for way, each := range took {
		slices.Sort(each)
		b.ReportMetric(float64(each[len(each)/2].Microseconds()), way+"-p50-µs")
	}
}

// throughSocket connects to a target through a sandbox's socket.
func throughSocket(b *testing.B, socket, target string) net.Conn {
	b.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	answer, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatalf("%+v, %v", answer, err)
	}
	answer.Body.Close() // which is not the connection
	return c
}
