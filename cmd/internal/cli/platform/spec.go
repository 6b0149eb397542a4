package platform

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/sandbox"
)

// SpecFlags are the flags that specify a sandbox. They have the names of docker run's,
// where that has them.
type SpecFlags struct {
	spec sandbox.Spec // as far as flags need no parsing

	env, envFiles, volumes           []string
	changes, track                   string
	labels, nodeSelector             []string
	user, memory, disk, cpus, userNS string
	gpus                             string
	network                          policyFlags
	flags                            *pflag.FlagSet
	leftOut                          []string // flags that this command does not take
	command                          string
}

// AddSpec gives c the flags that specify a sandbox.
func AddSpec(c *cobra.Command) *SpecFlags {
	f := &SpecFlags{flags: c.Flags(), command: c.Name()}
	flags, spec := f.flags, &f.spec
	flags.StringVar(&spec.Name, "name", "", "call the sandbox `NAME` (default: its id)")
	flags.StringVar(&spec.Key, "key", "", "make at most one sandbox for this `KEY`: given again, it names the same one")
	flags.StringVar(&spec.Owner, "owner", "", "note whose sandbox it is, a `WORD` for people")
	flags.StringArrayVarP(&f.env, "env", "e", nil,
		"set a variable for the commands, `NAME=VALUE`, or NAME for its value here")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "read variables from a `FILE`, one to a line")
	flags.StringArrayVarP(&f.volumes, "volume", "v", nil, "mount `DIR:PATH[:ro]`: a directory or file of the host at a path of the sandbox;\non Kubernetes CLAIM:PATH, a persistent volume claim")
	flags.StringVarP(&spec.WorkDir, "workdir", "w", "", "start shells in `DIR` (default /workspace)")
	flags.StringVarP(&f.memory, "memory", "m", "", "limit memory to `BYTES`, with k, m or g after the number (default 2g)")
	flags.StringVar(&f.disk, "disk", "", "limit the files that the sandbox writes to `BYTES`, where the platform can")
	flags.StringVar(&f.cpus, "cpus", "", "limit processor time to `N` processors, such as 0.5 (default 2)")
	flags.StringVar(&f.gpus, "gpus", "", "give the sandbox GPUs that no other one has: `WHICH` is all, a number, or device= and UUIDs or names such as\nnvidia.com/gpu=0, with commas; on Kubernetes a number")
	flags.Int64Var(&spec.Pids, "pids-limit", 0, "limit processes and threads to `N` (default 512)")
	flags.Int64Var(&spec.OpenFiles, "nofile", 0, "limit open files of each process to `N` (default 2560)")
	flags.StringArrayVarP(&f.labels, "label", "l", nil, "label the container, `NAME=VALUE`")
	flags.StringVar(&spec.Network, "network", "", "use the network `NAME`: bridge (the default), none, or one you made; public, allowlist or no-network for a\npolicy that can be changed; on Kubernetes default or none")
	f.network.add(c)
	flags.StringVarP(&f.user, "user", "u", "", "run commands as `NAME[:UID]` (default agent; the id is that of the first\nwritable mount's owner, else one that no other sandbox has)")
	flags.BoolVar(&spec.AllowRoot, "allow-root", false,
		"let 'exec --user root' run programs as root, such as apt-get install")
	flags.StringVar((*string)(&spec.Pull), "pull", "", "pull the image `WHEN`: always, missing (the default) or never")
	flags.BoolVar(&spec.ReadOnly, "read-only", false,
		"make the image's files read-only; /tmp and the working directory are in memory then")
	flags.StringVar(&spec.Runtime, "runtime", "", "use the OCI runtime `NAME`, such as runsc (default: the engine's)")
	flags.StringArrayVar(&spec.SecurityOpts, "security-opt", nil, "pass a security `OPTION` to the engine")
	flags.StringVar(&f.changes, "changes", "", "follow the files of the working directory by this `MODE`: undo keeps contents, so that changes can be taken\nback, facts does not, off follows nothing (default: undo up to 256 MiB and 50,000 names, else facts)")
	flags.StringVar(&f.track, "track", "", "follow the files of this `DIR` instead")
	flags.StringArrayVar(&spec.Flags, "server-flag", nil,
		"start the server in the sandbox with this `FLAG`, such as --soft-timeout=30s")
	flags.StringArrayVar(&spec.PullSecrets, "image-pull-secret", nil,
		"on Kubernetes, pull images with the credentials in this `SECRET`")
	flags.StringArrayVar(&f.nodeSelector, "node-selector", nil, "on Kubernetes, use nodes with this label, `NAME=VALUE`")
	flags.StringArrayVar(&spec.Tolerations, "toleration", nil,
		"on Kubernetes, also use nodes with this `TAINT`: KEY[=VALUE][:EFFECT]")
	flags.StringVar(&f.userNS, "userns", "",
		"on Kubernetes, use the user ids of the `WHOSE`: host, the node's (the default), or private ones")
	command.AddDuration(flags, &spec.TTL, "ttl", "", 0,
		"end the sandbox this long after its creation, such as 2h (default: never)")
	command.AddDuration(flags, &spec.Idle, "idle", "", 0,
		"end the sandbox after this long without an action (default: never)")
	words := func(allowed ...string) cobra.CompletionFunc {
		return cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp)
	}
	for name, completion := range map[string]cobra.CompletionFunc{
		"changes": words(changesModes...), "pull": words("always", "missing", "never"),
		"network": words(append([]string{"bridge", "default", "none"}, Modes...)...), "user": words("agent", "root"),
		"userns": words("host", "private"),
	} {
		_ = c.RegisterFlagCompletionFunc(name, completion) // the flag is there
	}
	return f
}

// LeaveOut takes flags of one sandbox from a command that makes many.
func (f *SpecFlags) LeaveOut(names ...string) {
	f.leftOut = names
	for _, name := range names {
		_ = f.flags.MarkHidden(name) // the flag is there
	}
}

// Offer makes --secret and --gpus offer secrets and GPUs to creators of sandboxes, who ask for them, and lets --private and
// --no-names stand alone, for the policies that they ask for.
func (f *SpecFlags) Offer() {
	f.network.offers = true
	f.flags.Lookup("secret").Usage = "offer a secret, which creators of sandboxes name, as 'create --secret' has it: `SPEC` is\nid=NAME,env=VARIABLE,host=HOST, or src=FILE for env="
	f.flags.Lookup("gpus").Usage = "give out GPUs to creators that ask for them, each to one sandbox at a time: `WHICH` is all, a number, or UUIDs or\nnames, with commas; on Kubernetes a number (default: none)"
	f.flags.Lookup("private").Usage = "let rules of network policies lead to private addresses in this `CIDR`, such as 10.0.0.0/8"
}

// Offered are the secrets that the flags offer, after [SpecFlags.Spec].
func (f *SpecFlags) Offered() []egress.Secret { return f.network.offered }

var changesModes = []string{"undo", "facts", "off"}

// needEngine are the flags that a process of this machine cannot keep.
var needEngine = []string{
	"volume", "memory", "disk", "cpus", "gpus", "pids-limit", "nofile", "network", "allow", "deny", "network-policy", "private",
	"secret", "no-names", "user", "read-only", "runtime", "security-opt",
	"changes", "track", "server-flag", "allow-root",
}

// Spec returns the specification that the flags give. An error is a usage error.
func (f *SpecFlags) Spec(p *Platform, image string) (sandbox.Spec, error) {
	for _, name := range f.leftOut {
		if f.flags.Changed(name) {
			return sandbox.Spec{}, fmt.Errorf("--%s is for one sandbox, and %s makes many", name, f.command)
		}
	}
	if p.Local {
		if err := f.checkLocal(); err != nil {
			return sandbox.Spec{}, err
		}
	}
	s := f.spec
	s.Image, s.UserNamespace = image, f.userNS == "private"
	if !slices.Contains([]string{"", "host", "private"}, f.userNS) {
		return s, fmt.Errorf("--userns %q: must be host or private", f.userNS)
	}
	if !slices.Contains(append(changesModes, ""), f.changes) {
		return s, fmt.Errorf("--changes %q: must be undo, facts or off", f.changes)
	}
	if f.changes != "" {
		s.Flags = append(slices.Clip(s.Flags), "--changes="+f.changes)
	}
	if f.track != "" {
		s.Flags = append(slices.Clip(s.Flags), "--track="+f.track)
	}
	var err error
	if s.Env, err = f.variables(p); err != nil {
		return s, err
	}
	if s.Labels, err = parseLabels("--label", f.labels); err != nil {
		return s, err
	}
	if s.NodeSelector, err = parseLabels("--node-selector", f.nodeSelector); err != nil {
		return s, err
	}
	for _, v := range f.volumes {
		m, err := parseVolume(v, p.Kubernetes)
		if err != nil {
			return s, err
		}
		s.Mounts = append(s.Mounts, m)
	}
	if err := f.network.policy(p, &s); err != nil {
		return s, err
	}
	if s.User, s.UserID, err = parseUser(f.user); err != nil {
		return s, err
	}
	if f.memory != "" {
		if s.Memory, err = command.ParseBytes(f.memory); err != nil {
			return s, fmt.Errorf("--memory: %w", err)
		}
	}
	if f.disk != "" {
		if s.Disk, err = command.ParseBytes(f.disk); err != nil {
			return s, fmt.Errorf("--disk: %w", err)
		}
	}
	if s.GPUs, err = sandbox.ParseGPUs(f.gpus); err != nil {
		return s, fmt.Errorf("--gpus: %w", err)
	}
	if f.cpus != "" {
		if s.CPUs, err = strconv.ParseFloat(f.cpus, 64); err != nil || !(s.CPUs > 0) {
			return s, fmt.Errorf("--cpus: %q is not a number of processors", f.cpus)
		}
	}
	return s, nil
}

// checkLocal refuses flags that --on local cannot keep: who gives them counts on
// them.
func (f *SpecFlags) checkLocal() error {
	for _, name := range needEngine {
		if f.flags.Changed(name) {
			return fmt.Errorf("--%s cannot be honoured without an engine: leave it out with --on local", name)
		}
	}
	return nil
}

// variables puts --env-file and --env together; the latter wins.
func (f *SpecFlags) variables(p *Platform) (map[string]string, error) {
	env := map[string]string{}
	for _, name := range f.envFiles {
		if err := p.readVariables(name, env); err != nil {
			return nil, err
		}
	}
	for _, word := range f.env {
		if err := AddVariable(word, p.Getenv, env); err != nil {
			return nil, fmt.Errorf("--env: %w", err)
		}
	}
	return env, nil
}

// readVariables reads a file as docker run does: NAME=VALUE or NAME to a line,
// no quotes, '#' begins a comment.
func (p *Platform) readVariables(name string, env map[string]string) error {
	file, err := p.OpenFile(name)
	if err != nil {
		return fmt.Errorf("--env-file: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(io.LimitReader(file, 16<<20))
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimLeft(strings.TrimSuffix(lines.Text(), "\r"), " \t")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := AddVariable(line, p.Getenv, env); err != nil {
			return fmt.Errorf("--env-file: line %d of %s: %w", number, name, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("--env-file: reading %s: %w", name, err)
	}
	return nil
}

// AddVariable takes NAME=VALUE, or NAME for its value here; one that is not set
// here is left out. The value is no part of an error: it may be a secret.
func AddVariable(word string, getenv func(string) string, env map[string]string) error {
	name, value, given := strings.Cut(word, "=")
	if name == "" || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("a variable begins with its name: NAME=VALUE, got name %q", name)
	}
	if !given {
		if value = getenv(name); value == "" {
			return nil
		}
	}
	env[name] = value
	return nil
}

func parseLabels(flag string, words []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		if name == "" {
			return nil, fmt.Errorf("%s: %q has no name", flag, word)
		}
		labels[name] = value
	}
	return labels, nil
}

// parseVolume takes DIR:PATH[:ro|rw]; with claims, CLAIM:PATH[:ro|rw].
func parseVolume(word string, claims bool) (sandbox.Mount, error) {
	parts := strings.Split(word, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "" {
		return sandbox.Mount{}, fmt.Errorf("--volume: %q: must be DIR:PATH or DIR:PATH:ro", word)
	}
	m := sandbox.Mount{Source: parts[0], Target: parts[1]}
	if len(parts) == 3 {
		switch parts[2] {
		case "ro":
			m.ReadOnly = true
		case "rw":
		default:
			return m, fmt.Errorf("--volume: %q: after the path there may be ro or rw", word)
		}
	}
	if claims {
		return m, nil // the driver checks the name
	}
	if !strings.ContainsRune(m.Source, '/') && m.Source != "." && m.Source != ".." {
		return m, fmt.Errorf("--volume: %q: the engine's named volumes cannot be mounted; for a directory here write ./%s",
			word, m.Source)
	}
	source, err := filepath.Abs(m.Source)
	if err != nil {
		return m, fmt.Errorf("--volume: %w", err)
	}
	m.Source = source
	return m, nil
}

// parseUser takes NAME or NAME:UID; 0 is root.
func parseUser(word string) (name string, id int, err error) {
	name, number, given := strings.Cut(word, ":")
	if given {
		if id, err = strconv.Atoi(number); err != nil {
			return "", 0, fmt.Errorf("--user: %q: must be NAME or NAME:UID", word)
		}
	}
	switch {
	case name == "0":
		name = "root"
	case name != "" && strings.Trim(name, "0123456789") == "":
		return "", 0, fmt.Errorf("--user: %q is a number: an account needs a name, such as agent:%s", word, name)
	case given && id == 0 && name != "root" && name != "":
		return "", 0, fmt.Errorf("--user: %q: the id 0 is root's: write root, or another id", word)
	case name == "" && given:
		return "", 0, fmt.Errorf("--user: %q has no name", word)
	}
	return name, id, nil
}
