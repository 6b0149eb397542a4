package gateway_test

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestLog reads the life of a host in the log: a line for each thing that was done.
func TestLog(t *testing.T) {
	t.Parallel()
	var log testhelp.Buffer
	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	s := h.make(t, `{"image":"debian","name":"box"}`, "Idempotency-Key", "a")
	h.make(t, `{"image":"debian","name":"box"}`, "Idempotency-Key", "a") // is there already: nothing is done
	one := "/v1/sandboxes/" + s.ID
	for _, word := range []string{"stop", "start", "pause", "resume"} {
		if w := h.ask(t, "POST", "/v1/sandboxes/{id}/"+word, one+"/"+word, ""); w.Code != http.StatusOK {
			t.Fatalf("%s: got %d %s", word, w.Code, w.Body)
		}
	}
	if w := h.ask(t, "DELETE", "/v1/sandboxes/{id}", one, ""); w.Code != http.StatusNoContent {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	if w := h.ask(t, "POST", "/v1/sandboxes", "/v1/sandboxes", `{"image":"nosuch","pull":"never"}`); w.Code != http.StatusUnprocessableEntity {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), " level=")
		rest, _, _ = strings.Cut(rest, " took=")
		got = append(got, strings.ReplaceAll(rest, s.ID, "ID"))
	}
	want := []string{
		`INFO msg="made a sandbox" sandbox=ID name=box image=debian`,
		`INFO msg="changed a sandbox" sandbox=ID name=box what=stopped`,
		`INFO msg="changed a sandbox" sandbox=ID name=box what=started`,
		`INFO msg="changed a sandbox" sandbox=ID name=box what=paused`,
		`INFO msg="changed a sandbox" sandbox=ID name=box what=resumed`,
		`INFO msg="removed a sandbox" sandbox=ID name=box reason="a client asked for it"`,
	}
	if len(got) != len(want)+1 || !slices.Equal(got[:len(want)], want) || !strings.HasPrefix(got[len(want)], `WARN msg="did not make a sandbox" sandbox=`) {
		t.Errorf("got\n%s\nwant\n%s\nand a failure", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
