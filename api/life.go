package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Claim binds a sandbox to its owner.
type Claim struct {
	// Key is the key of every later call: 32 to 256 visible ASCII characters.
	Key string `json:"key"`
	// Owner is a word for people and logs.
	Owner string `json:"owner,omitzero"`
	// Env is exported in every shell of the sandbox.
	Env Variables `json:"env,omitempty"`
	// TTLSeconds and IdleLimitSeconds limit the sandbox's life from the claim on; 0
	// means no limit. They replace the limits of the server's flags.
	TTLSeconds       int `json:"ttl_seconds"`
	IdleLimitSeconds int `json:"idle_limit_seconds"`
	// Network is nil where the sandbox has no policy network.
	Network *ClaimNetwork `json:"network,omitzero"`
}

// Renewal gives a sandbox a new deadline.
type Renewal struct {
	// TTLSeconds counts from now; 0 means no deadline.
	TTLSeconds int `json:"ttl_seconds"`
}

// Life answers /v1/status: the state of a sandbox and its deadline.
type Life struct {
	// Busy is true while an action, a transfer or a command that outlived its
	// answer runs.
	Busy bool `json:"busy"`
	// Claimed is true if the sandbox has an owner, or needs none.
	Claimed bool   `json:"claimed"`
	Owner   string `json:"owner"`
	// IdleSince is the end of the last work, nil while Busy.
	IdleSince *time.Time `json:"idle_since"`
	// Deadline is when the sandbox ends itself, nil for never.
	Deadline *time.Time `json:"deadline"`
	// IdleLimitSeconds is how long it may be idle before it ends itself; 0 means no limit.
	IdleLimitSeconds int `json:"idle_limit_seconds"`
	// UserID is the Unix id that commands have; nil from a server of an earlier version.
	UserID *int `json:"user_id,omitempty"`
	// TrustProblem is that of NetworkState.
	TrustProblem string `json:"trust_problem,omitzero"`
	// NamesProblem is that of [NetworkState].
	NamesProblem string `json:"names_problem,omitzero"`
	// DirProblem is why commands begin in another directory than the one that was asked for; otherwise "".
	DirProblem string `json:"working_dir_problem,omitzero"`
}

// Usage answers /v1/usage: the resource usage of all processes of a sandbox.
type Usage struct {
	Time time.Time `json:"time"`
	// CPUSeconds is processor time since the start.
	CPUSeconds Float `json:"cpu_seconds"`
	// Memory is in bytes, without memory that the kernel could reclaim. MemoryLimit is 0
	// without a limit.
	Memory      uint64 `json:"memory"`
	MemoryLimit uint64 `json:"memory_limit"`
	Pids        uint64 `json:"pids"`
	// Bytes since the start.
	NetIn   uint64 `json:"net_in"`
	NetOut  uint64 `json:"net_out"`
	DiskIn  uint64 `json:"disk_in"`
	DiskOut uint64 `json:"disk_out"`
}

// maxLimit bounds times to live, in seconds: a hundred years. It keeps sums of
// times within their range.
const maxLimit = 100 * 365 * 24 * 3600

var (
	claimShape   = shapeOf(Claim{}, "key")
	renewalShape = shapeOf(Renewal{}).nullable("ttl_seconds")
)

// DecodeClaim reads the body of a claim. An error is an *[Error] with status 400;
// neither the key nor a variable's value is part of it.
func DecodeClaim(body []byte) (Claim, error) {
	return decodeBody(claimShape, body, func(c Claim, d *decoding) {
		d.checkSeconds("ttl_seconds", c.TTLSeconds)
		d.checkSeconds("idle_limit_seconds", c.IdleLimitSeconds)
		if _, wrong := d.take("key"); wrong || !sound(c.Key) {
			d.note("key", "a string of 32 to 256 visible ASCII characters")
		}
	})
}

// DecodeRenewal reads the body of a renewal. An error is an *[Error] with status 400.
func DecodeRenewal(body []byte) (Renewal, error) {
	return decodeBody(renewalShape, body, func(r Renewal, d *decoding) { d.checkSeconds("ttl_seconds", r.TTLSeconds) })
}

// decodeBody decodes a body that is one object of the given shape. check, unless it is nil,
// notes values that their types allow and their meaning does not. An error is an *[Error]
// with status 400.
func decodeBody[T any](s *shape, body []byte, check func(T, *decoding)) (none T, err error) {
	sent, err := readBody(body)
	if err != nil {
		return none, err
	}
	v, d := decode(s, "member", sent, true)
	if check != nil {
		check(v.(T), d)
	}
	if err := d.check(); err != nil {
		return none, badBody(err)
	}
	return v.(T), nil
}

// readBody reads a body that is one object. An error is an *[Error] with status
// 400.
func readBody(body []byte) (members, error) {
	raw, err := readValue(body, maxValues)
	if err != nil {
		return nil, badBody(err)
	}
	if raw.Kind() == '"' { // which may be a secret
		return nil, BadRequest("body: must be an object, got a string")
	}
	m, err := readMembers(raw, unlimited, "an object")
	if err != nil {
		return nil, badBody(err)
	}
	return m, nil
}

// sound reports whether a key can be part of a header and is long enough not to be guessed.
func sound(key string) bool {
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(key) >= 32 && len(key) <= 256
}

// checkSeconds refuses a number of seconds that is negative or too large.
func (d *decoding) checkSeconds(name string, n int) {
	if n < 0 || n > maxLimit {
		d.note(name, fmt.Sprintf("seconds from 0 to %d, got %d", maxLimit, n))
	}
}

// Variables are environment variables, nil for an empty object.
type Variables map[string]string

// UnmarshalJSON refuses names that a shell does not know, and values that are not
// strings or hold NUL. A value is never part of an error: it may be a secret.
func (v *Variables) UnmarshalJSON(data []byte) error {
	object, ok := anyOf(data).(map[string]any)
	if !ok {
		return &wantError{"an object", data}
	}
	*v = nil
	for _, name := range slices.Sorted(maps.Keys(object)) {
		value, ok := object[name].(string)
		switch {
		case !envName().MatchString(name):
			return &ownError{Excerpt(name) + " is no name of a variable: letters, digits and underscores, no digit first"}
		case !ok:
			return &ownError{"the value of " + name + " must be a string, got " + Describe(object[name])}
		case strings.ContainsRune(value, 0):
			return &ownError{"the value of " + name + " holds a NUL character"}
		}
		if *v == nil {
			*v = Variables{}
		}
		(*v)[name] = value
	}
	return nil
}
