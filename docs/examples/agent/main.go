// Agent lets a model work in a sandbox: agent "write a greeter in Python and run it".
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/api/tools"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func main() {
	ctx, env := context.Background(), os.Getenv
	sandbox := must(client.New(client.Config{BaseURL: env("SANDBOX_URL"), Key: env("SESSION_API_KEY")}))
	definitions := must(sandbox.Tools(ctx, "actiond", "openai"))
	call := func(ctx context.Context, c api.ToolCall) (api.ToolAnswer, error) {
		c.Dialect = "actiond"
		return sandbox.CallTool(ctx, c)
	}
	messages := []tools.Message{{Role: "user", Content: strings.Join(os.Args[1:], " ")}}
	for {
		body := must(json.Marshal(map[string]any{"model": env("MODEL"), "messages": messages, "tools": definitions}))
		request := must(http.NewRequest(http.MethodPost, cmp.Or(env("OPENAI_BASE_URL"), "https://api.openai.com/v1")+"/chat/completions", bytes.NewReader(body)))
		request.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + env("OPENAI_API_KEY")}}
		response := must(http.DefaultClient.Do(request))
		message := must(tools.Completion(must(io.ReadAll(response.Body))))
		_ = response.Body.Close()
		if len(message.Calls) == 0 {
			fmt.Println(message.Content)
			return
		}
		messages = append(append(messages, message), must(message.Answer(ctx, 600, call))...)
	}
}
