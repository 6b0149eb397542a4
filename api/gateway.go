package api

import (
	_ "embed" // for the document
	"encoding/json"
	"fmt"
	"strconv"
	"time"
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
	// Name is the id where none was given.
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"`
	Image string `json:"image"`
	// State is "creating", "starting", "ready", "paused", "stopped" or "gone".
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	// Deadline is when the sandbox ends; nil: never.
	Deadline *time.Time `json:"deadline"`
	// IdleSeconds is how long it may be idle before it ends; 0 is for ever.
	IdleSeconds int               `json:"idle_seconds"`
	Labels      map[string]string `json:"labels"`
	// URL is where the sandbox's own paths begin.
	URL string `json:"url"`
	// SessionKey lets somebody use this sandbox and nothing else, in the header
	// KeyHeader. It is in the answers about one sandbox and not in lists.
	SessionKey string `json:"session_api_key,omitempty"`
	// Warm tells in the answer to a creation that it came from the pool.
	Warm bool `json:"warm,omitempty"`
}

// SandboxList answers /v1/sandboxes. Sandboxes must not be nil, which would
// travel as null.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// SandboxSpec asks a gateway for a sandbox. The zero value of every field means
// the gateway's default. Paths of the host, security options and networks of
// their own are not for those who call from elsewhere.
type SandboxSpec struct {
	Image, Name, Owner string
	Env, Labels        map[string]string
	User               string
	UserID             int
	WorkingDir         string
	Memory             int64   // bytes
	CPUs               float64 // processors
	Pids               int64
	Network            string // "bridge" or "none"
	ReadOnly           bool
	TTL, Idle          time.Duration // whole seconds
	Pull               string        // "always", "missing" or "never"
}

// DecodeSandboxSpec reads the body of a creation. An error is an *Error.
func DecodeSandboxSpec(body []byte) (SandboxSpec, error) {
	f, err := decodeMembers(body)
	if err != nil {
		return SandboxSpec{}, err
	}
	s := SandboxSpec{
		Image: f.text("image", ""), Name: f.text("name", ""), Owner: f.text("owner", ""),
		Env: f.variables("env"), Labels: f.textMap("labels"),
		User: f.text("user", ""), UserID: f.integer("user_id", 0), WorkingDir: f.text("working_dir", ""),
		Memory: int64(f.integer("memory", 0)), CPUs: f.quantity("cpus"), Pids: int64(f.integer("pids", 0)),
		Network: f.oneOf("network", "bridge", "none"), ReadOnly: f.flag("read_only", false),
		TTL: f.limit("ttl_seconds"), Idle: f.limit("idle_seconds"), Pull: f.oneOf("pull", "always", "missing", "never"),
	}
	if err := f.checkAll(); err != nil {
		return SandboxSpec{}, badBody(err)
	}
	return s, nil
}

// RuntimeStart asks for a sandbox in the words of OpenHands' runtime API.
type RuntimeStart struct {
	Image   string
	Command []string // of OpenHands' own server; only its flags count
	// Environment is for the commands in the sandbox.
	Environment map[string]string
	SessionID   string
	// ResourceFactor multiplies memory and processors; 1 where none is given.
	ResourceFactor float64
	RuntimeClass   string
}

// Runtime answers /start and /sessions/{session_id} of OpenHands' runtime API.
type Runtime struct {
	RuntimeID string `json:"runtime_id"`
	SessionID string `json:"session_id"`
	URL       string `json:"url"`
	// SessionKey goes into the header KeyHeader of what is sent to URL.
	SessionKey string `json:"session_api_key"`
	// WorkHosts are addresses of what listens in the sandbox; none are given.
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
	// Detail says what it waits for, or why it failed.
	Detail string `json:"detail,omitempty"`
}

// RegistryPrefix answers /registry_prefix of OpenHands' runtime API.
type RegistryPrefix struct {
	RegistryPrefix string `json:"registry_prefix"`
}

// ImageExists answers /image_exists of OpenHands' runtime API.
type ImageExists struct {
	Exists bool       `json:"exists"`
	Image  *ImageInfo `json:"image,omitempty"`
}

// ImageInfo is what a host knows of an image.
type ImageInfo struct {
	// UploadTime is when it was made, in RFC 3339.
	UploadTime string `json:"upload_time"`
	Size       int64  `json:"image_size_bytes"`
}

// Build answers /build and /build_status of OpenHands' runtime API.
type Build struct {
	BuildID string `json:"build_id"`
	// Status is "PENDING", "SUCCESS", "FAILURE" or "CANCELLED".
	Status string `json:"status"`
	Image  string `json:"image"`
	// Error is why it failed.
	Error string `json:"error,omitempty"`
}

// DecodeRuntimeStart reads the body of /start. Members that are not known are
// left aside: clients of other versions send more. An error is an *Error.
func DecodeRuntimeStart(body []byte) (RuntimeStart, error) {
	f, err := decodeMembers(body)
	if err != nil {
		return RuntimeStart{}, err
	}
	s := RuntimeStart{
		Image: f.needText("image"), SessionID: f.needText("session_id"), Command: f.words("command"),
		Environment: f.variables("environment"), RuntimeClass: f.text("runtime_class", ""),
		ResourceFactor: f.quantity("resource_factor"),
	}
	if s.ResourceFactor == 0 {
		s.ResourceFactor = 1
	}
	err = f.check()
	switch {
	case err != nil:
	case s.SessionID == "" || len(s.SessionID) > 256:
		err = fmt.Errorf("member %q must have 1 to 256 bytes", "session_id")
	case s.ResourceFactor > 64:
		err = fmt.Errorf("member %q must be at most 64", "resource_factor")
	}
	if err != nil {
		return RuntimeStart{}, badBody(err)
	}
	return s, nil
}

// DecodeRuntimeID reads the body of /stop, /pause and /resume. An error is an
// *Error.
func DecodeRuntimeID(body []byte) (string, error) {
	f, err := decodeMembers(body)
	if err != nil {
		return "", err
	}
	id := f.needText("runtime_id")
	if err := f.check(); err != nil {
		return "", badBody(err)
	}
	return id, nil
}

// textMap takes an object of strings, nil when absent.
func (f *fields) textMap(name string) map[string]string {
	object := f.object(name)
	if len(object) == 0 {
		return nil
	}
	texts := make(map[string]string, len(object))
	for key, v := range object {
		text, ok := v.(string)
		if !ok {
			f.complain(name, object, "an object of strings") // and no value: it may be a secret
		}
		texts[key] = text
	}
	return texts
}

// oneOf takes one of a few words, "" when absent.
func (f *fields) oneOf(name string, allowed ...string) string {
	text := f.text(name, "")
	for _, word := range allowed {
		if text == "" || text == word {
			return text
		}
	}
	f.complain(name, text, fmt.Sprintf("one of %q", allowed))
	return ""
}

// quantity takes a number that is not negative, 0 when absent.
func (f *fields) quantity(name string) float64 {
	v, _ := f.take(name)
	if v == nil {
		return 0
	}
	number, _ := v.(json.Number)
	n, err := strconv.ParseFloat(string(number), 64)
	if err != nil || !(n >= 0) || n > 1<<53 {
		f.complain(name, v, "a number that is not negative")
		return 0
	}
	return n
}

// limit takes a whole number of seconds, 0 when absent.
func (f *fields) limit(name string) time.Duration {
	return time.Duration(f.seconds(name)) * time.Second
}
