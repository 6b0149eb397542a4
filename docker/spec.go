package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Spec says what sandbox is wanted. The zero value of every field but Image is
// a safe default.
type Spec struct {
	// Image is the image's name. Any Linux image with a shell will do.
	Image string
	// Key makes Create idempotent: the same key and the same specification give
	// the same sandbox. Default: random, so every call makes a sandbox.
	Key string
	// Secret is what requests to the sandbox's server are signed with, for a
	// caller who must tell it before the sandbox is there. It is no part of the
	// hash, and a sandbox that is there already keeps its own. Default: random.
	Secret string
	// Name is what people call the sandbox. Default: the id.
	Name string
	// Owner is whose sandbox it is, a word for people and filters.
	Owner string
	// Env are variables for the commands in the sandbox. They are handed over
	// by the claim and stand neither in the container's configuration nor,
	// but for their names, in the specification's hash.
	Env map[string]string
	// Mounts are directories and files of the host. Sensitive ones are refused.
	Mounts []Mount
	// User runs commands and opens files, "root" included. Default "agent".
	User string
	// UserID is the id the account gets if the image has no such user. Default:
	// the owner of the first writable mount unless that is root, else 1000.
	UserID int
	// WorkDir is where shells start. Default /workspace.
	WorkDir string
	// Memory limits memory, in bytes. Default 2 GiB.
	Memory int64
	// CPUs limits processor time, in processors, to those of the host at most.
	// Default 2.
	CPUs float64
	// Pids limits processes and threads. Default 512.
	Pids int64
	// Network is "bridge" (the default), "none", or the name of a network.
	Network string
	// Labels are the caller's own; none may begin with "dev.actiond.".
	Labels map[string]string
	// Runtime is the OCI runtime, such as "runsc". Default: the engine's.
	Runtime string
	// SecurityOpts are passed to the engine and win over the defaults of the
	// same kind.
	SecurityOpts []string
	// ReadOnly makes the image's files read-only; /tmp, the working directory
	// (where nothing is mounted on it) and what the server writes are in memory
	// then, a quarter of Memory in all.
	ReadOnly bool
	// TTL ends the sandbox this long after its creation. 0: never.
	TTL time.Duration
	// Idle ends the sandbox after this long without an action. 0: never.
	Idle time.Duration
	// Pull says when the image is pulled. It is no part of the hash.
	Pull Pull
	// Flags are further arguments for the server, such as --soft-timeout=30s.
	Flags []string
}

// Mount puts a directory or file of the host into the sandbox.
type Mount struct {
	Source, Target string // absolute paths on the host and in the sandbox
	ReadOnly       bool
}

// Pull says when an image is pulled.
type Pull string

// The empty Pull is PullMissing.
const (
	PullMissing Pull = "missing"
	PullAlways  Pull = "always"
	PullNever   Pull = "never"
)

const (
	defaultUser    = "agent"
	defaultUserID  = 1000
	defaultWorkDir = "/workspace"
	defaultMemory  = 2 << 30
	defaultCPUs    = 2
	defaultPids    = 512
	minMemory      = 32 << 20 // below this the server and a shell do not start
	minPids        = 16
)

// refuse says what a specification asks for that it may not have.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

var (
	userPattern   = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	namePattern   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)
	secretPattern = regexp.MustCompile(`^[a-zA-Z0-9]{32,256}$`)
	envPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// complete fills in the defaults and checks everything that can be checked
// without looking at the host. It changes nothing of what s shares with its
// caller.
func (s *Spec) complete() error {
	s.User = orElse(s.User, defaultUser)
	s.WorkDir = orElse(s.WorkDir, defaultWorkDir)
	s.Memory = orElse(s.Memory, defaultMemory)
	s.CPUs = orElse(s.CPUs, defaultCPUs)
	s.Pids = orElse(s.Pids, defaultPids)
	s.Network = orElse(s.Network, "bridge")
	s.Pull = orElse(s.Pull, PullMissing)
	switch {
	case s.Image == "":
		return refuse("no image is named")
	case s.Name != "" && !namePattern.MatchString(s.Name):
		return refuse("name %q: letters, digits, '_', '.' and '-', beginning with a letter or digit", s.Name)
	case strings.ContainsRune(s.Key, 0) || len(s.Key) > 512:
		return refuse("the key must have at most 512 bytes and no NUL")
	case s.Secret != "" && !secretPattern.MatchString(s.Secret):
		return refuse("the secret must have 32 to 256 letters and digits")
	case !userPattern.MatchString(s.User):
		return refuse("user %q is not the name of an account", s.User)
	case s.UserID < 0 || s.UserID > 1<<31-2:
		return refuse("user id %d", s.UserID)
	case s.UserID == 0 && s.User == "root":
	case s.User == "root":
		return refuse("the user id of root is 0, not %d", s.UserID)
	case s.Memory < minMemory:
		return refuse("memory of %d bytes is less than the %d that a server and a shell need", s.Memory, minMemory)
	case !(s.CPUs >= 0.01 && s.CPUs <= 1024):
		return refuse("a limit of %v processors is not from 0.01 to 1024", s.CPUs)
	case s.Pids < minPids:
		return refuse("a limit of %d processes is less than the %d that a server and a shell need", s.Pids, minPids)
	case s.TTL < 0 || s.Idle < 0:
		return refuse("a time limit must not be negative")
	case s.Pull != PullMissing && s.Pull != PullAlways && s.Pull != PullNever:
		return refuse("pull %q: always, missing or never", s.Pull)
	}
	if err := s.checkNetwork(); err != nil {
		return err
	}
	if err := s.checkSecurity(); err != nil {
		return err
	}
	return s.checkWords()
}

func orElse[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

func (s *Spec) checkNetwork() error {
	switch {
	case s.Network == "host":
		return refuse("network host: the sandbox would reach every service that listens on this host's loopback")
	case strings.HasPrefix(s.Network, "container:"):
		return refuse("network %s: the sandbox would share another container's network", s.Network)
	case !namePattern.MatchString(s.Network):
		return refuse("network %q is not the name of a network", s.Network)
	}
	return nil
}

func (s *Spec) checkSecurity() error {
	for _, opt := range s.SecurityOpts {
		kind, value := splitOpt(opt)
		switch kind {
		case "seccomp", "apparmor", "label", "systempaths", "no-new-privileges":
		default:
			return refuse("security option %q: seccomp, apparmor, label, systempaths and no-new-privileges are known", opt)
		}
		if kind == "seccomp" && value == "" {
			return refuse("security option %q has no profile", opt)
		}
	}
	return nil
}

// splitOpt takes a security option apart: both "kind=value" and the engine's
// older "kind:value" are understood.
func splitOpt(opt string) (kind, value string) {
	if i := strings.IndexAny(opt, "=:"); i >= 0 {
		return opt[:i], opt[i+1:]
	}
	return opt, ""
}

func (s *Spec) checkWords() error {
	for name, value := range s.Env {
		if !envPattern.MatchString(name) || strings.ContainsRune(value, 0) {
			return refuse("variable %q: letters, digits and '_' in the name, no NUL in the value", name)
		}
	}
	for name := range s.Labels {
		if name == "" || strings.HasPrefix(name, labelPrefix) {
			return refuse("label %q: labels that begin with %q say what a sandbox is", name, labelPrefix)
		}
	}
	for _, flag := range s.Flags {
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		if !strings.HasPrefix(flag, "--") || slices.Contains(ownFlags, name) {
			return refuse("server flag %q: a word that begins with --, and none of %s", flag, strings.Join(ownFlags, ", "))
		}
	}
	if err := cleanAbsolute("working directory", s.WorkDir); err != nil {
		return err
	}
	return nil
}

// ownFlags are the server's flags that this package sets.
var ownFlags = []string{"addr", "working-dir", "username", "user-id", "state-dir", "session-key-file", "claim", "claim-hash", "ttl", "idle-limit"}

// hash is the specification's identity: two specifications with equal hashes
// ask for the same sandbox. Key, Secret, Name, Owner and Pull are no part of it, nor
// are the values of Env, which must not be guessable from a label.
func (s *Spec) hash() string {
	canonical := struct {
		Image, User, WorkDir, Network, Runtime string
		UserID                                 int
		EnvNames                               []string
		Mounts                                 []Mount
		Memory, NanoCPUs, Pids                 int64
		Labels                                 map[string]string
		SecurityOpts, Flags                    []string
		ReadOnly                               bool
		TTL, Idle                              time.Duration
	}{
		s.Image, s.User, s.WorkDir, s.Network, s.Runtime, s.UserID,
		slices.Sorted(maps.Keys(s.Env)), s.Mounts, s.Memory, nanoCPUs(s.CPUs), s.Pids, s.Labels,
		s.SecurityOpts, s.Flags, s.ReadOnly, s.TTL, s.Idle,
	}
	// Nothing is nothing, however it is written.
	if len(s.Mounts) == 0 {
		canonical.Mounts = nil
	}
	if len(s.Labels) == 0 {
		canonical.Labels = nil
	}
	if len(s.SecurityOpts) == 0 {
		canonical.SecurityOpts = nil
	}
	if len(s.Flags) == 0 {
		canonical.Flags = nil
	}
	data, err := json.Marshal(canonical) // maps are written in order
	if err != nil {
		panic(err) // strings and numbers can be written
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16])
}

func nanoCPUs(cpus float64) int64 { return int64(cpus * 1e9) }

// ID is the id of the sandbox that Create gives for this key of a Spec.
func ID(key string) string { return idOf(key) }

// idOf is the id of the sandbox with this key: 12 hexadecimal digits.
func idOf(key string) string {
	sum := sha256.Sum256([]byte("sandbox\x00" + key))
	return hex.EncodeToString(sum[:6])
}
