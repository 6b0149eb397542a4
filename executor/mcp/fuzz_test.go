package mcp_test

import (
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/actiond/actiond/api"
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
