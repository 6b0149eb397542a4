package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// An action whose server does not come back is not asked for again.
func TestGone(t *testing.T) {
	t.Parallel()
	dials := 0
	dial := func(context.Context, string, string) (net.Conn, error) {
		if dials++; dials > 1 {
			return nil, fmt.Errorf("%w: it was killed", client.ErrGone)
		}
		here, there := net.Pipe()
		go func() { // ends after the first bytes of the request
			_, _ = there.Read(make([]byte, 1))
			there.Close()
		}()
		return here, nil
	}
	c, err := client.New(client.Config{BaseURL: "http://sandbox", HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Do(t.Context(), api.Request{Action: api.RunAction{Command: "true"}}); err == nil || dials != 2 {
		t.Errorf("got %v after %d connections, want an error after 2", err, dials)
	}
}
