package api

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Claim binds a sandbox to its owner.
type Claim struct {
	// Key is what every later call must carry: 32 to 256 visible ASCII characters.
	Key string `json:"key"`
	// Owner is a word for people and logs.
	Owner string `json:"owner,omitempty"`
	// Env is exported in every shell of the sandbox.
	Env map[string]string `json:"env,omitempty"`
	// TTLSeconds and IdleSeconds limit the sandbox's life from the claim on; 0
	// means no limit. They replace what the server was started with.
	TTLSeconds  int `json:"ttl_seconds"`
	IdleSeconds int `json:"idle_seconds"`
}

// Renewal gives a sandbox a new deadline.
type Renewal struct {
	// TTLSeconds counts from now; 0 means no deadline.
	TTLSeconds int `json:"ttl_seconds"`
}

// Life answers /v1/status: how a sandbox is, and how long it will be.
type Life struct {
	// Busy tells whether something runs: an action, a transfer, a command that
	// was answered for and goes on.
	Busy bool `json:"busy"`
	// Claimed tells whether the sandbox has an owner, or needs none.
	Claimed bool   `json:"claimed"`
	Owner   string `json:"owner"`
	// IdleSince is when the last work ended, nil while Busy.
	IdleSince *time.Time `json:"idle_since"`
	// Deadline is when the sandbox ends itself, nil for never.
	Deadline *time.Time `json:"deadline"`
	// IdleSeconds is how long it may be idle before it ends itself; 0 is for ever.
	IdleSeconds int `json:"idle_seconds"`
}

// maxLimit bounds times to live, in seconds: a hundred years. It keeps sums of
// times within their range.
const maxLimit = 100 * 365 * 24 * 3600

// DecodeClaim reads the body of a claim. An error is an *Error with status 400;
// neither the key nor a variable's value is part of it.
func DecodeClaim(body []byte) (Claim, error) {
	f, err := decodeMembers(body)
	if err != nil {
		return Claim{}, err
	}
	key, ok := f.need("key")
	c := Claim{
		Owner: f.text("owner", ""), Env: f.variables("env"),
		TTLSeconds: f.seconds("ttl_seconds"), IdleSeconds: f.seconds("idle_seconds"),
	}
	if c.Key, _ = key.(string); ok && !sound(c.Key) && f.wrong == "" {
		f.wrong = `member "key" must be a string of 32 to 256 visible ASCII characters`
	}
	if err := f.checkAll(); err != nil {
		return Claim{}, badBody(err)
	}
	return c, nil
}

// DecodeRenewal reads the body of a renewal. An error is an *Error with status 400.
func DecodeRenewal(body []byte) (Renewal, error) {
	f, err := decodeMembers(body)
	if err != nil {
		return Renewal{}, err
	}
	_, given := f.values["ttl_seconds"]
	r := Renewal{TTLSeconds: f.seconds("ttl_seconds")}
	if !given {
		f.missing = "ttl_seconds"
	}
	if err := f.checkAll(); err != nil {
		return Renewal{}, badBody(err)
	}
	return r, nil
}

// decodeMembers reads an object.
func decodeMembers(body []byte) (*fields, error) {
	v, err := decodeBody(body)
	if err != nil {
		return nil, err
	}
	values, ok := v.(map[string]any)
	if !ok {
		return nil, &Error{Status: http.StatusBadRequest, Detail: "body: must be an object, got " + describeKind(v)}
	}
	return &fields{of: "member", values: values}, nil
}

// describeKind is describe without a value that may be a secret.
func describeKind(v any) string {
	if _, ok := v.(string); ok {
		return "a string"
	}
	return describe(v)
}

// sound tells whether a key can travel in a header and cannot be guessed.
func sound(key string) bool {
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(key) >= 32 && len(key) <= 256
}

// seconds takes a whole number that is not negative, 0 when absent.
func (f *fields) seconds(name string) int {
	n := f.integer(name, 0)
	if (n < 0 || n > maxLimit) && f.wrong == "" {
		f.wrong = fmt.Sprintf("%s %q must be seconds from 0 to %d, got %d", f.of, name, maxLimit, n)
	}
	return n
}

// variables takes an object of environment variables, nil when absent.
func (f *fields) variables(name string) map[string]string {
	members := f.object(name)
	if len(members) == 0 {
		return nil
	}
	env := make(map[string]string, len(members))
	for key, v := range members {
		value, ok := v.(string)
		switch {
		case f.wrong != "":
		case !envName.MatchString(key):
			f.wrong = fmt.Sprintf("%s %q: %s is no name of a variable: letters, digits and underscores, no digit first", f.of, name, excerpt(key))
		case !ok:
			f.wrong = fmt.Sprintf("%s %q: the value of %s must be a string, got %s", f.of, name, key, describe(v))
		case strings.ContainsRune(value, 0):
			f.wrong = fmt.Sprintf("%s %q: the value of %s holds a NUL character", f.of, name, key)
		}
		env[key] = value
	}
	return env
}
