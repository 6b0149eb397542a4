//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/sandbox"
)

// holders are Perl programs that take all of something that the kernel counts for
// each user or for the whole host, say so and hold it, and what another sandbox
// wants of it meanwhile.
var holders = []struct{ name, take, want, answer string }{
	{
		"inotify instances",
		`my $nr = qx(uname -m) =~ /x86_64/ ? 294 : 26; while (syscall($nr, 0) >= 0) { }`,
		`my $nr = qx(uname -m) =~ /x86_64/ ? 294 : 26; print syscall($nr, 0) >= 0 ? "one" : $!`, "one",
	},
	{
		"pipe buffers",
		`my @all; for (1 .. 500) { pipe(my $r, my $w) or last; push @all, $r, $w; fcntl($r, 1031, 1 << 20) or last }
		 for (1 .. 500) { pipe(my $r, my $w) or last; push @all, $r, $w } our @kept = @all;`,
		`pipe(my $r, my $w); print fcntl($r, 1032, 0)`, "65536",
	},
	{
		"POSIX message queues",
		`my $n = 0; while (open(my $f, ">", "/dev/mqueue/" . $n++)) { }`,
		`print open(my $f, ">", "/dev/mqueue/mine") ? "one" : $!`, "one",
	},
	{
		"terminals",
		`my @all; for (1 .. 3) { my $p = fork(); last if $p == 0 } while (open(my $f, "+<", "/dev/ptmx")) { push @all, $f } our @kept = @all;`,
		`print open(my $f, "+<", "/dev/ptmx") ? "one" : $!`, "one",
	},
}

// TestDockerSharedQuotas has an agent that takes all it can of what the kernel
// counts beyond one sandbox. Other sandboxes do not notice, and neither do their
// new sessions.
func TestDockerSharedQuotas(t *testing.T) { //nolint:paralleltest // it would take them from other tests
	h := testHost(t)
	greedy := create(t, h, sandbox.Spec{Image: image(t, debianImage)})
	other := create(t, h, sandbox.Spec{Image: debianImage})
	for i, tt := range holders {
		got, code := run(t, greedy, fmt.Sprintf(`perl -e '$| = 1; %s print "taken\n"; sleep 1000' >/tmp/taken-%d 2>&1 & while [ $(cat /tmp/taken-%[2]d | grep -c taken) -lt %[3]d ]; do sleep 0.05; done; echo held`, tt.take, i, max(1, strings.Count(tt.take, "fork")*4)))
		if !strings.HasSuffix(got, "held") || code != 0 {
			t.Fatalf("%s: got %q, %d", tt.name, got, code)
		}
		if got, _ := run(t, other, "perl -e '"+tt.want+"'"); got != tt.answer {
			t.Errorf("%s: another sandbox got %q, want %q", tt.name, got, tt.answer)
		}
		o, err := clientOf(t, other).Do(t.Context(), api.Request{Session: fmt.Sprint("s", i), Action: api.RunAction{Command: "echo new", Blocking: true}})
		if ran, ok := o.(api.RunObservation); !ok || ran.Content != "new" {
			t.Errorf("%s: a new session of another sandbox: got %v, %v", tt.name, o, err)
		}
	}
}
