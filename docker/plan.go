package docker

import (
	"crypto/sha256"
	_ "embed" // the seccomp profile
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-connections/nat"
)

// Labels of every sandbox. They hold the facts that are fixed at birth.
const (
	labelPrefix     = "dev.actiond."
	labelManaged    = labelPrefix + "managed" // "sandbox", or "filler"
	labelID         = labelPrefix + "id"      // as born; the id of its directory on the host
	labelName       = labelPrefix + "name"
	labelOwner      = labelPrefix + "owner"
	labelSpec       = labelPrefix + "spec"       // hash of the specification
	labelController = labelPrefix + "controller" // who made it
	labelCreated    = labelPrefix + "created"    // RFC 3339
	labelDeadline   = labelPrefix + "deadline"   // RFC 3339, empty: none
	labelIdle       = labelPrefix + "idle"       // a duration, empty: none
	labelPool       = labelPrefix + "pool"       // name of the warm pool it was born into
	labelTransport  = labelPrefix + "transport"  // "socket" or "port"
	labelUser       = labelPrefix + "user"
	labelBinary     = labelPrefix + "server" // SHA-256 of the server in it
)

// seccompProfile is the current default of Moby (github.com/moby/profiles,
// seccomp v0.2.3, Apache License 2.0), because that of an older engine lets
// io_uring_setup and AF_VSOCK through. socketcall is taken out: it does on
// 32-bit what socket does, and a filter cannot see which family it asks for.
//
//go:embed seccomp.json
var seccompProfile string

// capabilities are what a server with uid 0 needs to run commands and open
// files as somebody else. Without any one of them a sandbox does not start or
// cannot be tidied up. DAC_OVERRIDE and FOWNER are not among them: the server
// opens what is the user's with the user's rights, but see rootCapabilities.
var capabilities = []string{
	"CAP_SETUID", // start commands, and open files, as the user
	"CAP_SETGID", // with the user's groups
	"CAP_KILL",   // end the user's processes
	"CAP_CHOWN",  // hand the account's home and the working directory to the user
}

// rootCapabilities are for commands that run as root, too: without them root
// cannot write what is somebody else's, such as a working directory that the
// image gave to its own user. They open nothing: who may become anybody, and
// give away any file, gets there without them.
var rootCapabilities = []string{"CAP_DAC_OVERRIDE", "CAP_FOWNER"}

// birth is what a container is made from besides the specification.
type birth struct {
	id, name   string // of the sandbox; its human name
	key        string
	controller string
	created    time.Time
	runDir     string // host directory for the socket, empty: a port instead
	volume     string // with the server, empty: it is copied in
	binary     string // SHA-256 of the server
	pool       string
	ticket     string // that a claim must bring
	cpus       int    // of the host, 0: not known
}

// plan turns a completed specification into what the engine wants to know. It
// looks at nothing else.
func plan(s *Spec, b birth) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image:       s.Image,
		User:        "0:0", // whatever the image says; commands run as s.User
		Hostname:    b.id,
		Entrypoint:  []string{insideServer},
		Cmd:         arguments(s, b),
		Labels:      labels(s, b),
		WorkingDir:  "/",
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
	cpus := s.CPUs
	if b.cpus > 0 { // the engine refuses a limit beyond it, which is met anyway
		cpus = min(cpus, float64(b.cpus))
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
			NanoCPUs:  nanoCPUs(cpus),
			PidsLimit: &pids,
		},
		Mounts: mounts(s, b),
	}
	if s.User == "root" {
		host.CapAdd = slices.Concat(capabilities, rootCapabilities)
	}
	memoryFiles(s, host)
	if b.runDir == "" {
		config.ExposedPorts = nat.PortSet{insidePort: {}}
		host.PortBindings = nat.PortMap{insidePort: {{HostIP: "127.0.0.1"}}} // the engine chooses the port
	}
	return config, host
}

func arguments(s *Spec, b birth) []string {
	addr := "unix:" + insideSocket
	if b.runDir == "" {
		addr = "0.0.0.0:" + strings.TrimSuffix(insidePort, "/tcp")
	}
	// Neighbours on its network reach a port too. Only the hash stands where
	// whoever may look at the container sees it.
	ticket := sha256.Sum256([]byte(b.ticket))
	args := []string{
		"--addr", addr, "--working-dir", s.WorkDir,
		"--username", s.User, "--user-id", strconv.Itoa(s.UserID), "--state-dir", insideState, "--claim", "--claim-hash", hex.EncodeToString(ticket[:]),
	}
	ttl, idle := limits(s, b)
	if ttl > 0 {
		args = append(args, "--ttl", ttl.String())
	}
	if idle > 0 {
		args = append(args, "--idle-limit", idle.String())
	}
	return append(args, s.Flags...)
}

// poolAge is how long a warm sandbox waits to be claimed before another takes
// its place.
const poolAge = time.Hour

// limits are those that a sandbox is born with. What waits in a pool gets its
// owner's limits with the claim.
func limits(s *Spec, b birth) (ttl, idle time.Duration) {
	if b.pool != "" {
		return poolAge, 0
	}
	return s.TTL, s.Idle
}

// labels sets every label of ours, also the empty ones: otherwise one that the
// image carries would count.
func labels(s *Spec, b birth) map[string]string {
	all := maps.Clone(s.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		labelManaged: "sandbox", labelID: b.id, labelName: orElse(b.name, b.id), labelOwner: s.Owner,
		labelSpec: s.hash(), labelController: b.controller, labelCreated: b.created.UTC().Format(time.RFC3339),
		labelDeadline: "", labelIdle: "", labelPool: b.pool, labelTransport: "socket",
		labelUser: s.User + ":" + strconv.Itoa(s.UserID), labelBinary: b.binary,
	})
	ttl, idle := limits(s, b)
	if ttl > 0 {
		all[labelDeadline] = b.created.Add(ttl).UTC().Format(time.RFC3339)
	}
	if idle > 0 {
		all[labelIdle] = idle.String()
	}
	if b.runDir == "" {
		all[labelTransport] = "port"
	}
	return all
}

func mounts(s *Spec, b birth) []mount.Mount {
	var all []mount.Mount
	if b.volume != "" {
		all = append(all, mount.Mount{
			Type: mount.TypeVolume, Source: b.volume, Target: insideBin, ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true},
		})
	}
	if b.runDir != "" {
		all = append(all, bind(b.runDir, insideRun, false))
	}
	for _, m := range s.Mounts {
		all = append(all, bind(m.Source, m.Target, m.ReadOnly))
	}
	return all
}

func bind(source, target string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		// What is mounted in it later, on either side, stays on that side.
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	}
}

// memoryFiles bounds what the sandbox can keep in file systems in memory: that
// counts as memory, and filling it must not kill the sandbox. All together get
// a quarter of the limit.
func memoryFiles(s *Spec, host *container.HostConfig) {
	quarter := s.Memory / 4
	host.ShmSize = min(64<<20, quarter/4)
	if !s.ReadOnly {
		return
	}
	share := (quarter - host.ShmSize) / 4
	size := func(n int64, mode string) string {
		return "rw,nosuid,nodev,size=" + strconv.FormatInt(n, 10) + ",mode=" + mode
	}
	host.Tmpfs = map[string]string{
		"/tmp":      size(share, "1777"),
		insideState: size(share/2, "0700"),
		"/home":     size(share/2, "0755") + ",exec",
	}
	if !slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == s.WorkDir }) {
		host.Tmpfs[s.WorkDir] = size(2*share, "0775") + ",exec"
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

// Protection says in sentences what protects the host from a sandbox of this
// specification differently from the defaults: what is lost and what is gained.
func Protection(s Spec) (lost, gained []string) {
	for _, opt := range s.SecurityOpts {
		switch kind, value := splitOpt(opt); {
		case kind == "seccomp" && value == "unconfined":
			lost = append(lost, "seccomp is off: every system call reaches the host's kernel")
		case kind == "seccomp":
			lost = append(lost, "the seccomp profile is the caller's")
		case kind == "no-new-privileges" && value == "false":
			lost = append(lost, "set-uid programs such as sudo gain privileges")
		case kind == "apparmor" && value == "unconfined", kind == "label" && value == "disable":
			lost = append(lost, fmt.Sprintf("%s is off", kind))
		case kind == "systempaths" && value == "unconfined":
			lost = append(lost, "/proc and /sys are not masked")
		}
	}
	if s.User == "root" {
		lost = append(lost, "commands run with the server's own user: the agent can stop the server and read its memory")
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
	if s.Network == "none" {
		gained = append(gained, "the agent reaches no network")
	}
	return lost, gained
}
