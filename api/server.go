package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// KeyHeader carries the session key of a sandbox.
const KeyHeader = "X-Session-API-Key"

// PrefixHeader says what a proxy took off the path of a request.
const PrefixHeader = "X-Forwarded-Prefix"

// Encode returns the JSON of an answer that is a plain type of this package:
// compact, UTF-8 unescaped, without a newline at its end. Observations and
// refusals have encoders of their own.
func Encode(answer any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Broken answers where the server is wrong.
type Broken struct {
	Detail string `json:"detail"`
	// ID is where to look in the server's log.
	ID string `json:"id"`
}

// Status answers /alive, /healthz and /readyz.
type Status struct {
	// Status is "ok" for /alive and /healthz, "ready" or "starting" for /readyz.
	Status string `json:"status"`
	// WaitingFor names what a starting sandbox still waits for.
	WaitingFor string `json:"waiting_for,omitempty"`
}

// ServerInfo answers /server_info.
type ServerInfo struct {
	// Uptime and IdleTime are seconds; the latter counts from the start of the
	// last action, or of the process.
	Uptime    Float     `json:"uptime"`
	IdleTime  Float     `json:"idle_time"`
	Resources Resources `json:"resources"`
	// Version is the server's.
	Version string `json:"version"`
	// Capabilities says by name what this sandbox can do, such as "run_ipython".
	Capabilities map[string]Capability `json:"capabilities"`
}

// Float travels with a point or an exponent, as Python prints it: readers there
// take 0 for an integer, and 0.0 for what it is.
type Float float64

// MarshalJSON prints f, which must be finite.
func (f Float) MarshalJSON() ([]byte, error) { return []byte(FormatSeconds(float64(f))), nil }

// Capability is something that a sandbox may or may not be able to do.
type Capability struct {
	Available bool `json:"available"`
	// Detail says with what it is done, or what is missing.
	Detail string `json:"detail"`
}

// Resources is what the server process uses, and the disk it stands on.
type Resources struct {
	// CPUPercent may exceed 100 where there are several cores.
	CPUPercent Float  `json:"cpu_percent"`
	Memory     Memory `json:"memory"`
	Disk       Disk   `json:"disk"`
	IO         IO     `json:"io"`
}

// Memory is in bytes; Percent is the share of the machine's memory in RSS.
type Memory struct {
	RSS     uint64 `json:"rss"`
	VMS     uint64 `json:"vms"`
	Percent Float  `json:"percent"`
}

// Disk is the file system of / in bytes; Percent is used/(used+free).
type Disk struct {
	Total   uint64 `json:"total"`
	Used    uint64 `json:"used"`
	Free    uint64 `json:"free"`
	Percent Float  `json:"percent"`
}

// IO is what the process read from and wrote to storage, in bytes.
type IO struct {
	ReadBytes  uint64 `json:"read_bytes"`
	WriteBytes uint64 `json:"write_bytes"`
}

// UploadResult answers /upload_file.
type UploadResult struct {
	Filename string `json:"filename"`
	// Destination is the directory as it was asked for.
	Destination string `json:"destination"`
	Recursive   bool   `json:"recursive"`
}

// ConnectionToken answers /vscode/connection_token; nil means no VS Code.
type ConnectionToken struct {
	Token *string `json:"token"`
}

// SessionList answers /v1/sessions. Sessions must not be nil, which would
// travel as null.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// MCPUpdate answers /update_mcp_server.
type MCPUpdate struct {
	Detail string `json:"detail"`
	// RouterErrorLog says what did not work; "" when all did.
	RouterErrorLog string `json:"router_error_log"`
}

// MCPServer is one MCP server that speaks over standard input and output.
type MCPServer struct {
	// Name is letters, digits, dashes and underscores.
	Name string `json:"name"`
	// Command is one word, a program.
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

// DecodeListFiles reads the body of a list_files call and returns the path,
// "" when absent or null. An error is an *Error.
func DecodeListFiles(body []byte) (string, error) {
	p, err := newParser(body)
	if err != nil {
		return "", badBody(err)
	}
	if p.peek() != '{' {
		return "", badBody(p.noObject("an object"))
	}
	f := fields{of: "member", values: map[string]any{}}
	err = p.object(func(name string) (err error) {
		if name != "path" {
			return p.skip()
		}
		f.values[name], err = p.value()
		return err
	})
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return "", badBody(err)
	}
	path := f.text("path", "")
	if err := f.check(); err != nil {
		return "", badBody(err)
	}
	return path, nil
}

// decodeBody reads a body that is one JSON value. An error is an *Error with
// status 400.
func decodeBody(body []byte) (any, error) {
	p, err := newParser(body)
	if err != nil {
		return nil, badBody(err)
	}
	p.budget = maxArgs
	v, err := p.value()
	if err == nil {
		err = p.end()
	}
	if err != nil {
		return nil, badBody(err)
	}
	return v, nil
}

func badBody(err error) error {
	return &Error{Status: http.StatusBadRequest, Detail: "body: " + err.Error()}
}

// DecodeMCPServers reads the body of an update_mcp_server call. The arguments
// of a server may also come as one string, split as a shell would, and its
// environment as "K=V,K2=V2". An error is an *Error with status 400.
func DecodeMCPServers(body []byte) ([]MCPServer, error) {
	v, err := decodeBody(body)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, &Error{Status: http.StatusBadRequest, Detail: "Request must be a list of MCP tools to sync"}
	}
	servers := make([]MCPServer, 0, len(list))
	for i, e := range list {
		s, err := decodeMCPServer(e)
		if err != nil {
			return nil, &Error{Status: http.StatusBadRequest, Detail: fmt.Sprintf("MCP server %d: %s", i, err)}
		}
		servers = append(servers, s)
	}
	return servers, nil
}

var (
	mcpName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	envName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

func decodeMCPServer(v any) (MCPServer, error) {
	members, ok := v.(map[string]any)
	if !ok {
		return MCPServer{}, fmt.Errorf("must be an object, got %s", describe(v))
	}
	f := fields{of: "member", values: members}
	s := MCPServer{
		Name:    strings.TrimSpace(f.needText("name")),
		Command: strings.TrimSpace(f.needText("command")),
		Args:    f.words("args"),
		Env:     f.environment("env"),
	}
	if err := f.check(); err != nil {
		return MCPServer{}, err
	}
	if !mcpName.MatchString(s.Name) {
		return MCPServer{}, fmt.Errorf("name must be letters, digits, - and _, got %s", excerpt(s.Name))
	}
	if len(strings.Fields(s.Command)) != 1 {
		return MCPServer{}, fmt.Errorf("command must be one word, with its arguments in args, got %s", excerpt(s.Command))
	}
	return s, nil
}

// words takes a list of strings, or one string in shell quoting.
func (f *fields) words(name string) []string {
	line, ok := f.values[name].(string)
	if !ok {
		return orEmpty(f.texts(name))
	}
	f.take(name)
	words, ok := splitWords(line)
	if !ok {
		f.complain(name, line, "a list of strings, or words whose quotes are closed")
	}
	return words
}

// environment takes an object of strings, or one string of K=V pairs with
// commas between them. A value is never part of a message: it may be a secret.
func (f *fields) environment(name string) map[string]string {
	v, _ := f.take(name)
	env := map[string]string{}
	switch v := v.(type) {
	case nil:
	case map[string]any:
		for key, value := range v {
			text, ok := value.(string)
			if !ok {
				f.complain(name+"."+key, value, "a string")
			}
			env[key] = text
		}
	case string:
		for pair := range strings.SplitSeq(v, ",") {
			pair = strings.TrimSpace(pair)
			key, value, ok := strings.Cut(pair, "=")
			if key = strings.TrimSpace(key); ok && envName.MatchString(key) {
				env[key] = value
			} else if pair != "" && f.wrong == "" {
				f.wrong = fmt.Sprintf("%s %q must be an object, or KEY=VALUE pairs with commas between them", f.of, name)
			}
		}
	default:
		f.complain(name, v, "an object of strings")
	}
	return env
}

// splitWords splits a line as a POSIX shell splits its words, without
// expanding anything; false where a quote or an escape stays open.
func splitWords(line string) (words []string, ok bool) {
	words = []string{}
	var word strings.Builder
	open, quote := false, byte(0) // inside a word, inside which quotes
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == '\'' && c != '\'':
			word.WriteByte(c)
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\':
			if i++; i == len(line) {
				return nil, false
			}
			// Inside double quotes a backslash quotes only " and itself.
			if quote != 0 && line[i] != '"' && line[i] != '\\' {
				word.WriteByte('\\')
			}
			word.WriteByte(line[i])
			open = true
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case strings.IndexByte(" \t\r\n", c) >= 0:
			if open {
				words = append(words, word.String())
				word.Reset()
			}
			open = false
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	return words, quote == 0
}
