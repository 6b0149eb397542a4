package docker

import (
	"cmp"
	_ "embed" // the seccomp profile
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"

	"github.com/actiond/actiond/sandbox"
)

// Labels of every sandbox. They hold the facts that are fixed at creation.
const (
	labelManaged    = sandbox.LabelPrefix + "managed" // "sandbox", or "filler"
	labelID         = sandbox.LabelPrefix + "id"      // at creation; the id of its directory on the host
	labelName       = sandbox.LabelPrefix + "name"
	labelOwner      = sandbox.LabelPrefix + "owner"
	labelSpec       = sandbox.LabelPrefix + "spec"       // hash of the specification
	labelController = sandbox.LabelPrefix + "controller" // who made it
	labelCreated    = sandbox.LabelPrefix + "created"    // RFC 3339
	labelDeadline   = sandbox.LabelPrefix + "deadline"   // RFC 3339, empty: none
	labelIdle       = sandbox.LabelPrefix + "idle"       // a duration, empty: none
	labelPool       = sandbox.LabelPrefix + "pool"       // name of the warm pool it was created for
	labelTransport  = sandbox.LabelPrefix + "transport"  // "socket" or "port"
	labelUser       = sandbox.LabelPrefix + "user"
	labelAllowRoot  = sandbox.LabelPrefix + "allow-root" // "true", or empty
	labelBinary     = sandbox.LabelPrefix + "server"     // SHA-256 of the server in it
	labelGPUs       = sandbox.LabelPrefix + "gpus"       // that it has, as sandbox.ParseGPUs reads them, or empty
	labelVersion    = sandbox.LabelPrefix + "version"    // of the program that made the egress proxy
)

// seccompProfile is the current default of Moby (github.com/moby/profiles,
// seccomp v0.2.3, Apache License 2.0), because that of an older engine lets
// io_uring_setup and AF_VSOCK through. socketcall is taken out: on
// 32-bit it is socket too, and a filter cannot see which family it asks for.
//
//go:embed seccomp.json
var seccompProfile string

// capabilities are those that a server with uid 0 needs to run commands and open
// files as another user. Without any one of them a sandbox does not start or
// cannot be cleaned up. DAC_OVERRIDE and FOWNER are not among them: the server
// opens files of the user with the user's rights, but see rootCapabilities.
var capabilities = []string{
	"CAP_SETUID", // start commands, and open files, as the user
	"CAP_SETGID", // with the user's groups
	"CAP_KILL",   // end the user's processes
	"CAP_CHOWN",  // hand the account's home and the working directory to the user
}

// rootCapabilities are for commands that run as root, too: without them root
// cannot write the files of other users, such as a working directory that the
// image gave to its own user. They weaken nothing: a process that can become any
// user and give away any file does not need them.
var rootCapabilities = []string{"CAP_DAC_OVERRIDE", "CAP_FOWNER"}

// sudoCapabilities are for sandboxes whose set-uid programs gain privileges:
// root's capabilities, and the permission to write to the audit log, without which
// sudo warns with every command.
var sudoCapabilities = append(slices.Clone(rootCapabilities), "CAP_AUDIT_WRITE")

// installCapability is for programs of root's that install packages, besides
// rootCapabilities: without it, a program loses its set-group-id bit when a package
// manager unpacks it, and no error says so.
const installCapability = "CAP_FSETID"

// creation holds the facts from which a container is made, besides the specification.
type creation struct {
	id, name   string // of the sandbox; its human name
	key        string
	controller string
	created    time.Time
	runDir     string // host directory for the socket, empty: a port instead
	egressDir  string // host directory with the socket of the egress proxy, empty: no policy
	volume     string // with the server, empty: it is copied in
	binary     string // SHA-256 of the server
	pool       string
	ticket     string // that a claim must bring
	gpus       sandbox.GPUs
	cpus       int  // of the host, 0: not known
	userID     int  // of the commands
	terminals  bool // the engine can limit pseudo-terminals
	remapped   bool // the engine maps users: uid 0 of the sandbox is another one outside
}

// plan turns a completed specification into the engine's configuration. It
// looks at nothing else.
func plan(s *sandbox.Spec, c creation) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image:       s.Image,
		Env:         []string{sandbox.NoGPUs},
		User:        "0:0", // whatever the image says; commands run as s.User
		Hostname:    c.id,
		Entrypoint:  []string{insideServer},
		Cmd:         arguments(s, c),
		Labels:      labels(s, c),
		WorkingDir:  "/",
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
	cpus := s.CPUs
	if c.cpus > 0 { // the engine refuses a limit beyond it, which is met anyway
		cpus = min(cpus, float64(c.cpus))
	}
	memory := s.Memory
	useInit := true
	pids := s.Pids
	host := &container.HostConfig{
		NetworkMode:    container.NetworkMode(s.Network),
		Runtime:        s.Runtime,
		ReadonlyRootfs: s.ReadOnly,
		Init:           &useInit,
		CapDrop:        []string{"ALL"},
		CapAdd:         capabilities,
		SecurityOpt:    securityOpts(s.SecurityOpts),
		IpcMode:        container.IPCModePrivate,
		CgroupnsMode:   "", // the engine's: private on cgroup v2
		// Bounded, so that a flood of output cannot fill the host's disk.
		LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "2"}},
		Resources: container.Resources{
			Memory: memory, MemorySwap: memory, // no swap on top
			NanoCPUs:  sandbox.NanoCPUs(cpus),
			PidsLimit: &pids,
			Ulimits:   []*container.Ulimit{{Name: "nofile", Soft: s.OpenFiles, Hard: s.OpenFiles}},
			// The driver of NVIDIA sets the variable of NoGPUs anew; that of CDI needs none.
			DeviceRequests: deviceRequests(c.gpus),
		},
		Mounts: mounts(s, c),
	}
	if s.Policy != nil && !s.NoNames { // the server listens there; "." keeps the domains of this host out
		host.DNS, host.DNSSearch = []string{insideResolver}, []string{"."}
	}
	if s.Disk > 0 {
		host.StorageOpt = map[string]string{"size": strconv.FormatInt(s.Disk, 10)}
	}
	switch {
	case gainsPrivileges(s.SecurityOpts):
		host.CapAdd = slices.Concat(capabilities, sudoCapabilities)
	case s.User == "root" || s.AllowRoot:
		host.CapAdd = slices.Concat(capabilities, rootCapabilities)
	}
	if s.AllowRoot {
		host.CapAdd = append(slices.Clone(host.CapAdd), installCapability)
	}
	unownedMemory(s, host, !c.remapped)
	if c.egressDir != "" {
		host.Tmpfs[insideTrust] = tmpfs(trustSize, 0, "0755") + ",noexec"
	}
	if c.runDir == "" {
		config.ExposedPorts = nat.PortSet{insidePort: {}}
		host.PortBindings = nat.PortMap{insidePort: {{HostIP: "127.0.0.1"}}} // the engine chooses the port
	}
	return config, host
}

// unclaimedTime is longer than a caller that is alive takes to claim the sandbox that it started.
const unclaimedTime = 10 * time.Minute

func arguments(s *sandbox.Spec, c creation) []string {
	addr := "unix:" + insideSocket
	if c.runDir == "" {
		addr = "0.0.0.0:" + strings.TrimSuffix(insidePort, "/tcp")
	}
	// Other containers of its network reach a port too. Only the hash is where
	// other users of the engine can see it.
	hash := sandbox.TicketHash(c.ticket)
	ttl, idle := limits(s, c)
	if c.pool == "" { // until the claim, which brings the sandbox's own: its creator may die before
		ttl = unclaimedTime
	}
	claim := []string{"--claim-hash", hash, "--ttl", ttl.String()}
	if c.runDir != "" && (len(s.Mounts) > 0 || c.egressDir != "") { // see Host.start
		claim = append(claim, "--start-fifo", insideStart)
	}
	return s.ServerArguments(addr, insideState, c.userID, idle, claim...)
}

// limits are those that a sandbox is created with. One in a pool gets its
// owner's limits with the claim.
func limits(s *sandbox.Spec, c creation) (ttl, idle time.Duration) {
	if c.pool != "" {
		return sandbox.PoolAge, 0
	}
	return s.TTL, s.Idle
}

// labels sets every label of Actiond, also the empty ones: otherwise one that the
// image carries would count.
func labels(s *sandbox.Spec, c creation) map[string]string {
	all := maps.Clone(s.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		labelManaged: "sandbox", labelID: c.id, labelName: cmp.Or(c.name, c.id), labelOwner: s.Owner,
		labelSpec: s.Hash(), labelController: c.controller, labelCreated: c.created.UTC().Format(time.RFC3339),
		labelDeadline: "", labelIdle: "", labelPool: c.pool, labelTransport: "socket",
		labelUser: s.User + ":" + strconv.Itoa(c.userID), labelBinary: c.binary, labelAllowRoot: "", labelGPUs: c.gpus.String(),
	})
	ttl, idle := limits(s, c)
	if ttl > 0 {
		all[labelDeadline] = c.created.Add(ttl).UTC().Format(time.RFC3339)
	}
	if idle > 0 {
		all[labelIdle] = idle.String()
	}
	if c.runDir == "" {
		all[labelTransport] = "port"
	}
	if s.AllowRoot {
		all[labelAllowRoot] = "true"
	}
	return all
}

func mounts(s *sandbox.Spec, c creation) []mount.Mount {
	var all []mount.Mount
	if c.volume != "" {
		all = append(all, mount.Mount{
			Type: mount.TypeVolume, Source: c.volume, Target: insideBin, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		})
	}
	if c.terminals && plainRuntime(s.Runtime) {
		all = append(all, terminals())
	}
	if c.runDir != "" {
		all = append(all, bind(c.runDir, insideRun, false))
	}
	if c.egressDir != "" { // read-only: root in the sandbox can neither remove nor replace the socket
		all = append(all, bind(c.egressDir, insideEgress, true))
	}
	for _, m := range s.Mounts {
		all = append(all, bind(m.Source, m.Target, m.ReadOnly))
	}
	return all
}

// maxTerminals is how many pseudo-terminals a sandbox gets: twice the need
// of the server's sessions. Without a limit one takes all that the host has for
// containers, and no sandbox there can start a session.
const maxTerminals = 128

// terminals replaces the engine's /dev/pts, whose options cannot be chosen, by a
// volume with the same ones and a limit. The volume has no name and is removed
// with its container.
func terminals() mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Target: "/dev/pts",
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{
			"type": "devpts", "device": "devpts",
			"o": fmt.Sprintf("nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5,max=%d", maxTerminals),
		}}},
	}
}

// plainRuntime reports whether containers of the OCI runtime share this kernel's
// file systems, devpts among them. An empty name is the engine's default.
func plainRuntime(name string) bool {
	return slices.Contains([]string{"", "runc", "crun", "io.containerd.runc.v2"}, name)
}

func bind(source, target string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		// Later mounts in it, on either side, stay on that side.
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	}
}

// securityOpts are the defaults but for the kinds the caller decided.
func securityOpts(own []string) []string {
	all := slices.Clone(own)
	given := func(kind string) bool {
		return slices.ContainsFunc(own, func(opt string) bool { k, _ := splitOpt(opt); return k == kind })
	}
	if !given("no-new-privileges") {
		all = append(all, "no-new-privileges")
	}
	if !given("seccomp") {
		all = append(all, "seccomp="+seccompProfile)
	}
	return all
}

// gainsPrivileges reports whether set-uid programs in the sandbox gain privileges.
func gainsPrivileges(securityOpts []string) bool {
	return slices.ContainsFunc(securityOpts, func(opt string) bool {
		kind, value := splitOpt(opt)
		set, err := strconv.ParseBool(value)
		return kind == "no-new-privileges" && err == nil && !set
	})
}

// Protection lists the protections of the host that a sandbox of this specification
// loses and gains against the defaults, as sentences.
func Protection(s sandbox.Spec) (lost, gained []string) {
	for _, opt := range s.SecurityOpts {
		switch kind, value := splitOpt(opt); {
		case kind == "seccomp" && value == "unconfined":
			lost = append(lost, "seccomp is off: every system call reaches the host's kernel")
		case kind == "seccomp":
			lost = append(lost, "the seccomp profile is the caller's")
		case gainsPrivileges([]string{opt}):
			lost = append(lost, "set-uid programs such as sudo gain privileges")
		case kind == "apparmor" && value == "unconfined", kind == "label" && value == "disable":
			lost = append(lost, fmt.Sprintf("%s is off", kind))
		case kind == "systempaths" && value == "unconfined":
			lost = append(lost, "/proc and /sys are not masked")
		}
	}
	if s.User == "root" {
		lost = append(lost, "commands run with the server's own user: the agent can stop the server and read its memory, "+
			"and uses quotas of the host's root, such as inotify instances")
	}
	if s.AllowRoot {
		lost = append(lost, "an operator runs programs as root: an agent that prepared the files they use becomes root in the sandbox")
	}
	if !s.GPUs.IsZero() {
		lost = append(lost, "the agent reaches GPUs and their driver in the host's kernel")
	}
	for _, m := range s.Mounts {
		if !m.ReadOnly {
			lost = append(lost, fmt.Sprintf("the agent changes %s on the host", m.Source))
		}
	}
	switch s.Runtime {
	case "", "runc", "crun", "io.containerd.runc.v2":
	case "runsc":
		gained = append(gained, "gVisor stands between the agent and the host's kernel")
	case "kata", "kata-runtime", "io.containerd.kata.v2":
		gained = append(gained, "a virtual machine stands between the agent and the host's kernel")
	}
	if s.ReadOnly {
		gained = append(gained, "the image's files cannot be changed")
	}
	switch {
	case s.Policy != nil:
		gained = append(gained, "the agent reaches what its network policy admits, by TCP alone")
	case s.Network == "none":
		gained = append(gained, "the agent reaches no network")
	}
	return lost, gained
}
