package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/internal/lazyregexp"
)

// The library decodes a result as a whole: one member of a wrong type loses all
// tools of a list and all content of a call. This file makes a result fit first.

// object is a JSON object whose members are not decoded.
type object = map[string]json.RawMessage

// results makes, by method, the values that the library decodes results into.
var results = map[string]func() any{
	"initialize":               func() any { return new(sdk.InitializeResult) },
	"tools/list":               func() any { return new(sdk.ListToolsResult) },
	"tools/call":               func() any { return new(sdk.CallToolResult) },
	"prompts/list":             func() any { return new(sdk.ListPromptsResult) },
	"prompts/get":              func() any { return new(sdk.GetPromptResult) },
	"resources/list":           func() any { return new(sdk.ListResourcesResult) },
	"resources/templates/list": func() any { return new(sdk.ListResourceTemplatesResult) },
	"resources/read":           func() any { return new(sdk.ReadResourceResult) },
}

// Members of results that are repaired.
const (
	contentMember  = "content"
	messagesMember = "messages"
	toolsMember    = "tools"
)

// repairResult returns the result of a request as the library can decode it: without
// what does not fit, and with unknown content as text.
func repairResult(method string, result json.RawMessage) (json.RawMessage, error) {
	if null(result) {
		return nil, errors.New("its answer has no result")
	}
	var members object
	if json.Unmarshal(result, &members) != nil && method == "tools/call" {
		members = object{contentMember: result}
	}
	var messages []object
	switch {
	case method == "tools/call":
		repairCall(members)
	case method == "prompts/get" && json.Unmarshal(members[messagesMember], &messages) == nil:
		for _, message := range messages {
			message[contentMember] = repairBlock(message[contentMember])
		}
		members[messagesMember] = marshal(messages)
	}
	tools := members[toolsMember]
	pruned, ok := prune(marshal(members), func(value json.RawMessage) bool {
		decoded := results[method]
		return decoded == nil || !null(value) && json.Unmarshal(value, decoded()) == nil
	}, maxPruned)
	if !ok || method == "tools/list" && !null(tools) && tools[0] != '[' {
		return nil, fmt.Errorf("its result cannot be decoded: %.200s", result)
	}
	return pruned, nil
}

func null(value json.RawMessage) bool { return value == nil || string(value) == "null" }

// marshal encodes what was decoded before, and so cannot fail.
func marshal[T object | []object | []json.RawMessage | map[string]string](v T) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return text
}

// maxPruned is how deep prune looks for what does not fit.
const maxPruned = 8

// prune returns value without the elements and members that do not fit, and whether the rest
// does. An object may take the place of a member that is something else.
func prune(value json.RawMessage, fits func(json.RawMessage) bool, depth int) (json.RawMessage, bool) {
	if fits(value) {
		return value, true
	}
	var elements []json.RawMessage
	var members object
	switch {
	case depth == 0:
		return nil, false
	case json.Unmarshal(value, &elements) == nil:
		kept := []json.RawMessage{}
		for _, element := range elements {
			in := func(e json.RawMessage) bool { return fits(marshal([]json.RawMessage{e})) }
			if element, ok := prune(element, in, depth-1); ok {
				kept = append(kept, element)
			}
		}
		value = marshal(kept)
	case json.Unmarshal(value, &members) == nil:
		for name, member := range members {
			in := func(m json.RawMessage) bool { return fits(marshal(object{name: m})) }
			if pruned, ok := prune(member, in, depth-1); ok {
				members[name] = pruned
			} else if members[name] = json.RawMessage("{}"); !in(members[name]) {
				delete(members, name)
			}
		}
		value = marshal(members)
	}
	return value, fits(value)
}

// repairCall makes a list of blocks of what a tool returned.
func repairCall(members object) {
	const failed, old = "isError", "toolResult" // old is of the protocol before its first revision
	var inner object
	switch {
	case !null(members[contentMember]) || !null(members["structuredContent"]):
	case json.Unmarshal(members[old], &inner) == nil && !null(inner[contentMember]):
		members[contentMember] = inner[contentMember]
	case !null(members[old]):
		members[contentMember] = textBlock(members[old])
	default:
		members[contentMember] = textBlock([]byte("The MCP server sent a result without content: " + string(marshal(members))))
		members[failed] = json.RawMessage("true")
	}
	if value := members[failed]; value != nil {
		said := strings.Trim(string(value), `"`)
		is, err := strconv.ParseBool(said)
		members[failed] = strconv.AppendBool(nil, is || err != nil && said != "" && said != "null")
	}
	blocks := []json.RawMessage{}
	content := members[contentMember]
	if !null(content) && json.Unmarshal(content, &blocks) != nil {
		blocks = []json.RawMessage{content}
	}
	blocks = slices.DeleteFunc(blocks, null)
	for i, block := range blocks {
		blocks[i] = repairBlock(block)
	}
	members[contentMember] = marshal(blocks)
}

// payloads names the member of a block, by its type, without which it says nothing.
var payloads = map[string]string{"text": "text", "image": "data", "audio": "data", "resource": "resource", "resource_link": "uri"}

// repairBlock returns a block as it is, without what only describes it, or as a block of text.
func repairBlock(block json.RawMessage) json.RawMessage {
	var members object
	if json.Unmarshal(block, &members) != nil || members == nil {
		return textBlock(block)
	}
	var kind string
	_ = json.Unmarshal(members["type"], &kind)
	payload := members[payloads[kind]]
	for _, description := range [][]string{nil, {"_meta", "annotations", "icons", "title", "description", "size"}} {
		for _, name := range description {
			delete(members, name)
		}
		call := object{contentMember: marshal([]object{members})}
		if !null(payload) && json.Unmarshal(marshal(call), new(sdk.CallToolResult)) == nil {
			return marshal(members)
		}
	}
	return textBlock(block)
}

// textBlock returns a block with a value as text: a string itself, or JSON.
func textBlock(value json.RawMessage) json.RawMessage {
	return marshal(map[string]string{"type": "text", "text": asText(value)})
}

func asText(value json.RawMessage) (text string) {
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

// repairError returns the error of an answer, which should be an object with a code and a
// message.
func repairError(text json.RawMessage) error {
	var said jsonrpc.Error
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		return &said
	}
	return &jsonrpc.Error{Code: cmp.Or(said.Code, jsonrpc.CodeInternalError), Message: asText(text)}
}

var (
	stringOrNonFinite = lazyregexp.New(`"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b`)
	firstID           = lazyregexp.New(`^\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d+)`)
)

// finite replaces the numbers that JSON does not have, and that some libraries print, by null.
func finite(line []byte) []byte {
	return stringOrNonFinite().ReplaceAllFunc(line, func(token []byte) []byte {
		if bytes.HasPrefix(token, []byte(`"`)) {
			return token
		}
		return []byte("null")
	})
}

// Keywords of JSON Schema whose values are no schemas: values of instances, and schemas by names of the server's own,
// which may be those of keywords.
var (
	valueKeywords = []string{"const", "default", "enum", "examples"}
	namedKeywords = []string{"$defs", "definitions", "dependentSchemas", "patternProperties"}
)

// repairSchema makes a schema acceptable to clients, some of which refuse a whole list because of
// a null, or of a list of required properties in a wrong place.
func repairSchema(value any) {
	items, _ := value.([]any)
	for _, item := range items {
		repairSchema(item)
	}
	schema, _ := value.(map[string]any)
	for key, inner := range schema {
		_, isList := inner.([]any)
		switch {
		case slices.Contains(valueKeywords, key):
		case inner == nil, key == "required" && !isList:
			delete(schema, key)
		case key == "properties":
			repairProperties(schema, inner)
		case slices.Contains(namedKeywords, key):
			repairNamed(inner)
		default:
			repairSchema(inner)
		}
	}
}

func repairProperties(schema map[string]any, value any) {
	const key, required = "properties", "required"
	properties, ok := value.(map[string]any)
	if !ok {
		delete(schema, key)
	}
	if names, ok := properties[required].([]any); ok {
		delete(properties, required)
		if schema[required] == nil {
			schema[required] = names
		}
	}
	repairNamed(properties)
}

// repairNamed repairs schemas by names; what is no schema allows anything.
func repairNamed(value any) {
	named, _ := value.(map[string]any)
	for name, schema := range named {
		switch schema.(type) {
		case map[string]any, bool:
			repairSchema(schema)
		default:
			named[name] = map[string]any{}
		}
	}
}
