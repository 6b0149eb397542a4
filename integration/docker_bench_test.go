//go:build integration

package integration

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// BenchmarkDockerCreate measures from Create to the first command's answer, and
// beside it a container of the same image that runs one static program.
func BenchmarkDockerCreate(b *testing.B) {
	var steps []string
	var at []time.Time
	h := testHost(b, func(c *docker.Config) {
		c.Progress = func(_ string, _ sandbox.State, waiting string) {
			steps, at = append(steps, waiting), append(at, time.Now())
		}
	})
	create(b, h, sandbox.Spec{Image: image(b, debianImage)}) // delivers the server
	b.Run("sandbox", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			steps, at = nil, nil
			start := time.Now()
			s := create(b, h, sandbox.Spec{Image: debianImage})
			took = append(took, time.Since(start))
			b.StopTimer()
			if os.Getenv("STEPS") != "" {
				for i := range steps[:len(steps)-1] {
					b.Logf("%8v %s", at[i+1].Sub(at[i]).Round(100*time.Microsecond), steps[i])
				}
			}
			if err := h.Delete(context.Background(), s); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		report(b, took)
	})
	b.Run("bare", func(b *testing.B) {
		image(b, scratchImage)
		var took []time.Duration
		for b.Loop() {
			start := time.Now()
			if _, err := dockerOutput("run", "--rm", "--init", scratchImage, "/busybox", "true"); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		report(b, took)
	})
}

func report(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
}

// BenchmarkDockerClaim measures from Claim of a warm sandbox to the first
// command's answer.
func BenchmarkDockerClaim(b *testing.B) {
	image(b, busyboxImage)
	steps := map[string][]time.Duration{}
	var last time.Time
	var step string
	h := testHost(b, func(c *docker.Config) {
		c.Progress = func(_ string, _ sandbox.State, waiting string) {
			if now := time.Now(); step != "" {
				steps[step] = append(steps[step], now.Sub(last))
			}
			step, last = waiting, time.Now()
		}
	})
	pool, err := sandbox.NewPool(b.Context(), h, "bench", sandbox.Spec{Image: busyboxImage}, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); pool.Run(ctx, time.Minute) }()
		testhelp.Eventually(b, func() bool {
			all, err := h.List(ctx)
			if err != nil {
				b.Fatal(err)
			}
			return len(all) == 1 && all[0].State == sandbox.Ready
		}, "the pool is full")
		cancel()
		<-done
		step, last = "look", time.Now()
		b.StartTimer()
		start := time.Now()
		s, warm, err := pool.Claim(b.Context(), sandbox.Spec{Image: busyboxImage})
		if err != nil || !warm {
			b.Fatalf("warm %v, %v", warm, err)
		}
		claimed := time.Since(start)
		run(b, s, "true")
		took = append(took, time.Since(start))
		b.StopTimer()
		steps["claim"] = append(steps["claim"], claimed)
		if err := h.Delete(b.Context(), s); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	report(b, took)
	if os.Getenv("STEPS") != "" {
		for name, all := range steps {
			slices.Sort(all)
			b.Logf("%8v %s", all[len(all)/2], name)
		}
	}
}

// BenchmarkDockerTrue measures a command over one connection that is kept: in a
// sandbox as its user and as root, and on the host, in turns.
func BenchmarkDockerTrue(b *testing.B) {
	h := testHost(b)
	clients := map[string]*client.Client{
		"user": clientOf(b, create(b, h, sandbox.Spec{Image: image(b, debianImage)})),
		"root": clientOf(b, create(b, h, sandbox.Spec{Image: debianImage, User: "root"})),
		"host": hostServer(b),
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, c := range clients {
			start := time.Now()
			if _, err := c.Do(b.Context(), api.Request{Action: api.RunAction{Command: "true"}}); err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(start))
		}
	}
	b.ReportMetric(0, "ns/op") // of three commands
	for name := range took {
		slices.Sort(took[name])
		b.ReportMetric(float64(took[name][b.N/2].Microseconds()), name+"-p50-µs")
	}
	b.ReportMetric(float64(took["user"][b.N/2])/float64(took["host"][b.N/2]), "user/host")
}

// hostServer starts a server on this machine that commands run as this user in.
func hostServer(b *testing.B) *client.Client {
	b.Helper()
	binary, err := serverBinary()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command(binary, "--addr", "unix:"+socket, "--working-dir", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	testhelp.Eventually(b, func() bool {
		conn, err := dial(b.Context(), "", "")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "the server listens")
	c, err := client.New(client.Config{BaseURL: "http://sandbox", HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

// BenchmarkDockerIdle measures what 50 idle sandboxes with their shells take of
// the machine's memory, by the drop of MemAvailable. Whatever else runs on the
// machine counts as well. It is to run with -benchtime 1x.
func BenchmarkDockerIdle(b *testing.B) {
	const many = 50
	h := testHost(b)
	spec := sandbox.Spec{Image: image(b, debianImage)}
	create(b, h, spec) // what is there once for all of them
	for b.Loop() {
		before := memAvailable(b)
		for range many {
			create(b, h, spec)
		}
		time.Sleep(10 * time.Second) // servers give memory back when they are idle
		b.ReportMetric(float64(before-memAvailable(b))/1024/many, "MiB/sandbox")
	}
}

// memAvailable is the machine's, in KiB.
func memAvailable(b *testing.B) int {
	b.Helper()
	data := testhelp.ReadFile(b, "/proc/meminfo")
	_, rest, _ := strings.Cut(string(data), "MemAvailable:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return kib
}

// BenchmarkDockerChurn creates and removes 200 sandboxes, eight at a time, and
// fails if anything is left of them. It is to run with -benchtime 1x.
func BenchmarkDockerChurn(b *testing.B) {
	const many = 200
	state := b.TempDir()
	h := testHost(b, func(c *docker.Config) { c.StateDir = state })
	spec := sandbox.Spec{Image: image(b, busyboxImage)}
	for b.Loop() {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range many / 8 {
					s, err := h.Create(b.Context(), spec)
					if err == nil {
						err = h.Delete(b.Context(), s)
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		group.Wait()
	}
	b.ReportMetric(many*float64(b.N)/b.Elapsed().Seconds(), "sandboxes/s")
	if left, err := h.List(b.Context()); err != nil || len(left) > 0 {
		b.Errorf("%d sandboxes left, %v", len(left), err)
	}
	for _, dir := range []string{"sandboxes", "locks"} {
		if entries, err := os.ReadDir(filepath.Join(state, dir)); err != nil || len(entries) > 0 {
			b.Errorf("%s: %d left, %v", dir, len(entries), err)
		}
	}
}
