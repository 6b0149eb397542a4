package sandbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/actiond/actiond/egress"
)

// Spec is the specification of a sandbox. The zero value of every field but Image is
// a safe default.
type Spec struct {
	// Image is the name of the image: any Linux image with a shell.
	Image string
	// Key makes Create idempotent: the same key and the same specification give
	// the same sandbox. Default: random, so every call makes a new one.
	Key string
	// Secret is the key of requests to the sandbox's server, for a caller that must
	// announce it before the sandbox exists. It is not part of the hash, and an existing
	// sandbox keeps its own. Default: random.
	Secret string
	// Name is a name for people. Default: the id.
	Name string
	// Owner is the owner of the sandbox, for people and filters.
	Owner string
	// Env are variables for the commands in the sandbox. The claim has them, and not the
	// container's configuration; only their names are in the specification's hash.
	Env map[string]string
	// Mounts are directories and files of the host. Sensitive ones are refused.
	Mounts []Mount
	// User runs commands and opens files, "root" included. Default "agent".
	User string
	// UserID is the id the account gets if the image has no such user. Default: with
	// a writable mount the owner of the first one, or 1000 if that is root, so that
	// files there keep one owner; otherwise one of Config.UserIDs that no other
	// sandbox has.
	UserID int
	// AllowRoot lets clients of the server run programs as root, whatever User is: see
	// SECURITY.md for the risks.
	AllowRoot bool
	// WorkDir is the working directory of shells. Default /workspace.
	WorkDir string
	// Memory limits memory, in bytes. Default 2 GiB.
	Memory int64
	// Disk limits the files that the sandbox writes outside of mounts, in bytes. Drivers that
	// cannot limit them refuse it. Default: the platform's.
	Disk int64
	// CPUs limits processor time, in processors, to those of the host at most.
	// Default 2.
	CPUs float64
	// Pids limits processes and threads. Default 512.
	Pids int64
	// OpenFiles limits the descriptors of each process, including the server: all
	// sandboxes of a host share the kernel's tables. Default [DefaultFiles], and [PolicyFiles] with a Policy.
	OpenFiles int64
	// GPUs are given to the sandbox, and to no other one meanwhile where the driver knows which are free.
	// The devices to choose from are not part of the hash. Default: none.
	GPUs GPUs
	// Network is "none", the name of a network, or the platform's default: "bridge" for
	// Docker, "default" for Kubernetes.
	Network string
	// Policy admits the hosts that the sandbox reaches, through the platform's egress proxy;
	// Network is then "none". It may be changed later, and the hash has it as it was asked for.
	// The values of its secrets are for the egress proxy alone.
	// Default: no proxy, and Network alone decides.
	Policy *egress.Policy
	// Private are the ranges of private addresses to which the rules of Policy may lead.
	Private []netip.Prefix
	// NoNames leaves out the resolver by which programs that know no proxy connect to the names
	// that Policy admits. While a name is in use, programs cannot listen on 0.0.0.0 at its ports.
	NoNames bool
	// Labels are the caller's own; none may begin with "dev.actiond.".
	Labels map[string]string
	// Runtime is the OCI runtime, such as "runsc". Default: the engine's.
	Runtime string
	// SecurityOpts are passed to the engine and replace defaults of the same kind.
	SecurityOpts []string
	// ReadOnly makes the image's files read-only; /tmp, the working directory (unless it
	// is a mount) and the files of the server are then in memory, a quarter of Memory in
	// all.
	ReadOnly bool
	// TTL ends the sandbox this long after its creation. 0: never.
	TTL time.Duration
	// Idle ends the sandbox after this long without an action. 0: never.
	Idle time.Duration
	// Pull selects when the image is pulled. It is not part of the hash.
	Pull Pull
	// Flags are further arguments for the server, such as --soft-timeout=30s.
	Flags []string

	// The following fields are for Pods of Kubernetes; other drivers refuse them.

	// PullSecrets name Secrets of the namespace with credentials for registries.
	PullSecrets []string
	// NodeSelector are labels that the node must have.
	NodeSelector map[string]string
	// Tolerations are taints that the node may have: KEY[=VALUE][:EFFECT].
	Tolerations []string
	// UserNamespace gives the Pod user ids that are not those of its node, which must
	// have user namespaces.
	UserNamespace bool
}

// Mount puts a directory or file of the host into the sandbox.
type Mount struct {
	Source, Target string // absolute paths on the host and in the sandbox
	ReadOnly       bool
}

// Pull selects when an image is pulled.
type Pull string

// The empty Pull is PullMissing.
const (
	PullMissing Pull = "missing"
	PullAlways  Pull = "always"
	PullNever   Pull = "never"
)

// Defaults of a Spec, and bounds.
const (
	DefaultMemory = 2 << 30
	DefaultCPUs   = 2
	DefaultPids   = 512
	DefaultFiles  = 2560 // the server's connections, sessions and kernels, and a third more
	MaxUserID     = 1<<31 - 2

	// PolicyFiles has more for the connections of a policy network: 256 with 6 descriptors each, and
	// 512 listeners.
	PolicyFiles = DefaultFiles + 256*6 + 512

	defaultUser    = "agent"
	defaultWorkDir = "/workspace"
	minDisk        = 64 << 20 // with the server and its state in it
	minMemory      = 32 << 20 // below this the server and a shell do not start
	minPids        = 16
	minFiles       = 256 // the server keeps some for each session and connection
)

// NoGPUs is the variable of a container that keeps the runtime of NVIDIA from giving it all GPUs of the
// host, which images of CUDA ask for. Variables of a specification do not reach the runtime.
const NoGPUs = "NVIDIA_VISIBLE_DEVICES=void"

// LabelPrefix begins the labels that drivers set.
const LabelPrefix = "dev.actiond."

// Invalid returns an [ErrInvalid] with the reason.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

var (
	userPattern   = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	namePattern   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)
	secretPattern = regexp.MustCompile(`^[a-zA-Z0-9]{32,256}$`)
	envPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Complete sets the defaults and makes the checks that all drivers share. It does not
// change maps and slices that s shares with its caller.
func (s *Spec) Complete() error {
	s.User = cmp.Or(s.User, defaultUser)
	s.WorkDir = cmp.Or(s.WorkDir, defaultWorkDir)
	s.Memory = cmp.Or(s.Memory, DefaultMemory)
	s.CPUs = cmp.Or(s.CPUs, DefaultCPUs)
	s.Pids = cmp.Or(s.Pids, DefaultPids)
	if s.OpenFiles == 0 && s.Policy != nil {
		s.OpenFiles = PolicyFiles
	}
	s.OpenFiles = cmp.Or(s.OpenFiles, DefaultFiles)
	s.Pull = cmp.Or(s.Pull, PullMissing)
	switch {
	case s.Image == "":
		return Invalid("no image is named")
	case s.Name != "" && !IsName(s.Name):
		return Invalid("name %q: letters, digits, '_', '.' and '-', beginning with a letter or digit", s.Name)
	case strings.ContainsRune(s.Key, 0) || len(s.Key) > 512:
		return Invalid("the key must have at most 512 bytes and no NUL")
	case s.Secret != "" && !secretPattern.MatchString(s.Secret):
		return Invalid("the secret must have 32 to 256 letters and digits")
	case !userPattern.MatchString(s.User):
		return Invalid("user %q is not the name of an account", s.User)
	case s.UserID < 0 || s.UserID > MaxUserID:
		return Invalid("user id %d", s.UserID)
	case s.UserID == 0 && s.User == "root":
	case s.User == "root":
		return Invalid("the user id of root is 0, not %d", s.UserID)
	case s.Memory < minMemory:
		return Invalid("memory of %s is too little: a server and a shell need %s", units.BytesSize(float64(s.Memory)), units.BytesSize(minMemory))
	case s.Disk != 0 && s.Disk < minDisk:
		return Invalid("a disk of %s is too little: a server needs %s", units.BytesSize(float64(s.Disk)), units.BytesSize(minDisk))
	case !(s.CPUs >= 0.01 && s.CPUs <= 1024):
		return Invalid("a limit of %v processors is not from 0.01 to 1024", s.CPUs)
	case s.Pids < minPids:
		return Invalid("a limit of %d processes is less than the %d that a server and a shell need", s.Pids, minPids)
	case s.OpenFiles < minFiles:
		return Invalid("a limit of %d open files is less than the %d that a server needs", s.OpenFiles, minFiles)
	case s.TTL < 0 || s.Idle < 0:
		return Invalid("a time limit must not be negative")
	case s.Pull != PullMissing && s.Pull != PullAlways && s.Pull != PullNever:
		return Invalid("pull %q: always, missing or never", s.Pull)
	}
	if err := s.GPUs.check(); err != nil {
		return err
	}
	if err := s.checkPolicy(); err != nil {
		return err
	}
	return s.checkWords()
}

// checkPolicy checks the policy, and gives a sandbox that has one no other network.
func (s *Spec) checkPolicy() error {
	if s.Policy == nil {
		if len(s.Private) > 0 {
			return Invalid("private ranges are for rules of a network policy, and there is none")
		}
		if s.NoNames {
			return Invalid("names are resolved with a network policy alone, and there is none")
		}
		return nil
	}
	if s.Network != "" && s.Network != "none" {
		return Invalid("a sandbox with a network policy has no other network: leave out network %s, or the policy", s.Network)
	}
	s.Network = "none"
	for _, p := range s.Private {
		if !p.IsValid() || p != p.Masked() {
			return Invalid("private range %v: must be a range of addresses such as 10.0.0.0/8", p)
		}
	}
	if err := s.Policy.Check(); err != nil {
		return Invalid("network policy: %v", err)
	}
	return nil
}

// warm removes the fields that a claim sets: a sandbox in a pool has none of its claimer's variables, and
// reaches nothing if the claimer's policy is to apply.
func (s *Spec) warm() {
	s.Env = nil
	if s.Policy != nil {
		s.Policy, s.Private = &egress.Policy{Mode: egress.ModeNoNetwork}, nil
	}
}

func (s *Spec) checkWords() error {
	for name, value := range s.Env {
		if !envPattern.MatchString(name) || strings.ContainsRune(value, 0) {
			return Invalid("variable %q: letters, digits and '_' in the name, no NUL in the value", name)
		}
	}
	for name := range s.Labels {
		if name == "" || strings.HasPrefix(name, LabelPrefix) {
			return Invalid("label %q: labels that begin with %q are reserved; use another name", name, LabelPrefix)
		}
	}
	for _, flag := range s.Flags {
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if !strings.HasPrefix(flag, "--") || slices.Contains(ownFlags, name) {
			return Invalid("server flag %q: a word that begins with --, and none of %s", flag, strings.Join(ownFlags, ", "))
		}
	}
	return CleanAbsolute("working directory", s.WorkDir)
}

// CleanAbsolute refuses a path that is not absolute and clean; name is its name in the
// error.
func CleanAbsolute(name, p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsAny(p, "\x00\n") {
		return Invalid("%s %q must be an absolute path without '..', doubled or trailing slashes", name, p)
	}
	return nil
}

// IsName reports whether text can be the name of a sandbox or a pool.
func IsName(text string) bool { return namePattern.MatchString(text) }

// ownFlags are the server's flags that drivers set.
var ownFlags = []string{"addr", "working-dir", "username", "user-id", "state-dir", "session-key-file", "claim", "claim-hash", "memory-fd", "start-fifo", "ttl", "idle-limit", "allow-root", "device-groups"}

// PodOptions returns for the options that only Pods of Kubernetes have whether the
// specification has them.
func (s *Spec) PodOptions() map[string]bool {
	return map[string]bool{
		"image pull secrets": len(s.PullSecrets) > 0, "a node selector": len(s.NodeSelector) > 0, "tolerations": len(s.Tolerations) > 0,
		"a user namespace": s.UserNamespace,
	}
}

// CannotHonour refuses a specification with options that a driver does not have. The value
// for the name of an option is true if the specification has the option.
func CannotHonour(d Driver, options map[string]bool) error {
	asked := slices.DeleteFunc(slices.Sorted(maps.Keys(options)), func(name string) bool { return !options[name] })
	if len(asked) > 0 {
		return Invalid("%s cannot honour %s; leave that out", d.Platform(), strings.Join(asked, ", "))
	}
	return nil
}

// Hash is the completed specification's identity: two specifications with equal hashes
// ask for the same sandbox. Key, Secret, Name, Owner and Pull are not part of it, nor
// are the values of Env and of the policy's secrets, which must not be guessable from a label.
func (s *Spec) Hash() string {
	canonical := struct {
		Image, User, WorkDir, Network, Runtime string
		UserID                                 int
		EnvNames                               []string
		Mounts                                 []Mount
		Memory, NanoCPUs, Pids, OpenFiles      int64
		Labels                                 map[string]string
		SecurityOpts, Flags                    []string
		ReadOnly                               bool
		TTL, Idle                              time.Duration
		// Sandboxes of earlier versions keep their hash.
		AllowRoot                bool              `json:",omitzero"`
		PullSecrets, Tolerations []string          `json:",omitempty"`
		NodeSelector             map[string]string `json:",omitempty"`
		UserNamespace            bool              `json:",omitzero"`
		Policy                   *egress.Policy    `json:",omitzero"`
		Private                  []netip.Prefix    `json:",omitempty"`
		Disk                     int64             `json:",omitzero"`
		NoNames                  bool              `json:",omitzero"`
		GPUs                     string            `json:",omitzero"`
	}{
		s.Image, s.User, s.WorkDir, s.Network, s.Runtime, s.UserID,
		slices.Sorted(maps.Keys(s.Env)), s.Mounts, s.Memory, NanoCPUs(s.CPUs), s.Pids, s.OpenFiles, s.Labels,
		s.SecurityOpts, s.Flags, s.ReadOnly, s.TTL, s.Idle, s.AllowRoot,
		s.PullSecrets, s.Tolerations, s.NodeSelector, s.UserNamespace, nil, s.Private, s.Disk, s.NoNames, s.GPUs.String(),
	}
	if s.Policy != nil {
		policy := s.Policy.WithoutValues()
		canonical.Policy = &policy
	}
	// Empty and nil are equal.
	canonical.Mounts, canonical.SecurityOpts, canonical.Flags = orNil(s.Mounts), orNil(s.SecurityOpts), orNil(s.Flags)
	if len(s.Labels) == 0 {
		canonical.Labels = nil
	}
	data, err := json.Marshal(canonical) // maps are written in order
	if err != nil {
		panic(err) // strings and numbers can be written
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

// orNil returns a copy, nil for an empty slice.
func orNil[T any](s []T) []T { return append([]T(nil), s...) }

// ServerArguments returns the arguments of the server in a sandbox that must be claimed. claim
// are those about the claim.
func (s *Spec) ServerArguments(addr, stateDir string, userID int, idle time.Duration, claim ...string) []string {
	args := append([]string{
		"--addr", addr, "--working-dir", s.WorkDir, "--username", s.User, "--user-id", strconv.Itoa(userID), "--state-dir", stateDir, "--claim",
	}, claim...)
	if idle > 0 {
		args = append(args, "--idle-limit", idle.String())
	}
	if s.AllowRoot {
		args = append(args, "--allow-root")
	}
	if !s.GPUs.IsZero() {
		args = append(args, "--device-groups")
	}
	return append(args, s.Flags...)
}

// TicketHash returns the hash of a ticket, which other users of the platform may see.
func TicketHash(ticket string) string {
	sum := sha256.Sum256([]byte(ticket))
	return hex.EncodeToString(sum[:])
}

// NanoCPUs returns a number of processors in billionths.
func NanoCPUs(cpus float64) int64 { return int64(cpus * 1e9) }

// ID returns the id of the sandbox that every driver gives for this key of a Spec:
// 12 hexadecimal digits.
func ID(key string) string {
	sum := sha256.Sum256([]byte("sandbox\x00" + key))
	return hex.EncodeToString(sum[:6])
}
