package api

import (
	"cmp"
	_ "embed" // for the document
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// GatewayOpenAPI is the description of every endpoint of the gateway, which
// runtimectl serve runs on a host. The gateway serves it as /openapi.yaml; it
// must not be changed.
//
//go:embed gateway.yaml
var GatewayOpenAPI []byte

// GatewayKeyHeader carries the key of a gateway.
const GatewayKeyHeader = "X-API-Key"

// IdempotencyKeyHeader makes at most one sandbox for each of its values.
const IdempotencyKeyHeader = "Idempotency-Key"

// Sandbox is one sandbox of a gateway's host.
type Sandbox struct {
	// ID is 12 hexadecimal digits.
	ID string `json:"id"`
	// Name is the id unless a name was given.
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Image string `json:"image"`
	// State is "pending", "creating", "starting", "ready", "paused", "stopped",
	// "unknown" or "gone". One that is ready takes actions; the gateway does not ask
	// whether it runs one.
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	// Deadline is when the sandbox ends; nil: never.
	Deadline *time.Time `json:"deadline"`
	// IdleLimitSeconds is how long it may be idle before it ends; 0 means no limit.
	IdleLimitSeconds int `json:"idle_limit_seconds"`
	// GPUs are those that it has, as in a creation; "": none.
	GPUs   string            `json:"gpus,omitzero"`
	Labels map[string]string `json:"labels"`
	// User is the name of the account that runs the commands; "" where the gateway does not
	// know it.
	User string `json:"user"`
	// URL is where the sandbox's own paths begin.
	URL string `json:"url"`
	// SessionKey gives access to this sandbox and to nothing else, in the header
	// KeyHeader. It is in the answers about one sandbox and not in lists.
	SessionKey string `json:"session_api_key,omitzero"`
	// Warm is true in the answer to a creation if the sandbox came from the pool.
	Warm bool `json:"warm,omitzero"`
}

// SandboxList answers /v1/sandboxes. Sandboxes must not be nil, which would
// travel as null.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	// Next is the value of the parameter "after" for the next page; "" on the last one.
	Next string `json:"next,omitzero"`
}

// PreviewURL answers /v1/sandboxes/{id}/ports/{port}/url.
type PreviewURL struct {
	// URL opens a preview of the port without a key, until Expires.
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// SandboxSpec asks a gateway for a sandbox. The zero value of every field means
// the gateway's default. Remote callers cannot choose paths of the host, security
// options and other networks.
type SandboxSpec struct {
	Image            string            `json:"image"`
	Name             string            `json:"name"`
	Owner            string            `json:"owner"`
	Env              Variables         `json:"env"`
	Labels           map[string]string `json:"labels"`
	User             string            `json:"user"`
	UserID           int               `json:"user_id"`
	WorkingDir       string            `json:"working_dir"`
	Memory           int64             `json:"memory"` // bytes
	Disk             int64             `json:"disk"`   // bytes; refused where the platform cannot limit it
	CPUs             float64           `json:"cpus"`   // processors
	Pids             int64             `json:"pids"`
	Network          NetworkChoice     `json:"network"`
	ReadOnly         bool              `json:"read_only"`
	TTLSeconds       int               `json:"ttl_seconds"`
	IdleLimitSeconds int               `json:"idle_limit_seconds"`
	GPUs             GPUChoice         `json:"gpus"`
	// Pull is "always", "missing" or "never".
	Pull string `json:"pull"`
}

// GPUChoice are the GPUs that a creation asks for: "all", a number, or "device=" and names with commas between
// them. In JSON it may be a number as well.
type GPUChoice string

// UnmarshalJSON takes a text, or a number that is not negative; 0 is none.
func (g *GPUChoice) UnmarshalJSON(data []byte) (err error) {
	if jsontext.Value(data).Kind() == '"' {
		var s string
		s, err = text(data, true)
		*g = GPUChoice(s)
		return err
	}
	n, ok := Integral(string(data))
	if !ok || n < 0 {
		return &wantError{`a number, "all", or "device=" and names of GPUs`, data}
	}
	*g = ""
	if n > 0 {
		*g = GPUChoice(strconv.Itoa(n))
	}
	return nil
}

var sandboxShape = shapeOf(SandboxSpec{})

// DecodeSandboxSpec reads the body of a creation. An error is an *[Error].
func DecodeSandboxSpec(body []byte) (SandboxSpec, error) {
	return decodeBody(sandboxShape, body, func(s SandboxSpec, d *decoding) {
		d.checkQuantity("cpus", s.CPUs)
		d.checkWord("pull", s.Pull, "always", "missing", "never")
		d.checkSeconds("ttl_seconds", s.TTLSeconds)
		d.checkSeconds("idle_limit_seconds", s.IdleLimitSeconds)
	})
}

// Plugins are the names that OpenHands' own server takes after --plugins. vscode
// changes nothing here.
var Plugins = []string{"agent_skills", "jupyter", "vscode"}

// RuntimeStart asks for a sandbox in the words of OpenHands' runtime API.
type RuntimeStart struct {
	Image string `json:"image"`
	// Command is that of OpenHands' own server; only its flags count.
	Command Words `json:"command"`
	// Environment is for the commands in the sandbox; NO_CHANGE_TIMEOUT_SECONDS is
	// the server's soft timeout, too.
	Environment Variables `json:"environment"`
	SessionID   string    `json:"session_id"`
	// ResourceFactor multiplies memory and processors; 1 where none is given.
	ResourceFactor float64 `json:"resource_factor"`
	RuntimeClass   string  `json:"runtime_class"`
}

// Runtime answers /start and /sessions/{session_id} of OpenHands' runtime API.
type Runtime struct {
	RuntimeID string `json:"runtime_id"`
	SessionID string `json:"session_id"`
	URL       string `json:"url"`
	// SessionKey goes into the header KeyHeader of requests to URL.
	SessionKey string `json:"session_api_key"`
	// WorkHosts are addresses of servers in the sandbox; it is always empty.
	WorkHosts map[string]int `json:"work_hosts"`
	// Status is "running", "paused" or "stopped".
	Status string `json:"status"`
	// PodStatus is that of RuntimeStatus.
	PodStatus string `json:"pod_status"`
}

// RuntimeStatus answers /runtime/{runtime_id} of OpenHands' runtime API, and
// /stop, /pause and /resume.
type RuntimeStatus struct {
	RuntimeID string `json:"runtime_id"`
	// PodStatus is "ready", "pending", "running" (not yet ready), "not found" or
	// "failed".
	PodStatus      string   `json:"pod_status"`
	RestartCount   int      `json:"restart_count"`
	RestartReasons []string `json:"restart_reasons"`
	// Detail is the reason for waiting or failure.
	Detail string `json:"detail,omitzero"`
}

// runtimeID is the body of /stop, /pause and /resume.
type runtimeID struct {
	ID string `json:"runtime_id"`
}

// Clients of other versions send more members.
var (
	runtimeStartShape = openShapeOf(RuntimeStart{Command: Words{}}, "image", "session_id")
	runtimeIDShape    = openShapeOf(runtimeID{}).nullable("runtime_id")
)

// DecodeRuntimeStart reads the body of /start. Unknown members are ignored. An
// error is an *[Error].
func DecodeRuntimeStart(body []byte) (RuntimeStart, error) {
	s, err := decodeBody(runtimeStartShape, body, func(s RuntimeStart, d *decoding) {
		d.checkQuantity("resource_factor", s.ResourceFactor)
		if s.SessionID == "" || len(s.SessionID) > 256 {
			d.note("session_id", "a string of 1 to 256 bytes")
		}
		if s.ResourceFactor > 64 {
			d.note("resource_factor", "at most 64")
		}
	})
	if err == nil {
		s.ResourceFactor = cmp.Or(s.ResourceFactor, 1)
	}
	return s, err
}

// DecodeRuntimeID reads the body of /stop, /pause and /resume. The id is empty
// where the member is null: a client whose start failed closes with that. An
// error is an *[Error].
func DecodeRuntimeID(body []byte) (string, error) {
	v, err := decodeBody[runtimeID](runtimeIDShape, body, nil)
	return v.ID, err
}

// checkWord refuses a word that is not allowed; "" always is.
func (d *decoding) checkWord(name, word string, allowed ...string) {
	if word != "" && !slices.Contains(allowed, word) {
		d.refuse(name, fmt.Sprintf("one of %q", allowed))
	}
}

// checkQuantity refuses a number that is negative or too large.
func (d *decoding) checkQuantity(name string, x float64) {
	if !(x >= 0) || x > 1<<53 {
		d.refuse(name, "a number that is not negative")
	}
}
