package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// exec sends an action that is not waited for.
func (s *upgradable) exec(id string, args map[string]any) {
	s.Helper()
	s.act("exec", args, "Idempotency-Key", id, "Prefer", "respond-async")
}

// observed is a part of an observation.
type observed struct {
	Content string
	Extras  map[string]any
}

// recorded is what is known of an action, after so many seconds at most.
func (s *upgradable) recorded(id string, wait int) (a api.RecordedAction, o observed) {
	s.Helper()
	status, answer := s.do("GET", fmt.Sprintf("/v1/actions/%s?wait=%d", id, wait), nil)
	if err := json.Unmarshal([]byte(answer), &a); err != nil || status != 200 {
		s.Fatalf("%s: %d %s", id, status, answer)
	}
	if len(a.Observation) > 0 {
		if err := json.Unmarshal(a.Observation, &o); err != nil {
			s.Fatal(err)
		}
	}
	return a, o
}

// ends waits for an action and compares how it ended.
func (s *upgradable) ends(id, content string, extras map[string]any) {
	s.Helper()
	a, o := s.recorded(id, 60)
	if a.State != api.StateDone || o.Content != content {
		s.Errorf("%s: got %s, %.200q, want %.200q", id, a.State, o.Content, content)
	}
	for name, want := range extras {
		if got := o.Extras[name]; fmt.Sprint(got) != fmt.Sprint(want) {
			s.Errorf("%s: %s is %v, want %v", id, name, got, want)
		}
	}
}

// to upgrades to a program without force and at once, which nothing that runs may hold up.
func (s *upgradable) to(program string) {
	s.Helper()
	status, u, answer := s.upgrade(program, "wait=30")
	if status != http.StatusOK || len(u.Ended) > 0 || len(u.Unknown) > 0 {
		s.Fatalf("got %d %s", status, answer)
	}
}

// refused uploads a program that refuses the state, and one that cannot be executed at last: both
// leave all as it was.
func (s *upgradable) refused() {
	s.Helper()
	fake, err := os.ReadFile(build(s.T, "fake", "", "./testdata/fake"))
	if err != nil {
		s.Fatal(err)
	}
	for mode, want := range map[string]int{" refuses": http.StatusUnprocessableEntity, " locks": http.StatusInternalServerError} {
		file := filepath.Join(s.TempDir(), "fake")
		write(s.T, file, append(bytes.Clone(fake), mode...))
		if status, _, answer := s.upgrade(file, ""); status != want {
			s.Errorf("a program that%s: got %d %s, want %d", mode, status, answer, want)
		}
	}
}

func (s *upgradable) connect() *client.Client {
	s.Helper()
	c, err := client.New(client.Config{BaseURL: "unix://" + filepath.Join(s.dir, "s"), Key: s.key})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(c.Close)
	return c
}

// seq is what the program of that name prints.
func seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// digest makes texts short enough to be compared in a message.
func digest(text string) string {
	return fmt.Sprintf("%d bytes, %x", len(text), sha256.Sum256([]byte(text)))
}

// Programs go on over upgrades as if there were none, whatever they do meanwhile.
func TestUpgradePrograms(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	binary := buildServer(t)
	s := startUpgradable(t, binary, []string{"SESSION_API_KEY=k"}, append(user, "--allow-root")...)
	c := s.connect()
	until := func(file string) string { return "while [ ! -e " + s.work + "/" + file + " ]; do sleep 0.01; done; " }
	const limit = 400_000

	s.exec("flood", map[string]any{"command": fmt.Sprintf("seq %d; seq %d >&2; exit 3", limit, limit)})
	s.exec("closes", map[string]any{"command": "echo a; exec >&- 2>&-; " + until("go") + "exit 4"})
	s.exec("fork", map[string]any{"command": "(" + until("later") + "echo late; touch " + s.work + "/written) & echo forked"}) // the child has the pipe
	s.exec("tty", map[string]any{"command": "stty -echo -opost; echo ready; read x; echo \"$x\"; stty size", "tty": map[string]any{"rows": 5, "cols": 50}, "stdin": "stream"})
	s.exec("killed", map[string]any{"command": "trap '' TERM; " + until("never"), "kill_after": 5})
	s.exec("cancelled", map[string]any{"command": "trap 'echo int; exit 9' INT; " + until("never")})
	s.exec("text", map[string]any{"command": until("go") + "cat", "input": strings.Repeat("0123456789abcde\n", 1<<14)})
	s.act("exec", map[string]any{"command": "id -u; " + until("go") + "id -u", "user": "root"}, "Idempotency-Key", "root", "Prefer", "respond-async")
	s.act("exec", map[string]any{"command": until("never"), "timeout": 3.0}, "Idempotency-Key", "timed", "Prefer", "respond-async")
	answered := strings.TrimSpace(s.act("exec", map[string]any{"command": "echo $$; exec sleep 1001", "timeout": 2}))

	var followed [2]bytes.Buffer
	var following sync.WaitGroup
	following.Go(func() { // by a client that is cut each time
		o, err := c.Follow(t.Context(), "flood", func(o api.Output) error {
			i := map[string]int{api.StreamStdout: 0, api.StreamStderr: 1}[o.Stream]
			if o.Missed != 0 || o.Offset != int64(followed[i].Len()) {
				t.Errorf("%d bytes of stream %d at %d behind %d, and %d missed", len(o.Data), i, o.Offset, followed[i].Len(), o.Missed)
			}
			followed[i].Write(o.Data)
			return nil
		})
		if program, ok := o.(api.ExecObservation); err != nil || !ok || program.ExitCode == nil || *program.ExitCode != 3 {
			t.Errorf("followed: got %+v, %v", o, err)
		}
	})
	for range 3 {
		s.to(binary)
		s.refused()
	}
	following.Wait()
	for i := range followed {
		s.want(fmt.Sprintf("stream %d, followed", i), digest(followed[i].String()), digest(seq(limit)))
	}
	for _, stream := range []string{"stdout", "stderr"} {
		_, got := s.do("GET", "/v1/actions/flood/output?stream="+stream, nil)
		s.want(stream, digest(got), digest(seq(limit)))
	}
	if a, o := s.recorded("flood", 60); a.State != "done" || fmt.Sprint(o.Extras["exit_code"], o.Extras["ended_by"]) != "3 <nil>" {
		t.Errorf("the flood: %v", o.Extras)
	}
	// The same identity follows the same action.
	s.want("the flood again", s.act("exec", map[string]any{"command": fmt.Sprintf("seq %d; seq %d >&2; exit 3", limit, limit)}, "Idempotency-Key", "flood")[:4], "1\n2\n")

	write(t, filepath.Join(s.work, "go"), nil)
	s.ends("closes", "a\n", map[string]any{"exit_code": 4})
	s.ends("fork", "forked\n", map[string]any{"exit_code": 0})
	s.ends("root", "0\n0\n", map[string]any{"exit_code": 0})
	if _, o := s.recorded("text", 60); o.Extras["stdout"] == nil || digest(o.Extras["stdout"].(string)) != digest(strings.Repeat("0123456789abcde\n", 1<<14)) {
		t.Error("the text that the program read is another one")
	}
	if status, answer := s.do("POST", "/v1/actions/tty/resize", strings.NewReader(`{"rows":7,"cols":70}`)); status != http.StatusNoContent {
		t.Errorf("resize: %d %s", status, answer)
	}
	if status, answer := s.do("POST", "/v1/actions/tty/input?offset=0", strings.NewReader("typed\n")); status != http.StatusOK {
		t.Errorf("input: %d %s", status, answer)
	}
	s.ends("tty", "ready\ntyped\n7 70\n", map[string]any{"exit_code": 0})
	s.ends("killed", "", map[string]any{"signal": "SIGKILL", "ended_by": "kill_after"})
	s.ends("timed", "", map[string]any{"exit_code": nil})
	if a, _ := s.recorded("timed", 0); a.End == nil || a.End.Sub(a.Begin) < 3*time.Second {
		t.Errorf("the wait ended after %v", a.End.Sub(a.Begin))
	}
	if status, answer := s.do("DELETE", "/v1/actions/cancelled?wait=30", nil); status != http.StatusOK {
		t.Errorf("cancel: %d %s", status, answer)
	}
	s.ends("cancelled", "int\n", map[string]any{"exit_code": 9, "ended_by": "cancel"})

	// What no action waits for lives, and what writes to a pipe that is left behind gets no signal.
	s.want("a program that was answered", s.run("kill -0 "+answered+" && kill "+answered+" && echo lived"), "lived")
	write(t, filepath.Join(s.work, "later"), nil)
	for until := time.Now().Add(time.Minute); len(entries(t, s.work)) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the child that was left behind did not write: %q", entries(t, s.work))
		}
	}
	// All were waited for.
	zombie := regexp.MustCompile(`^\d+ \(.*\) Z ` + strconv.Itoa(s.cmd.Process.Pid) + " ")
	for until, left := time.Now().Add(time.Minute), 1; left > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d programs were not waited for", left)
		}
		left = 0
		found, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
		for _, file := range found {
			if stat, _ := os.ReadFile(file); zombie.Match(stat) { // a process may be gone
				left++
			}
		}
	}
}

// Input that comes in the middle of upgrades is taken once.
func TestUpgradeInput(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	binary := buildServer(t)
	s := startUpgradable(t, binary, []string{"SESSION_API_KEY=k"}, user...)
	s.exec("cat", map[string]any{"command": "sleep 0.5; cat", "stdin": "stream"})
	data := []byte(seq(200_000))
	var sending sync.WaitGroup
	c := s.connect()
	sending.Go(func() {
		if err := c.Feed(t.Context(), "cat", bytes.NewReader(data)); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		s.to(binary)
	}
	sending.Wait()
	if a, o := s.recorded("cat", 60); a.State != "done" || fmt.Sprint(o.Extras["exit_code"]) != "0" {
		t.Errorf("got %s %v", a.State, o.Extras["exit_code"])
	}
	_, got := s.do("GET", "/v1/actions/cat/output?stream=stdout", nil)
	s.want("what was read", digest(got), digest(string(data)))
}

// A program whose end falls into an upgrade has ended with its exit code, and one that is
// started while another upgrade fails too.
func TestUpgradeManyPrograms(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	binary := buildServer(t)
	s := startUpgradable(t, binary, []string{"SESSION_API_KEY=k"}, user...)
	const programs = 240      // of 256
	for i := range programs { // they end while the upgrades go on
		s.exec(fmt.Sprint("p", i), map[string]any{"argv": []string{"bash", "-c", fmt.Sprintf("printf '%%300000s' x; sleep 0.%02d; read -t %d.%02d <> <(:); echo %d; exit %d", i%100, i/60, i%100, i, i%200)}})
	}
	for range 4 {
		s.to(binary)
	}
	for i := range programs {
		a, o := s.recorded(fmt.Sprint("p", i), 60)
		out, _ := o.Extras["stdout"].(string)
		if a.State != api.StateDone || fmt.Sprint(o.Extras["exit_code"]) != fmt.Sprint(i%200) || !strings.HasSuffix(out, fmt.Sprintf("x%d\n", i)) || a.OutputBytes != int64(300000+len(fmt.Sprintln(i))) {
			t.Fatalf("program %d: %s, %v, %d bytes, ends with %q", i, a.State, o.Extras["exit_code"], a.OutputBytes, out[max(0, len(out)-20):])
		}
	}
	if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)); err != nil || len(fds) > 60 {
		t.Errorf("the server has %d open files, %v", len(fds), err)
	}
}

// A caller that waits for an action without an identity would lose it: it is waited for, and goes
// on by force.
func TestUpgradeUnnamed(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	binary := buildServer(t)
	s := startUpgradable(t, binary, []string{"SESSION_API_KEY=k"}, user...)
	sent := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/v1/actions", strings.NewReader(`{"action":{"action":"exec","args":{"command":"echo a; while [ ! -e go ]; do sleep 0.01; done; echo b"}}}`))
		if err != nil {
			sent <- err
			return
		}
		req.Header.Set(api.KeyHeader, "k")
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		sent <- err
	}()
	var list api.RecordedActions
	for len(list.Actions) == 0 || list.Actions[0].OutputBytes == 0 {
		_, answer := s.do("GET", "/v1/actions", nil)
		if err := json.Unmarshal([]byte(answer), &list); err != nil {
			t.Fatal(err)
		}
	}
	id := list.Actions[0].ID
	if status, _, answer := s.upgrade(binary, "wait=0"); status != http.StatusConflict || !strings.Contains(answer, id) {
		t.Errorf("got %d %s", status, answer)
	}
	status, u, answer := s.upgrade(binary, "wait=0&force=true")
	if status != http.StatusOK || len(u.Unknown)+len(u.Ended) > 0 {
		t.Errorf("by force: got %d %s", status, answer)
	}
	if err := <-sent; err == nil || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("its caller: %v", err)
	}
	write(t, filepath.Join(s.work, "go"), nil)
	s.ends(id, "a\nb\n", map[string]any{"exit_code": 0})
}

// Commands of runs, and those that wait for their turn, go on over upgrades as if there were none.
func TestUpgradeRuns(t *testing.T) {
	t.Parallel()
	user := otherUser(t)
	binary := buildServer(t)
	s := startUpgradable(t, binary, []string{"SESSION_API_KEY=k"}, user...)
	c := s.connect()
	until := func(file string) string { return "while [ ! -e " + s.work + "/" + file + " ]; do sleep 0.01; done; " }
	run := func(id, session string, args map[string]any) {
		args["session"] = session
		s.act("run", args, "Idempotency-Key", id, "Prefer", "respond-async")
	}
	sessions := []string{"flood", "queue", "timed", "silent", "cancelled", "typed", "exits", "event"}
	for _, session := range sessions { // the limits below include the start of a shell
		s.act("run", map[string]any{"command": "X=" + session, "session": session})
	}
	const limit = 100_000
	run("flood", "flood", map[string]any{"command": fmt.Sprintf("stty -opost; seq %d; %s echo $X; (exit 3)", limit, until("flooded")), "blocking": true})
	run("first", "queue", map[string]any{"command": until("queue") + "echo 1 >> order", "blocking": true})
	for i := 2; i < 6; i++ {
		run(fmt.Sprint("queued", i), "queue", map[string]any{"command": fmt.Sprintf("echo %d >> order; echo $X", i)})
	}
	run("timed", "timed", map[string]any{"command": until("never"), "timeout": 4.0, "blocking": true})
	run("silent", "silent", map[string]any{"command": until("never")})
	run("cancelled", "cancelled", map[string]any{"command": until("never"), "blocking": true})
	run("typed", "typed", map[string]any{"command": "read -p 'Name: ' y; echo \"$y typed\"", "blocking": true})
	run("exits", "exits", map[string]any{"command": until("exits") + "exit 7", "blocking": true})
	event := `{"action":{"action":"run","id":7,"timestamp":"2026-11-23T00:00:00","args":{"command":"` + until("event") + `echo event","blocking":true},"session":"event"}}`
	post := func() (content string, err error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sandbox/execute_action", strings.NewReader(event))
		if err != nil {
			return "", err
		}
		req.Header.Set(api.KeyHeader, "k")
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var o observed
		err = json.NewDecoder(resp.Body).Decode(&o)
		return o.Content, err
	}
	cut := make(chan error, 1)
	go func() {
		_, err := post()
		cut <- err
	}()
	for { // until the event runs
		var page api.RecordedActions
		_, answer := s.do("GET", "/v1/actions?session=event&state=running", nil)
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			t.Fatal(err)
		}
		if len(page.Actions) > 0 {
			break
		}
	}

	var followed bytes.Buffer
	var following sync.WaitGroup
	following.Go(func() { // by a client that is cut each time
		o, err := c.Follow(t.Context(), "flood", func(o api.Output) error {
			if o.Missed != 0 || o.Offset != int64(followed.Len()) {
				t.Errorf("%d bytes at %d behind %d, and %d missed", len(o.Data), o.Offset, followed.Len(), o.Missed)
			}
			followed.Write(o.Data)
			return nil
		})
		if run, ok := o.(api.RunObservation); err != nil || !ok || run.Metadata.ExitCode != 3 {
			t.Errorf("followed: got %+v, %v", o, err)
		}
	})
	for range 3 {
		s.refused()
		s.to(binary)
	}
	if err := <-cut; err == nil {
		t.Error("the event was answered")
	}
	write(t, filepath.Join(s.work, "event"), nil)
	if content, err := post(); err != nil || content != "event" {
		t.Errorf("the event again: got %q, %v", content, err)
	}
	write(t, filepath.Join(s.work, "flooded"), nil)
	following.Wait()
	s.want("the flood", digest(followed.String()), digest(seq(limit)+"flood\n"))
	write(t, filepath.Join(s.work, "queue"), nil)
	for i := 2; i < 6; i++ {
		s.ends(fmt.Sprint("queued", i), "queue", nil)
	}
	s.want("the order", s.run("cat order"), "1\n2\n3\n4\n5")
	s.act("run", map[string]any{"command": "me", "is_input": true, "session": "typed", "timeout": 60})
	s.ends("typed", "Name: me\nme typed", nil)
	if status, answer := s.do("DELETE", "/v1/actions/cancelled?wait=30", nil); status != http.StatusOK || !strings.Contains(answer, "cancelled by a request, with Ctrl-C") {
		t.Errorf("cancel: %d %s", status, answer)
	}
	s.want("the shell of a cancelled command", s.act("run", map[string]any{"command": "echo $X", "session": "cancelled"}), "cancelled")
	for id, want := range map[string]struct {
		suffix string
		least  time.Duration
	}{"timed": {"timed out after 4.0 seconds", 4 * time.Second}, "silent": {"no new output after 10 seconds", 10 * time.Second}} {
		a, _ := s.recorded(id, 60)
		if a.State != api.StateDone || !strings.Contains(string(a.Observation), want.suffix) || a.End.Sub(a.Begin) < want.least {
			t.Errorf("%s: %s after %v: %s", id, a.State, a.End.Sub(a.Begin), a.Observation)
		}
	}
	write(t, filepath.Join(s.work, "exits"), nil)
	if a, _ := s.recorded("exits", 60); a.State != api.StateDone || !strings.Contains(string(a.Observation), `"exit_code":7`) {
		t.Errorf("the end of the shell: %s %s", a.State, a.Observation)
	}
	s.want("the next shell", s.act("run", map[string]any{"command": "echo lives", "session": "exits"}), "lives")
}
