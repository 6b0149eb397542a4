package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// sandbox is a server that answers as a sandbox does.
func sandbox() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /execute_action", func(w http.ResponseWriter, _ *http.Request) {
		body, _ := api.EncodeObservation(api.RunObservation{Command: "make test", Content: "ok"})
		_, _ = w.Write(body)
	})
	content := ""
	mux.HandleFunc("PUT /v1/files", func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		content = string(data)
		body, _ := api.EncodeObservation(api.FileObservation{Path: r.URL.Query().Get("path"), SHA256: "ab", Size: int64(len(data)), Created: true})
		_, _ = w.Write(body)
	})
	mux.HandleFunc("GET /v1/files", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content) })
	return httptest.NewServer(mux)
}

// Run a command in a sandbox. After a broken connection the client asks for the same
// action again, which does not run twice.
func ExampleClient_Do() {
	srv := sandbox() // a real one: runtimectl create, then runtimectl inspect for its address and key
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	o, err := c.Do(context.Background(), api.Request{Action: api.RunAction{Command: "make test"}})
	if err != nil {
		log.Fatal(err) // errors.Is(err, client.ErrUnknown): the server died while it ran
	}
	fmt.Println(o)
	// Output:
	// Command `make test` executed with exit code 0.
	// ok
}

// Write a file of any size, unless one is there, and read it.
func ExampleClient_WriteFile() {
	srv := sandbox()
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	written, err := c.WriteFile(context.Background(), "/workspace/a.txt", strings.NewReader("hello"), client.WriteOptions{IfNew: true, Mode: 0o644})
	if err != nil {
		log.Fatal(err)
	}
	data, err := c.ReadFile(context.Background(), "/workspace/a.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(written, written.Size, string(data))
	// Output: I wrote to the file /workspace/a.txt. 5 hello
}
