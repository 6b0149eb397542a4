// Agent lets a model work in a sandbox, with nothing but the standard library:
// agent "write a greeter in Python and run it".
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
)

type object = map[string]any

// call sends a request and returns the JSON object that answers it.
func call(method, url, header, key string, body object) (answer object) {
	data, _ := json.Marshal(body)
	request, _ := http.NewRequest(method, url, bytes.NewReader(data))
	request.Header = http.Header{"Content-Type": {"application/json"}, header: {key}}
	response, err := new(http.Client).Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		log.Panic(url, ": ", response.Status, answer, err)
	}
	return answer
}

func main() {
	model, token := os.Getenv("OPENAI_BASE_URL")+"/chat/completions", "Bearer "+os.Getenv("OPENAI_API_KEY")
	sandbox, key := os.Getenv("SANDBOX_URL"), os.Getenv("SESSION_API_KEY")
	tools := call("GET", sandbox+"/v1/tools", "X-Session-Api-Key", key, nil)["tools"]
	messages := []any{object{"role": "user", "content": strings.Join(os.Args[1:], " ")}}
	for {
		reply := call("POST", model, "Authorization", token, object{"model": os.Getenv("MODEL"), "messages": messages, "tools": tools})
		message := reply["choices"].([]any)[0].(object)["message"].(object)
		messages = append(messages, message)
		calls, _ := message["tool_calls"].([]any)
		if len(calls) == 0 {
			log.Print(message["content"])
			return
		}
		for _, c := range calls {
			id, function := c.(object)["id"], c.(object)["function"].(object)
			answer := call("POST", sandbox+"/v1/tools/call", "X-Session-Api-Key", key,
				object{"name": function["name"], "arguments": function["arguments"], "tool_call_id": id, "timeout": 600})
			text := answer["content"].(string)
			if run, ok := answer["extras"].(object)["metadata"].(object); ok { // how a command ended
				text = run["prefix"].(string) + text + run["suffix"].(string)
			}
			messages = append(messages, object{"role": "tool", "tool_call_id": id, "content": text})
		}
	}
}
