package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) stats() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "stats [flags] [SANDBOX...]",
		Short: "Show what sandboxes use",
		Long: `Stats measures for about a second what sandboxes use: processors, memory without
what the kernel could give back, processes, and bytes received and sent, read and
written since they were started. Without names it measures all that run.

With --follow it goes on, a measurement for each sandbox about once a second,
until it is interrupted or they end.`,
		Example: `  runtimectl stats
  runtimectl stats --follow -o json build | jq -c '[.time, .memory]'`,
		ValidArgsFunction: p.CompleteSandboxes(-1, platform.Running...),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on measuring")
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return p.In(func(driver sandbox.Driver) error {
			meter, err := sandbox.Needs[sandbox.Meter](driver, "measure sandboxes")
			if err != nil {
				return err
			}
			chosen, err := p.choose(cmd.Context(), driver, args)
			if err != nil {
				return err
			}
			if follow {
				return p.followStats(cmd.Context(), meter, chosen, format)
			}
			list, err := measure(cmd.Context(), meter, chosen)
			return errors.Join(err, p.Print(format, list))
		})
	}
	return p.EngineOnly(c)
}

// choose is the sandboxes that refs name, or all that run.
func (p *program) choose(ctx context.Context, driver sandbox.Driver, refs []string) ([]*sandbox.Sandbox, error) {
	var chosen []*sandbox.Sandbox
	if len(refs) == 0 {
		all, err := driver.List(ctx)
		for _, s := range all {
			if s.State == sandbox.Ready {
				chosen = append(chosen, s)
			}
		}
		return chosen, err
	}
	for _, ref := range refs {
		s, err := p.Find(ctx, driver, ref)
		if err != nil {
			return nil, err
		}
		if s.State != sandbox.Ready && s.State != sandbox.Paused {
			return nil, platform.NotRunning(s)
		}
		chosen = append(chosen, s)
	}
	return chosen, nil
}

// measure measures all at the same time and leaves out those of which it learns nothing. The
// second measurement is the first that knows how busy the processors are.
func measure(ctx context.Context, meter sandbox.Meter, all []*sandbox.Sandbox) (statsList, error) {
	list := make(statsList, len(all))
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, s := range all {
		group.Go(func() {
			seen := 0
			err := meter.Stats(ctx, s, true, func(u sandbox.Stats) error {
				list[i] = usage(s, u)
				if seen++; seen == 2 {
					return errMeasured
				}
				return nil
			})
			if err == nil && seen == 0 {
				err = notMeasured(s)
			}
			if !errors.Is(err, errMeasured) {
				errs[i] = err
			}
		})
	}
	group.Wait()
	list = slices.DeleteFunc(list, func(s statsInfo) bool { return s.Time.IsZero() })
	return list, errors.Join(errs...)
}

var errMeasured = errors.New("measured")

func notMeasured(s *sandbox.Sandbox) error {
	return fmt.Errorf("sandbox %s was not measured: it has ended, or its platform has no statistics of it; runtimectl inspect %[1]s says which", s.ID)
}

// followStats prints each measurement as it comes; on a terminal, all that are the latest.
func (p *program) followStats(
	ctx context.Context, meter sandbox.Meter, all []*sandbox.Sandbox, format *output.Format,
) error {
	var mu sync.Mutex
	var group sync.WaitGroup
	errs := make([]error, len(all))
	out := &output.Lines{To: &p.Streams, Format: format}
	screen := p.Repaint()
	if format.Value != "table" {
		screen = nil
	}
	latest := make(statsList, len(all))
	for i, s := range all {
		latest[i] = statsInfo{ID: s.ID, Name: s.Name, State: s.State}
	}
	for i, s := range all {
		group.Go(func() {
			first := true // the first measurement knows nothing of the processors
			errs[i] = meter.Stats(ctx, s, true, func(u sandbox.Stats) error {
				if first {
					first = false
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				latest[i] = usage(s, u)
				if screen != nil {
					return screen.Paint(latest.Table())
				}
				return out.Print(latest[i])
			})
			if first && errs[i] == nil {
				errs[i] = notMeasured(s)
			}
		})
	}
	group.Wait()
	return command.UnlessOver(ctx, errors.Join(errs...))
}

// statsInfo is a measurement as it is printed. Sizes are in bytes.
type statsInfo struct {
	Time        time.Time     `json:"time"`
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	State       sandbox.State `json:"state"`
	CPUs        float64       `json:"cpus"`
	Memory      uint64        `json:"memory"`
	MemoryLimit uint64        `json:"memory_limit"`
	Pids        uint64        `json:"pids"`
	Received    uint64        `json:"net_in"`
	Sent        uint64        `json:"net_out"`
	Read        uint64        `json:"disk_in"`
	Written     uint64        `json:"disk_out"`
}

func usage(s *sandbox.Sandbox, u sandbox.Stats) statsInfo {
	return statsInfo{
		u.Time, s.ID, s.Name, s.State, u.CPU, u.Memory, u.MemoryLimit, u.Pids, u.NetIn, u.NetOut, u.DiskIn, u.DiskOut,
	}
}

type statsList []statsInfo

func (l statsList) Table() [][]string {
	rows := [][]string{statsInfo{}.Headings()}
	for _, s := range l {
		rows = append(rows, s.Row())
	}
	return rows
}

func (statsInfo) Headings() []string {
	return []string{"SANDBOX", "NAME", "CPUS", "MEMORY", "OF", "PIDS", "RECEIVED", "SENT", "READ", "WRITTEN"}
}

func (s statsInfo) Row() []string {
	return []string{
		s.ID, s.Name, fmt.Sprintf("%.2f", s.CPUs), units.BytesSize(float64(s.Memory)), units.BytesSize(float64(s.MemoryLimit)), fmt.Sprint(s.Pids),
		output.Size(s.Received), output.Size(s.Sent), output.Size(s.Read), output.Size(s.Written),
	}
}
