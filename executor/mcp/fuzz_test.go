package mcp_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/mcp"
)

// A message that is let through to the library is understood by it: a message that is
// refused there ends the connection.
func FuzzCheckMCPMessage(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","method":"a","params":{}}`, `{"jsonrpc":"2.0","id":"x","result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`, `{"jsonrpc":"2.0","id":1.0,"method":"m"}`, `{"jsonrpc":"2.0","id":null,"method":""}`, `[]`,
		`{"jsonrpc":"2.0","id":0,"error":{"code":""}}`, `{"jsonrpc":"2.0","id":0,"error":"text"}`, `{"jsonrpc":"2.0","id":0,"error":null}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if api.CheckMCPMessage([]byte(body)) != nil || !utf8.ValidString(body) {
			return
		}
		if _, err := jsonrpc.DecodeMessage([]byte(body)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}

// A repaired result of a tool can be decoded and encoded, and says something or is an error.
func FuzzRepairResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"a"},null,5,{"type":"video"}],"isError":"x"}`, `{"toolResult":{"content":"a"}}`, `"a"`, `[[]]`, `{}`,
		`{"content":[{"type":"tool_result","content":[{"type":"x"}]}],"_meta":[],"structuredContent":1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		for _, method := range []string{"tools/call", "tools/list", "initialize", "prompts/get", "resources/read"} {
			result, err := mcp.RepairResult(method, json.RawMessage(text))
			var call sdk.CallToolResult
			if err != nil || method != "tools/call" {
				continue
			}
			if err := json.Unmarshal(result, &call); err != nil || call.Content == nil && call.StructuredContent == nil {
				t.Errorf("%s became %s: %v", text, result, err)
			}
			if _, err := json.Marshal(&call); err != nil {
				t.Errorf("%s became %s: %v", text, result, err)
			}
		}
	})
}
