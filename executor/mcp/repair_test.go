package mcp_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/executor/mcp"
)

// scripted is a server that sends a line for a method once; a line that begins with = is a result.
func scripted(t *testing.T, method, line string) mcp.Server {
	t.Helper()
	script, err := json.Marshal(map[string]string{method: line})
	if err != nil {
		t.Fatal(err)
	}
	return testServer(t, "s", "scripted", "SCRIPT="+string(script))
}

// A line that is no message loses at most the one answer that it should have been.
func TestUndecodableLines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, line, want string // a part of the first call's answer
		logged             bool
	}{
		"error without id":     {"notifications/initialized", `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`, "fine", true},
		"result without id":    {"notifications/initialized", `{"jsonrpc":"2.0","id":null,"result":{}}`, "fine", true},
		"log line":             {"notifications/initialized", `{"ts":1,"jsonrpc":"sent"}`, "fine", true},
		"cut line":             {"notifications/initialized", `{"jsonrpc":"2.0","method":"notif`, "fine", true},
		"greeting":             {"notifications/initialized", `{ready}`, "fine", false},
		"bad method":           {"notifications/initialized", `{"jsonrpc":"2.0","method":5,"id":99}`, "fine", true},
		"unknown id":           {"notifications/initialized", `{"jsonrpc":"2.0","id":77,"result":{}}`, "fine", false},
		"byte order mark":      {"initialize", "\ufeff" + `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, "fine", false},
		"string id":            {"initialize", `{"jsonrpc":"2.0","id":"ID","result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, "fine", false},
		"cut answer":           {"tools/call", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"ty`, "calling \"tools/call\": it sent an answer that cannot be decoded: unexpected end of JSON input", true},
		"not a number":         {"tools/call", `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"NaN"}],"structuredContent":{"x":NaN,"y":-Infinity}}}`, `[{"type":"text","text":"NaN"}] {"x":null,"y":null}`, false},
		"no version":           {"tools/call", `{"id":ID,"result":{"content":[{"type":"text","text":"boom"}]}}`, "boom", false},
		"null method":          {"tools/call", `{"jsonrpc":"2.0","id":ID,"method":null,"result":{"content":[{"type":"text","text":"boom"}]},"error":null}`, "boom", false},
		"two in a line":        {"tools/call", `{"jsonrpc":"2.0","method":"notifications/message"}{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"boom"}]}} bye`, "boom", false},
		"error text":           {"tools/call", `{"jsonrpc":"2.0","id":ID,"error":"boom"}`, `calling "tools/call": boom`, false},
		"error without words":  {"tools/call", `{"jsonrpc":"2.0","id":ID,"error":{"code":-1}}`, `calling "tools/call": {"code":-1}`, false},
		"error with text code": {"tools/call", `{"jsonrpc":"2.0","id":ID,"error":{"code":"E5","message":"boom"}}`, `{"code":"E5","message":"boom"}`, false},
		"no result":            {"tools/call", `{"jsonrpc":"2.0","id":ID,"error":null}`, `calling "tools/call": its answer has no result`, false},
		"null":                 {"tools/call", "=null", `calling "tools/call": its answer has no result`, false},
		"old version":          {"initialize", `={"protocolVersion":"2024-10-07","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`, `MCP server "s": unsupported protocol version: "2024-10-07"`, false},
		"refused":              {"initialize", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no licence"}}`, `no licence`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := mcp.New(mcp.Config{Dir: t.TempDir(), Env: os.Environ(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if _, err := p.Update([]mcp.Server{scripted(t, test.method, test.line)}); err != nil {
				t.Fatal(err)
			}
			got := outcome(p.Call(t.Context(), "good", map[string]any{}, patience))
			if !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if test.method == "tools/call" {
				if got := outcome(p.Call(t.Context(), "good", map[string]any{}, patience)); !strings.Contains(got, "fine") {
					t.Errorf("the next call: got %s, want fine", got)
				}
			}
			p.Close()
			if logged := strings.Contains(log.String(), "cannot be decoded; such messages are dropped"); logged != test.logged {
				t.Errorf("logged: %v, want %v: %s", logged, test.logged, &log)
			}
		})
	}
}

func outcome(r mcp.Result, err error) string {
	if err != nil {
		return err.Error()
	}
	if r.IsError {
		return "failed: " + string(r.Content) + " " + string(r.Structured)
	}
	return string(r.Content) + " " + string(r.Structured)
}

// An odd tool, or an odd member of it, loses no other.
func TestListsWithOddItems(t *testing.T) {
	t.Parallel()
	const good = `{"name":"good","inputSchema":{"type":"object"}}`
	for name, test := range map[string]struct{ result, want string }{
		"hint as text":   {`{"tools":[` + good + `,{"name":"odd","inputSchema":{"type":"object","properties":{"z":{},"a":{}}},"annotations":{"readOnlyHint":"true","destructiveHint":true}}]}`, `[{"inputSchema":{"type":"object"},"name":"good"},{"annotations":{"destructiveHint":true,"idempotentHint":false,"readOnlyHint":false},"inputSchema":{"properties":{"a":{},"z":{}},"type":"object"},"name":"odd"}]`},
		"title":          {`{"tools":[` + good + `,{"name":"odd","title":5,"description":7,"icons":"x"}]}`, `[{"inputSchema":{"type":"object"},"name":"good"},{"inputSchema":{"type":"object"},"name":"odd"}]`},
		"not objects":    {`{"tools":["x",5,[],` + good + `,null]}`, `[{"inputSchema":{"type":"object"},"name":"good"}]`},
		"name":           {`{"tools":[{"name":5},` + good + `]}`, `[{"inputSchema":{"type":"object"},"name":"good"}]`},
		"cursor":         {`{"tools":[` + good + `],"nextCursor":5}`, `[{"inputSchema":{"type":"object"},"name":"good"}]`},
		"infinite":       {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"a":{"maximum":Infinity}}}}]}`, `[{"inputSchema":{"properties":{"a":{}},"type":"object"},"name":"good"}]`},
		"required null":  {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string"}},"required":null}}]}`, `[{"inputSchema":{"properties":{"a":{"type":"string"}},"type":"object"},"name":"good"}]`},
		"no properties":  {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":null}}]}`, `[{"inputSchema":{"type":"object"},"name":"good"}]`},
		"empty list":     {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":[]}}]}`, `[{"inputSchema":{"type":"object"},"name":"good"}]`},
		"misplaced":      {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string"},"required":["a"]}}}]}`, `[{"inputSchema":{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"},"name":"good"}]`},
		"named required": {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"required":{"type":"boolean"}}}}]}`, `[{"inputSchema":{"properties":{"required":{"type":"boolean"}},"type":"object"},"name":"good"}]`},
		"deeper":         {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string","required":true,"default":null},"b":null,"c":{"type":"array","items":{"type":"object","required":null}},"d":{"anyOf":[{"type":"object","properties":null}]}}}}]}`, `[{"inputSchema":{"properties":{"a":{"default":null,"type":"string"},"b":{},"c":{"items":{"type":"object"},"type":"array"},"d":{"anyOf":[{"type":"object"}]}},"type":"object"},"name":"good"}]`},
		"definitions":    {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/required"}},"$defs":{"required":{"type":"string"},"properties":{"type":"object","required":true},"default":{"items":{"required":null}},"none":null}}}]}`, `[{"inputSchema":{"$defs":{"default":{"items":{}},"none":{},"properties":{"type":"object"},"required":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/required"}},"type":"object"},"name":"good"}]`},
		"old names":      {`{"tools":[{"name":"good","inputSchema":{"type":"object","definitions":{"required":{}},"patternProperties":{"required":{}},"dependentSchemas":{"const":{"required":1}}}}]}`, `[{"inputSchema":{"definitions":{"required":{}},"dependentSchemas":{"const":{}},"patternProperties":{"required":{}},"type":"object"},"name":"good"}]`},
		"values":         {`{"tools":[{"name":"good","inputSchema":{"type":"object","properties":{"a":{"enum":[{"required":null}],"examples":[{"a":null}]}}}}]}`, `[{"inputSchema":{"properties":{"a":{"enum":[{"required":null}],"examples":[{"a":null}]}},"type":"object"},"name":"good"}]`},
		"output":         {`{"tools":[{"name":"good","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{},"required":null}}]}`, `[{"inputSchema":{"type":"object"},"name":"good","outputSchema":{"properties":{},"type":"object"}}]`},
		"nullable":       {`{"tools":[{"name":"good","inputSchema":{"type":["object","null"],"properties":{"a":{}}}}]}`, `[{"inputSchema":{"properties":{"a":{}},"type":"object"},"name":"good"}]`},
		"no list":        {`{"tools":{"good":{}}}`, `MCP server "s": calling "tools/list": its result cannot be decoded: {"tools":{"good":{}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list, err := connect(t, newProxy(t, scripted(t, "tools/list", "="+test.result))).ListTools(t.Context(), nil)
			got := ""
			if err != nil {
				got = err.Error()
			} else if text, err := json.Marshal(list.Tools); err == nil {
				got = string(text)
			}
			if !strings.HasSuffix(got, test.want) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A capability that is not an object is one nevertheless.
func TestOddCapabilities(t *testing.T) {
	t.Parallel()
	for _, capability := range []string{"true", "[]", "{}"} {
		result := `={"protocolVersion":"2025-06-18","capabilities":{"tools":` + capability + `},"serverInfo":"s"}`
		if got := toolNames(t, connect(t, newProxy(t, scripted(t, "initialize", result)))); len(got) != 1 {
			t.Errorf("%s: got %q, want the tool", capability, got)
		}
	}
}

// A result keeps what the tool said, whatever its form.
func TestOddResults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ result, want string }{
		"unknown type":    {`{"content":[{"type":"error","text":"boom"}],"isError":true}`, `failed: [{"type":"text","text":"{\"type\":\"error\",\"text\":\"boom\"}"}] null`},
		"no type":         {`{"content":[{"text":"boom"}]}`, `[{"type":"text","text":"{\"text\":\"boom\"}"}] null`},
		"one of two":      {`{"content":[{"type":"text","text":"good"},{"type":"video","uri":"x"},null,"loose"]}`, `[{"type":"text","text":"good"},{"type":"text","text":"{\"type\":\"video\",\"uri\":\"x\"}"},{"type":"text","text":"loose"}] null`},
		"other member":    {`{"content":[{"type":"text","content":"boom"}]}`, `[{"type":"text","text":"{\"type\":\"text\",\"content\":\"boom\"}"}] null`},
		"odd annotations": {`{"content":[{"type":"image","data":"aWs=","mimeType":"image/png","annotations":"x"}]}`, `[{"type":"image","mimeType":"image/png","data":"aWs="}] null`},
		"text":            {`{"content":"boom"}`, `[{"type":"text","text":"boom"}] null`},
		"one block":       {`{"content":{"type":"text","text":"boom"}}`, `[{"type":"text","text":"boom"}] null`},
		"only a list":     {`[{"type":"text","text":"boom"}]`, `[{"type":"text","text":"boom"}] null`},
		"only a text":     {`"boom"`, `[{"type":"text","text":"boom"}] null`},
		"not failed":      {`{"content":[{"type":"text","text":"boom"}],"isError":"false"}`, `[{"type":"text","text":"boom"}] null`},
		"failed":          {`{"content":[{"type":"text","text":"boom"}],"isError":"True"}`, `failed: [{"type":"text","text":"boom"}] null`},
		"old form":        {`{"toolResult":{"content":[{"type":"text","text":"boom"}]}}`, `[{"type":"text","text":"boom"}] null`},
		"old value":       {`{"toolResult":{"a":1}}`, `[{"type":"text","text":"{\"a\":1}"}] null`},
		"structured":      {`{"structuredContent":{"a":12345678901234567890}}`, `[] {"a":12345678901234567890}`},
		"empty":           {`{"content":[]}`, `[] null`},
		"odd meta":        {`{"_meta":5,"content":[{"type":"text","text":"<b>"}],"structuredContent":{"a":1.0}}`, `[{"type":"text","text":"<b>"}] {"a":1.0}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, scripted(t, "tools/call", "="+test.result))
			if got := outcome(p.Call(t.Context(), "good", map[string]any{}, patience)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestOddPrompts(t *testing.T) {
	t.Parallel()
	session := connect(t, newProxy(t, scripted(t, "prompts/get", `={"messages":[{"role":"user","content":{"type":"text","text":"good"}},{"role":"user","content":{"type":"video"}},{"role":"user","content":"loose"}],"description":5}`)))
	prompt, err := session.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range prompt.Messages {
		if text, ok := m.Content.(*sdk.TextContent); ok {
			got = append(got, text.Text)
		}
	}
	if want := `good {"type":"video"} loose`; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}
