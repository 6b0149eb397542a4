package front_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
	"github.com/actiond/actiond/internal/testhelp"
)

// overTCP gives the sandbox a token, and has the egress proxy listen at a TCP address.
func (f *fixture) overTCP(tb testing.TB, policy string) (address, token, hash string) {
	tb.Helper()
	token, hash = egress.NewToken(id)
	rules, err := egress.ParsePolicy([]byte(policy))
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.egress.Apply(id, egress.Conf{Generation: 2, Policy: rules, Token: hash}); err != nil {
		tb.Fatal(err)
	}
	l := testhelp.Listen(tb)
	served := make(chan error, 1)
	go func() { served <- f.egress.Serve(tb.Context(), l) }()
	tb.Cleanup(func() { <-served })
	return l.Addr().String(), token, hash
}

// TestRemote: a front with a token speaks to an egress proxy elsewhere, which refuses another token:
// for programs that is a proxy that does not answer, and no denial.
func TestRemote(t *testing.T) {
	t.Parallel()
	f := start(t, `{"mode":"allowlist","allow":["echo.example"]}`, nil)
	f.echo(t, 7)
	address, token, hash := f.overTCP(t, `{"mode":"allowlist","allow":["echo.example"]}`)
	for sent, want := range map[string]int{token: http.StatusOK, id + "." + hash: http.StatusServiceUnavailable} {
		remote, err := front.Start(front.Config{Remote: address, Token: sent, Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer remote.Close()
		f.Front = remote
		c := f.dial(t)
		if got := send(t, c, connectTo("echo.example:7")); got.status != want || got.denied != "" || strings.Contains(got.text, "token") {
			t.Errorf("got %+v, want %d", got, want)
		}
		if want != http.StatusOK {
			if _, err := remote.Policy(t.Context()); err == nil {
				t.Error("the policy is known without the token")
			}
			continue
		}
		testhelp.Exchange(t, c, "hello")
		if err := c.CloseWrite(); err != nil {
			t.Error(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the end of one direction did not pass")
		}
		if got := send(t, f.dial(t), connectTo("evil.example:7")); got.status != http.StatusForbidden || got.denied != "not in the allow list" {
			t.Errorf("got %+v", got)
		}
		if told, err := remote.Policy(t.Context()); err != nil || told.Mode != egress.ModeAllowlist {
			t.Errorf("the policy: %+v, %v", told, err)
		}
	}
}
