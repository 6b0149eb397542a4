package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) inspect() *cobra.Command {
	c := &cobra.Command{
		Use:   "inspect SANDBOX...",
		Short: "Show everything about sandboxes, protection included",
		Long: `Inspect shows what is known of sandboxes: what was asked for, what the engine
says, and what protects the host from them differently from the defaults.`,
		Example: `  runtimectl inspect build
  runtimectl inspect -o json build | jq '.[0].lost_protection'`,
		Args:              command.ArgRange(1, command.Many),
		ValidArgsFunction: p.CompleteSandboxes(-1),
	}
	format := output.AddFormat(c, "table", "json", "yaml")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		list := detailList{}
		err := p.OnEach(cmd.Context(), args, func(driver sandbox.Driver, s *sandbox.Sandbox) error {
			platform.AskHow(cmd.Context(), driver, []*sandbox.Sandbox{s})
			inspector, err := sandbox.Needs[sandbox.Inspector](driver, "inspect sandboxes")
			if err != nil {
				return err
			}
			d, err := inspector.Inspect(cmd.Context(), s)
			if err != nil {
				return err
			}
			info := detailInfo{sandboxInfo: describe(s)}
			info.detail(d)
			trust, dir := platform.Problems(cmd.Context(), s)
			if info.DirProblem = dir; slices.Contains(platform.Modes, d.Network) {
				info.TrustProblem = trust
			}
			list = append(list, info)
			return nil
		})
		if len(list) > 0 {
			if err := p.Print(format, list); err != nil {
				return err
			}
		}
		return err
	}
	return c
}

// detailInfo is a sandbox in the output of inspect.
type detailInfo struct {
	sandboxInfo
	Container    string      `json:"container,omitempty"`
	Pod          string      `json:"pod,omitempty"` // NAMESPACE/NAME
	ImageID      string      `json:"image_id,omitempty"`
	Started      *time.Time  `json:"started,omitempty"`
	Ended        *time.Time  `json:"ended,omitempty"`
	ExitCode     *int        `json:"exit_code,omitempty"`
	OutOfMemory  bool        `json:"out_of_memory"`
	WorkDir      string      `json:"working_dir"`
	DirProblem   string      `json:"working_dir_problem,omitempty"`
	Network      string      `json:"network,omitempty"`
	TrustProblem string      `json:"trust_problem,omitempty"`
	Names        string      `json:"names,omitempty"`
	Addresses    []string    `json:"addresses,omitempty"`
	Memory       int64       `json:"memory_limit,omitempty"`
	CPUs         float64     `json:"cpus_limit,omitempty"`
	Pids         int64       `json:"pids_limit,omitempty"`
	Runtime      string      `json:"runtime,omitempty"`
	ReadOnly     bool        `json:"read_only"`
	Mounts       []mountInfo `json:"mounts,omitempty"`
	SecurityOpts []string    `json:"security_opts,omitempty"`
	Server       string      `json:"server_sha256,omitempty"`
	Lost         []string    `json:"lost_protection"`
	Gained       []string    `json:"gained_protection"`
}

type mountInfo struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// detail adds the facts of the platform.
func (i *detailInfo) detail(d *sandbox.Details) {
	i.Pod, i.Container, i.ImageID, i.OutOfMemory, i.WorkDir, i.Network, i.Names, i.Addresses = d.Pod, d.Instance, d.ImageID, d.OutOfMemory, d.WorkDir, d.Network, d.Names, d.Addresses
	i.Memory, i.CPUs, i.Pids, i.Runtime, i.ReadOnly = d.Memory, d.CPUs, d.Pids, d.Runtime, d.ReadOnly
	i.SecurityOpts, i.Server = d.SecurityOpts, d.Server
	i.Lost, i.Gained = append([]string{}, d.LostProtection...), append([]string{}, d.GainedProtection...)
	if !d.Started.IsZero() {
		i.Started = &d.Started
	}
	if i.State == sandbox.Stopped && !d.Ended.IsZero() {
		i.Ended, i.ExitCode = &d.Ended, &d.ExitCode
	}
	for _, m := range d.Mounts {
		i.Mounts = append(i.Mounts, mountInfo(m))
	}
}

// detailList is the output of inspect.
type detailList []detailInfo

// Folds lets the last column continue on further lines.
func (detailList) Folds() {}

// Table has a line for each thing, and an empty one between sandboxes.
func (l detailList) Table() [][]string {
	var rows [][]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	for n, i := range l {
		if n > 0 {
			rows = append(rows, []string{""})
		}
		add("id", i.ID)
		add("name", i.Name)
		add("owner", i.Owner)
		add("image", strings.TrimSpace(i.Image+" "+i.ImageID))
		add("state", strings.TrimSuffix(fmt.Sprintf("%s (%s)", i.State, i.Detail), " ()"))
		add("created", output.Stamp(i.Created))
		if i.Deadline != nil {
			add("ends", output.Stamp(*i.Deadline))
		}
		if i.IdleLimitSeconds > 0 {
			add("idle limit", (time.Duration(i.IdleLimitSeconds) * time.Second).String())
		}
		if i.ExitCode != nil {
			add("ended", fmt.Sprintf("%s with status %d", output.Stamp(*i.Ended), *i.ExitCode))
		}
		if i.OutOfMemory {
			add("out of memory", "its limit ended something in it")
		}
		add("pool", i.Pool)
		add("user", i.User)
		add("working dir", i.WorkDir)
		add("", i.DirProblem)
		add("network", strings.TrimSpace(i.Network+" "+strings.Join(i.Addresses, " ")))
		add("certificates", i.TrustProblem)
		add("names", i.Names)
		if i.Memory > 0 {
			limits := fmt.Sprintf("%d MiB of memory, %g processors", i.Memory>>20, i.CPUs)
			if i.Pids > 0 {
				limits += fmt.Sprintf(", %d processes", i.Pids)
			}
			add("limits", limits)
		}
		add("gpus", i.GPUs)
		add("runtime", i.Runtime)
		for _, m := range i.Mounts {
			add("mount", m.Source+" at "+m.Target+map[bool]string{true: ", read-only"}[m.ReadOnly])
		}
		for _, name := range slices.Sorted(maps.Keys(i.Labels)) {
			add("label", name+"="+i.Labels[name])
		}
		add("security", strings.Join(i.SecurityOpts, " "))
		add("server", i.Server)
		add("pod", i.Pod)
		add("container", i.Container)
		for _, text := range i.Lost {
			add("lost", text)
		}
		for _, text := range i.Gained {
			add("gained", text)
		}
	}
	return rows
}
