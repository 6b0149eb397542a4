package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/actiond/actiond/internal/lazyregexp"
)

// KeyHeader carries the session key of a sandbox.
const KeyHeader = "X-Session-API-Key"

// TicketHeader carries the ticket of a sandbox's driver.
const TicketHeader = "X-Actiond-Ticket"

// UnclaimedHeader is in the refusals of a server that has no owner yet.
const UnclaimedHeader = "X-Actiond-Unclaimed"

// PrefixHeader carries the prefix that a proxy removed from the path of a request.
const PrefixHeader = "X-Forwarded-Prefix"

// Broken is the body of an answer with status 500.
type Broken struct {
	Detail string `json:"detail"`
	// ID finds the failure in the server's log.
	ID string `json:"id"`
}

// Status answers /alive, /healthz and /readyz.
type Status struct {
	// Status is "ok" for /alive and /healthz, "ready" or "starting" for /readyz.
	Status string `json:"status"`
	// WaitingFor names the missing part of a starting sandbox.
	WaitingFor string `json:"waiting_for,omitzero"`
	// Journal is the reason why records of actions will not survive the server, or "".
	Journal string `json:"journal,omitzero"`
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
	// WorkingDir is the absolute path at which relative ones begin.
	WorkingDir string `json:"working_dir"`
	// User is the name of the account that owns the files and runs the commands, or its id
	// where it has no name.
	User string `json:"user"`
	// Capabilities lists the abilities of the sandbox by name, such as "run_ipython".
	Capabilities map[string]Capability `json:"capabilities"`
	// Changes says how changes of the workspace are followed.
	Changes ChangesInfo `json:"changes"`
}

// Float is encoded with a point or an exponent, as Python prints it, because Python
// decodes 0 as an integer.
type Float float64

// MarshalJSON prints f, which must be finite.
func (f Float) MarshalJSON() ([]byte, error) { return []byte(FormatSeconds(float64(f))), nil }

// Capability is an ability that a sandbox may lack.
type Capability struct {
	Available bool `json:"available"`
	// Detail names the program that provides it, or the missing one.
	Detail string `json:"detail"`
}

// Resources is the resource usage of the server process, and its disk.
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

// IO counts the bytes that the process read from and wrote to storage.
type IO struct {
	ReadBytes  uint64 `json:"read_bytes"`
	WriteBytes uint64 `json:"write_bytes"`
}

// UploadResult answers /upload_file.
type UploadResult struct {
	Filename string `json:"filename"`
	// Destination is the directory as it was requested.
	Destination string `json:"destination"`
	Recursive   bool   `json:"recursive"`
}

// Unpacked answers /v1/unpack.
type Unpacked struct {
	Entries int `json:"entries"` // of the archive: files, directories and links
}

// ConnectionToken answers /vscode/connection_token; nil means no VS Code.
type ConnectionToken struct {
	Token *string `json:"token"`
}

// SessionList answers /v1/sessions. Sessions must not be nil, which is encoded as
// null.
type SessionList struct {
	Sessions []Session `json:"sessions"`
}

// MCPUpdate answers /update_mcp_server.
type MCPUpdate struct {
	Detail string `json:"detail"`
	// RouterErrorLog lists the errors, "" without any.
	RouterErrorLog string `json:"router_error_log"`
}

// MCPServer is one MCP server that speaks over standard input and output.
type MCPServer struct {
	// Name is letters, digits, dashes and underscores.
	Name string `json:"name"`
	// Command is one word, a program.
	Command string        `json:"command"`
	Args    Words         `json:"args"`
	Env     VariablePairs `json:"env"`
}

// DecodeListFiles reads the body of a list_files call and returns the path,
// "" when absent or null. An error is an *[Error].
func DecodeListFiles(body []byte) (string, error) {
	v, err := decodeObject[listFiles](listFilesShape, "member", "an object", body, unlimited, true)
	if err != nil {
		return "", badBody(err)
	}
	return v.Path, nil
}

type listFiles struct {
	Path string `json:"path"`
}

var listFilesShape = openShapeOf(listFiles{})

func badBody(err error) error {
	return BadRequest("body: " + err.Error())
}

var mcpServerShape = openShapeOf(MCPServer{Args: Words{}}, "name", "command")

// DecodeMCPServers reads the body of an update_mcp_server call. The arguments
// of a server may also come as one string, split as a shell would, and its
// environment as "K=V,K2=V2". An error is an *[Error] with status 400.
func DecodeMCPServers(body []byte) ([]MCPServer, error) {
	raw, err := readValue(body, maxValues)
	if err != nil {
		return nil, badBody(err)
	}
	var list []jsontext.Value
	if err := json.Unmarshal(raw, &list, lax); err != nil || list == nil {
		return nil, BadRequest("Request must be a list of MCP tools to sync")
	}
	servers := make([]MCPServer, 0, len(list))
	for i, e := range list {
		s, err := decodeMCPServer(e)
		if err != nil {
			return nil, BadRequest(fmt.Sprintf("MCP server %d: %s", i, err))
		}
		servers = append(servers, s)
	}
	return servers, nil
}

var (
	mcpName = lazyregexp.New(`^[a-zA-Z0-9_-]+$`)
	envName = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

func decodeMCPServer(raw jsontext.Value) (MCPServer, error) {
	s, err := decodeObject[MCPServer](mcpServerShape, "member", "an object", raw, unlimited, true)
	if err != nil {
		return MCPServer{}, err
	}
	s.Name, s.Command = strings.TrimSpace(s.Name), strings.TrimSpace(s.Command)
	if s.Env == nil {
		s.Env = VariablePairs{}
	}
	if !mcpName().MatchString(s.Name) {
		return MCPServer{}, fmt.Errorf("name must be letters, digits, - and _, got %s", Excerpt(s.Name))
	}
	if len(strings.Fields(s.Command)) != 1 {
		return MCPServer{}, fmt.Errorf("command must be one word, with its arguments in args, got %s", Excerpt(s.Command))
	}
	return s, nil
}

// Words come as a list of strings, or as one string in shell quoting.
type Words []string

// UnmarshalJSON splits a string into words.
func (w *Words) UnmarshalJSON(data []byte) error {
	if jsontext.Value(data).Kind() != '"' {
		var list []string
		if err := json.Unmarshal(data, &list, strict); err != nil {
			if want, ok := errors.AsType[*wantError](err); ok { // for one of the strings
				data = want.got
			}
			return &wantError{"a list of strings", data}
		}
		*w = list
		return nil
	}
	line, err := text(data, true)
	var closed bool
	if *w, closed = splitWords(line); err != nil || !closed {
		return &wantError{"a list of strings, or words whose quotes are closed", data}
	}
	return nil
}

// VariablePairs are environment variables that come as an object of strings, or as one
// string of K=V pairs with commas between them.
type VariablePairs map[string]string

// UnmarshalJSON never puts a value into an error: it may be a secret.
func (p *VariablePairs) UnmarshalJSON(data []byte) error {
	*p = VariablePairs{}
	switch v := anyOf(data).(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			value, ok := v[name].(string)
			if !ok {
				return &ownError{fmt.Sprintf("the value of %s must be a string, got %s", name, Describe(v[name]))}
			}
			(*p)[name] = value
		}
	case string:
		for pair := range strings.SplitSeq(v, ",") {
			pair = strings.TrimSpace(pair)
			key, value, ok := strings.Cut(pair, "=")
			if key = strings.TrimSpace(key); ok && envName().MatchString(key) {
				(*p)[key] = value
			} else if pair != "" {
				return &wantError{want: "an object, or KEY=VALUE pairs with commas between them"}
			}
		}
	default:
		return &wantError{"an object of strings", data}
	}
	return nil
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
