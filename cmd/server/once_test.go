package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Actions that append their identities to a file, by a client whose connections are cut,
// on a server that is killed: none runs twice, each that is acknowledged ran, and what is
// not known is said to be unknown.
func TestActionsRunOnce(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	binary, state := buildServer(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "ran")
	s := startKillable(t, binary, state)
	told := map[string]string{}
	for i := range 60 {
		id := fmt.Sprintf("id-%d", i)
		if i%12 == 11 { // it dies at some moment of the action
			dying, wait := s, time.Duration(random.IntN(4000))*time.Microsecond
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				<-time.After(wait)
				dying.kill()
			}()
			told[id] = s.appendTo(t, file, id, 0)
			<-killed
			s = startKillable(t, binary, state)
		}
		for cuts := random.IntN(3); told[id] == ""; cuts-- {
			var cut time.Duration
			if cuts > 0 {
				cut = time.Duration(1+random.IntN(3000)) * time.Microsecond
			}
			told[id] = s.appendTo(t, file, id, cut)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(data))
	counts := map[string]int{}
	for _, line := range lines {
		counts[line]++
	}
	for id, answer := range told {
		switch n := counts[id]; {
		case strings.Contains(answer, "exit code 0"):
			if n != 1 {
				t.Errorf("%s was acknowledged and ran %d times: %s", id, n, answer)
			}
		case strings.Contains(answer, "the result is unknown:"):
			if n > 1 {
				t.Errorf("%s is unknown and ran %d times", id, n)
			}
		case strings.Contains(answer, "did not run"):
			if n != 0 {
				t.Errorf("%s did not run, and ran %d times", id, n)
			}
		default:
			t.Errorf("%s: got %s", id, answer)
		}
	}
}

// appendTo runs an action that appends its identity to a file, and returns the answer;
// "" where the connection broke, or was cut after so long a time.
func (k *killable) appendTo(t *testing.T, file, id string, cut time.Duration) string {
	t.Helper()
	ctx := t.Context()
	if cut > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cut)
		defer cancel()
	}
	body := fmt.Sprintf(`{"action":{"action":"run","args":{"command":"echo %s >>%s"}}}`, id, file)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox/v1/actions", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", id)
	resp, err := k.client.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return ""
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %d %s", id, resp.StatusCode, answer)
	}
	return string(answer)
}
