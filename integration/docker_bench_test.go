//go:build integration

package integration

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/actiond/actiond/docker"
)

// BenchmarkDockerCreate measures from Create to the first command's answer, and
// beside it a container of the same image that runs one static program.
func BenchmarkDockerCreate(b *testing.B) {
	var steps []string
	var at []time.Time
	h := testHost(b, func(c *docker.Config) {
		c.Progress = func(_ string, _ docker.State, waiting string) {
			steps, at = append(steps, waiting), append(at, time.Now())
		}
	})
	create(b, h, docker.Spec{Image: image(b, debianImage)}) // delivers the server
	b.Run("sandbox", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			steps, at = nil, nil
			start := time.Now()
			s := create(b, h, docker.Spec{Image: debianImage})
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
		c.Progress = func(_ string, _ docker.State, waiting string) {
			if now := time.Now(); step != "" {
				steps[step] = append(steps[step], now.Sub(last))
			}
			step, last = waiting, time.Now()
		}
	})
	pool, err := h.Pool("bench", docker.Spec{Image: busyboxImage}, 1)
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); pool.Run(ctx, time.Minute) }()
		for ready := false; !ready; time.Sleep(10 * time.Millisecond) {
			all, err := h.List(ctx)
			if err != nil {
				b.Fatal(err)
			}
			ready = len(all) == 1 && all[0].State == docker.Ready
		}
		cancel()
		<-done
		step, last = "look", time.Now()
		b.StartTimer()
		start := time.Now()
		s, warm, err := pool.Claim(b.Context(), docker.Spec{Image: busyboxImage})
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
