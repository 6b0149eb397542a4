package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
)

var (
	chaosActions = flag.Int("chaos.actions", 300, "actions of TestChaos")
	chaosKills   = flag.Int("chaos.kills", 4, "how often TestChaos kills the server")
	chaosSeed    = flag.Uint64("chaos.seed", 0, "the seed of TestChaos; 0 takes one from the clock")
)

// Actions of all kinds that append their ids to files, by clients whose connections
// are cut, stalled, truncated and repeated, on a server that is killed: none runs twice,
// each that was acknowledged ran once with all its output, what is not known is said to be
// unknown, the commands of a session ran in the order of their numbers, and nothing is left behind. The long run:
//
//	go test ./cmd/server -run TestChaos -v -timeout 2h -chaos.actions 10000 -chaos.kills 50
func TestChaos(t *testing.T) {
	t.Parallel()
	c := startChaos(t)
	begun := time.Now()
	var killer, workers sync.WaitGroup
	killer.Go(c.killNowAndThen)
	next := atomic.Int64{}
	for range 6 {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(c.actions) || t.Failed() {
					return
				}
				a := c.actions[i]
				a.told = c.perform(a)
				c.finished <- struct{}{}
			}
		})
	}
	workers.Wait()
	close(c.finished)
	killer.Wait()
	c.proxy.close()
	c.report(time.Since(begun))
	c.quiet()
	c.checkRuns()
	c.checkJournal()
	c.checkFollowing()
	c.checkNothingLeft()
}

// verdict is what a client was told of an action.
type verdict string

const (
	toldDone    verdict = "done"
	toldUnknown verdict = "unknown"
	toldRefused verdict = "refused"
	toldNothing verdict = "nothing" // the client gave up
)

// chaosAction is one action and what its client learned.
type chaosAction struct {
	word    string // what it appends
	kind    string // run, exec, edit, write, cell, put
	via     string // how it is sent
	session string
	lines   int // that it prints
	pause   time.Duration
	event   int  // of the protocol of OpenHands
	own     bool // the Go client makes the id
	cancels bool // it is cancelled at some moment
	random  *mathrand.Rand

	told verdict
	id   string // its id, "" where the client does not know it
	why  string
}

type chaos struct {
	*testing.T
	seed          uint64
	binary, state string
	dir, run      string // of files, of sockets
	mark          string // in the environment of every process
	actions       []*chaosAction
	finished      chan struct{}
	client        *client.Client
	faulty, plain *http.Client
	proxy         *faultProxy

	dead atomic.Bool // it cannot be started

	mu     sync.Mutex
	server *exec.Cmd
	kills  int

	ordered int // commands whose order was checked
}

func startChaos(t *testing.T) *chaos {
	t.Helper()
	c := &chaos{T: t, seed: *chaosSeed, binary: buildServer(t), state: t.TempDir(), dir: t.TempDir(), finished: make(chan struct{}, *chaosActions), mark: "ACTIOND_CHAOS=" + rand.Text()}
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -chaos.seed %d -chaos.actions %d -chaos.kills %d", c.seed, *chaosActions, *chaosKills)
	var err error
	if c.run, err = os.MkdirTemp("", "c"); err != nil { //nolint:usetesting // the path of a socket is short
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.run) })
	if err := os.Mkdir(c.temps(), 0o700); err != nil {
		t.Fatal(err)
	}
	kinds := []string{"run", "run", "run", "exec", "exec", "exec", "edit", "write", "put"}
	cells := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import ipykernel").Run() == nil
	for i := range *chaosActions {
		random := mathrand.New(mathrand.NewPCG(c.seed, uint64(i)))
		a := &chaosAction{word: fmt.Sprintf("id-%d", i), event: i + 1, random: random}
		a.kind = kinds[random.IntN(len(kinds))]
		if cells && random.IntN(25) == 0 {
			a.kind = "cell"
		}
		a.via = []string{"do", "do", "stream", "stream", "openhands", "openhands", "post", "async"}[random.IntN(8)]
		switch {
		case a.kind == "put":
			a.via = "put"
		case a.kind == "run" && random.IntN(5) == 0:
			a.via = "tool"
		}
		a.session = fmt.Sprintf("s%d", random.IntN(3))
		a.own = random.IntN(4) == 0
		a.cancels = random.IntN(8) == 0 && a.via != "openhands" && (a.kind == "run" || a.kind == "exec" || a.kind == "cell")
		a.own = a.own && !a.cancels
		a.lines = random.IntN(1 << random.IntN(12))
		if a.kind == "exec" && random.IntN(60) == 0 {
			a.lines = 300_000
		}
		if random.IntN(2) == 0 {
			a.pause = time.Duration(random.IntN(30)) * time.Millisecond
		}
		c.actions = append(c.actions, a)
	}
	write(t, filepath.Join(c.dir, "edited"), []byte("END\n"))
	c.plain = unixClient(c.socket())
	c.faulty = unixClient(filepath.Join(c.run, "p"))
	if c.client, err = client.New(client.Config{BaseURL: "unix://" + filepath.Join(c.run, "p")}); err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(c.kill)
	t.Cleanup(func() {
		if said, _ := os.ReadFile(c.log()); t.Failed() {
			t.Logf("the servers said at last:\n%s", said[max(0, len(said)-4000):])
		}
	})
	c.proxy = startFaultProxy(t, filepath.Join(c.run, "p"), c.socket(), c.seed)
	t.Cleanup(c.client.Close)
	return c
}

// temps is where engines make temporary files.
func (c *chaos) temps() string { return filepath.Join(c.run, "t") }

func (c *chaos) socket() string { return filepath.Join(c.run, "s") }

func (c *chaos) log() string { return filepath.Join(c.run, "log") }

func unixClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

// start starts a server and waits until it answers.
func (c *chaos) start() {
	cmd := exec.CommandContext(context.WithoutCancel(c.Context()), c.binary, "--addr", "unix:"+c.socket(), "--working-dir", c.dir,
		"--state-dir", c.state, "--no-enable-browser", "--journal-actions", "100000")
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + c.run, "TMPDIR=" + c.temps(), "LANG=C.UTF-8", c.mark}
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Error(err)
		return
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		c.Error(err)
		return
	}
	c.mu.Lock()
	c.server = cmd
	c.mu.Unlock()
	for until := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		resp, err := c.plain.Get("http://sandbox/alive")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(until) {
			c.Errorf("the server is not ready: %v", err)
			c.dead.Store(true)
			return
		}
	}
}

// kill kills the server alone: what it started has to end by itself.
func (c *chaos) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.ProcessState == nil {
		_ = c.server.Process.Kill()
		_ = c.server.Wait() // killed
	}
}

// killNowAndThen kills the server at random moments, spread over all actions.
func (c *chaos) killNowAndThen() {
	random := mathrand.New(mathrand.NewPCG(c.seed, 1<<63))
	every := max(len(c.actions)/(*chaosKills+1), 1)
	done := 0
	for range c.finished {
		if done++; done%every != 0 || c.kills == *chaosKills {
			continue
		}
		time.Sleep(time.Duration(random.IntN(50_000)) * time.Microsecond)
		pid := c.stubborn()
		c.kill()
		c.kills++
		c.start()
		if pid > 0 && runs(pid) {
			c.Errorf("the program %d lives on after kill %d", pid, c.kills)
		}
	}
}

// stubborn starts a program that only SIGKILL ends, and returns its number; 0 where the server has no place for it.
func (c *chaos) stubborn() (pid int) {
	path := filepath.Join(c.run, fmt.Sprint("stubborn-", c.kills))
	action := api.ExecAction{Command: "trap '' HUP INT TERM; echo $$ >" + path + "; while :; do sleep 1; done"}
	body, err := api.EncodeRequest(api.Request{Action: action, Key: filepath.Base(path)})
	if err != nil {
		c.Error(err)
		return 0
	}
	r, _ := http.NewRequest(http.MethodPost, "http://sandbox/v1/actions", bytes.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Prefer": {"respond-async, wait=0"}}
	resp, err := c.plain.Do(r)
	if err != nil {
		c.Error(err)
		return 0
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted {
		pid = pidIn(c.T, path)
	}
	return pid
}

// file is what an action appends its word to: the engines have files of their own, as a
// shell that appends to a file does not wait for an edit of it.
func (a *chaosAction) file(c *chaos) string {
	switch a.kind {
	case "edit":
		return filepath.Join(c.dir, "edited")
	case "write", "put":
		return filepath.Join(c.dir, a.word)
	}
	return filepath.Join(c.dir, "ran")
}

func (a *chaosAction) action(c *chaos) api.Action {
	switch a.kind {
	case "exec":
		return api.ExecAction{Command: a.line(c) + "; echo err >&2"}
	case "edit":
		return api.EditAction{Path: a.file(c), Command: "str_replace", OldStr: new("END"), NewStr: new(a.word + "\nEND")}
	case "write":
		return api.WriteAction{Path: a.file(c), Content: a.want(), End: -1, Exact: new(true)}
	case "cell":
		return api.IPythonAction{Code: fmt.Sprintf("print(%q, file=open(%q, 'a'), flush=True)\nfor i in range(%d): print(i + 1)", a.word, a.file(c), a.lines)}
	}
	return api.RunAction{Command: a.line(c), Blocking: true}
}

// line is the command of a shell.
func (a *chaosAction) line(c *chaos) string {
	return fmt.Sprintf("echo %s >>%s; sleep %.3f; seq 1 %d", a.word, a.file(c), a.pause.Seconds(), a.lines)
}

// want is what the action prints, or writes, with plain line ends.
func (a *chaosAction) want() string {
	var b strings.Builder
	for i := range a.lines {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// request is the action as the Go client takes it.
func (a *chaosAction) request(c *chaos) api.Request {
	r := api.Request{Action: a.action(c), Session: a.session, Key: a.word, Timeout: new(120.0)}
	if a.kind == "cell" {
		r.Session = "kernel"
	}
	return r
}

// perform has an action carried out, however often its connection breaks.
func (c *chaos) perform(a *chaosAction) verdict {
	ctx, cancel := context.WithTimeout(c.Context(), 3*time.Minute)
	defer cancel()
	if a.cancels {
		after := time.Duration(a.random.IntN(60)) * time.Millisecond
		defer waitFor(func() { c.cancel(ctx, a.word, after) })()
	}
	for ctx.Err() == nil && !c.dead.Load() {
		var told verdict
		switch a.via {
		case "do", "stream":
			told = c.byClient(ctx, a)
		default:
			told = c.byPosts(ctx, a)
		}
		if told != "" {
			return told
		}
		time.Sleep(time.Duration(a.random.IntN(20)) * time.Millisecond)
	}
	c.Errorf("%s (%s by %s): nothing was told in three minutes", a.word, a.kind, a.via)
	return toldNothing
}

// waitFor starts work, and returns what waits for its end.
func waitFor(work func()) (wait func()) {
	var group sync.WaitGroup
	group.Go(work)
	return group.Wait
}

// cancel cancels an action after a while, as soon as the server knows it.
func (c *chaos) cancel(ctx context.Context, id string, after time.Duration) {
	time.Sleep(after)
	for range 20 {
		status, _, _ := c.exchange(ctx, http.MethodDelete, "/v1/actions/"+id+"?wait=0", http.Header{}, nil)
		if status == http.StatusOK || status == http.StatusAccepted {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// byClient sends an action by the Go client, which knows how to ask again.
func (c *chaos) byClient(ctx context.Context, a *chaosAction) verdict {
	r := a.request(c)
	a.id = r.Key
	if a.own {
		r.Key, a.id = "", ""
	}
	if a.random.IntN(4) == 0 && !a.own { // a caller that loses patience
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(a.random.IntN(30))*time.Millisecond)
		defer cancel()
	}
	var o api.Observation
	var err error
	printed := map[string][]byte{}
	if a.via == "do" {
		o, err = c.client.Do(ctx, r)
	} else {
		o, err = c.client.Stream(ctx, r, func(out api.Output) error {
			if int64(len(printed[out.Stream])) != out.Offset || out.Missed > 0 {
				c.Errorf("%s (%s): %d bytes at %d behind %d, %d missed", a.word, a.kind, len(out.Data), out.Offset, len(printed[out.Stream]), out.Missed)
			}
			printed[out.Stream] = append(printed[out.Stream], out.Data...)
			return nil
		})
	}
	switch failed, refused := errors.AsType[*client.StatusError](err); {
	case refused && (failed.Status == http.StatusTooManyRequests || failed.Status == http.StatusServiceUnavailable || ctx.Err() != nil):
		return ""
	case refused:
		c.Errorf("%s (%s by %s): %v", a.word, a.kind, a.via, err)
		return toldNothing
	case err != nil && !errors.Is(err, client.ErrUnknown):
		if a.own {
			a.why = err.Error()
			return toldNothing // it gave up, and no other client knows the id
		}
		return ""
	}
	told := c.judge(a, o)
	if a.via == "stream" && told != toldRefused {
		c.checkStream(a, told, printed)
	}
	return told
}

// checkStream compares what a stream brought with what the action prints.
func (c *chaos) checkStream(a *chaosAction, told verdict, printed map[string][]byte) {
	want := map[string]string{}
	switch a.kind {
	case "run":
		want[""] = strings.ReplaceAll(a.want(), "\n", "\r\n")
	case "exec":
		want[api.StreamStdout], want[api.StreamStderr] = a.want(), "err\n"
	case "cell":
		want[""] = a.want()
	}
	for stream, got := range printed {
		if a.cancels && a.kind == "cell" {
			continue
		}
		if a.cancels {
			got = []byte(untilKey(string(got)))
		}
		if !strings.HasPrefix(want[stream], string(got)) {
			c.Errorf("%s (%s, %s): stream %q brought %s", a.word, a.kind, told, stream, excerpt(string(got), want[stream]))
		}
	}
	for stream, want := range want {
		if told == toldDone && len(printed[stream]) != len(want) && !a.cancels {
			c.Errorf("%s (%s): stream %q brought %d of %d bytes", a.word, a.kind, stream, len(printed[stream]), len(want))
		}
	}
}

// untilKey cuts what a cancelled command printed where the key that ended it was echoed.
func untilKey(printed string) string {
	before, _, _ := strings.Cut(printed, "^C")
	return before
}

// excerpt shows where two texts differ.
func excerpt(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	from := max(i-20, 0)
	return fmt.Sprintf("%d bytes, %q from %d on, want %d bytes, %q", len(got), got[from:min(i+60, len(got))], from, len(want), want[from:min(i+60, len(want))])
}

// byPosts sends an action by plain posts: the same bytes again after each cut.
func (c *chaos) byPosts(ctx context.Context, a *chaosAction) verdict {
	r := a.request(c)
	path, header := "/v1/actions", http.Header{"Content-Type": {"application/json"}}
	switch a.via {
	case "openhands": // the event as its client sends it, which knows no sessions
		path, r.Session, r.Key = "/execute_action", "", ""
		r.ID, r.Timestamp = int64(a.event), "2025-01-01T00:00:00.000000"
	case "async":
		header.Set("Prefer", "respond-async, wait=0")
	}
	body, err := api.EncodeRequest(r)
	method := http.MethodPost
	switch a.via {
	case "openhands":
		body = bytes.Replace(body, []byte(`"action":{`), []byte(`"action":{"source":"agent","message":"Running command",`), 1)
	case "tool":
		path = "/v1/tools/call"
		header.Set(api.IdentityHeader, a.word)
		body, err = api.EncodeToolCall(api.ToolCall{Name: "execute_bash", Arguments: fmt.Sprintf(`{"command": %q}`, a.line(c)), Session: a.session, Timeout: r.Timeout})
	case "put": // a second one would be refused
		method, path = http.MethodPut, "/v1/files?"+url.Values{"path": {a.file(c)}}.Encode()
		header = http.Header{api.IdentityHeader: {a.word}, "If-None-Match": {"*"}}
		body = []byte(a.want())
	}
	if err != nil {
		c.Error(err)
		return toldNothing
	}
	status, got, answer := c.exchange(ctx, method, path, header, body)
	if status == http.StatusAccepted {
		a.id = r.Key
		status, answer = c.poll(ctx, a)
	}
	switch {
	case status == 0, cutShort(status, answer), status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, status == http.StatusNotFound:
		return ""
	case status != http.StatusOK && status != http.StatusCreated:
		c.Errorf("%s (%s by %s): got %d %.300s", a.word, a.kind, a.via, status, answer)
		return toldNothing
	}
	if id := got.Get(api.ActionHeader); id != "" {
		a.id = id
	}
	var o api.Observation
	if a.via == "tool" {
		var called api.ToolAnswer
		called, err = api.DecodeToolAnswer(answer)
		o = called.Observation
	} else {
		o, err = api.DecodeObservation(answer)
	}
	if err != nil {
		c.Errorf("%s (%s by %s): %v: %.300s", a.word, a.kind, a.via, err, answer)
		return toldNothing
	}
	return c.judge(a, o)
}

// cutShort reports whether an answer refuses a request whose end did not come. The answer
// of net/http has no length, and may be cut itself.
func cutShort(status int, answer []byte) bool {
	return status == httpserver.ClientGone ||
		status == http.StatusBadRequest && (strings.HasPrefix("400 Bad Request", string(answer)) || bytes.Contains(answer, []byte("ended too early")))
}

// poll waits for the end of an action that goes on by itself.
func (c *chaos) poll(ctx context.Context, a *chaosAction) (status int, observation []byte) {
	for ctx.Err() == nil {
		status, _, body := c.exchange(ctx, http.MethodGet, "/v1/actions/"+a.id+"?wait=1", nil, nil)
		var record api.RecordedAction
		switch {
		case status == 0:
			time.Sleep(5 * time.Millisecond)
			continue
		case status != http.StatusOK:
			return status, body // 404: it was only reserved when the server died
		case json.Unmarshal(body, &record) != nil:
			c.Errorf("%s: got %.300s", a.word, body)
			return status, body
		case len(record.Observation) > 0:
			return status, record.Observation
		}
	}
	return 0, nil
}

// exchange sends a request through the proxy; the status is 0 where the connection broke.
func (c *chaos) exchange(ctx context.Context, method, path string, header http.Header, body []byte) (status int, got http.Header, answer []byte) {
	r, err := http.NewRequestWithContext(ctx, method, "http://sandbox"+path, bytes.NewReader(body))
	if err != nil {
		c.Error(err)
		return 0, nil, nil
	}
	r.Header = header.Clone()
	resp, err := c.faulty.Do(r)
	if err != nil {
		return 0, nil, nil
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, nil
	}
	return resp.StatusCode, resp.Header, answer
}

const (
	unknownWords   = "the result is unknown:"
	refusedWords   = "The action did not run:"
	cancelledWords = "The action was cancelled before it began"
)

// judge says what an observation tells, and compares its output.
func (c *chaos) judge(a *chaosAction, o api.Observation) verdict {
	want, got, ended := a.want(), "", false
	switch o := o.(type) {
	case api.ErrorObservation:
		switch {
		case strings.HasPrefix(o.Content, unknownWords):
			_, printed, _ := strings.Cut(o.Content, "What it printed:\n")
			printed, _, _ = strings.Cut(printed, "\n[... more is at ")
			if a.kind == "exec" {
				printed = strings.Replace(printed, "err\n", "", 1)
			}
			if a.cancels {
				printed = untilKey(printed)
			}
			if !strings.HasPrefix(want, printed) {
				c.Errorf("%s (%s by %s) is unknown with %s", a.word, a.kind, a.via, excerpt(printed, want))
			}
			return toldUnknown
		case strings.HasPrefix(o.Content, refusedWords), a.cancels && strings.HasPrefix(o.Content, cancelledWords):
			return toldRefused
		}
	case api.RunObservation:
		got, ended = o.Content, o.Outcome == api.OutcomeSucceeded && o.Metadata.ExitCode == 0
		want = strings.TrimSuffix(want, "\n")
	case api.ExecObservation:
		got, ended = o.Stdout, o.ExitCode != nil && *o.ExitCode == 0 && o.Stderr == "err\n" && o.StdoutTotal == int64(len(want))
		if o.Truncated {
			got = want
		}
	case api.EditObservation, api.WriteObservation, api.FileObservation:
		got, ended = want, true
	case api.IPythonObservation:
		got, _, _ = strings.Cut(o.Content, "[Jupyter current working directory")
		got, want = strings.TrimSpace(got), strings.TrimSpace(want)
		if want == "" {
			want = "[Code executed successfully with no output]"
		}
		ended = o.Outcome == api.OutcomeSucceeded && o.Failure == ""
	default:
	}
	if a.cancels && (a.kind == "cell" || strings.HasPrefix(want, strings.TrimRight(untilKey(got), "\n"))) {
		return toldDone // a cell's traceback may follow
	}
	if !ended || got != want {
		c.Errorf("%s (%s by %s): got %.400s, output %s", a.word, a.kind, a.via, fmt.Sprintf("%+v", o), excerpt(got, want))
	}
	return toldDone
}

// ask reads JSON from the server without the proxy.
func (c *chaos) ask(path string, answer any) int {
	resp, err := c.plain.Get("http://sandbox" + path)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK {
		switch answer := answer.(type) {
		case *[]byte:
			*answer = body
		default:
			err = json.Unmarshal(body, answer)
		}
	}
	if err != nil {
		c.Fatalf("%s: %v: %.300s", path, err, body)
	}
	return resp.StatusCode
}

// quiet waits until no action is under way.
func (c *chaos) quiet() {
	c.Helper()
	for _, state := range []string{api.StateReserved, api.StateRunning} {
		c.eventually("actions are "+state, func() string {
			var page api.RecordedActions
			c.ask("/v1/actions?state="+state, &page)
			if len(page.Actions) == 0 {
				return ""
			}
			return fmt.Sprintf("%+v", page.Actions[0])
		})
	}
}

// eventually waits until a function returns "".
func (c *chaos) eventually(what string, left func() string) {
	c.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := left()
		if got == "" {
			return
		}
		if time.Now().After(until) {
			c.Errorf("%s: %s", what, got)
			return
		}
	}
}

// checkRuns compares the files with what the clients were told.
func (c *chaos) checkRuns() {
	counts := map[string]int{}
	for _, name := range []string{"ran", "edited"} {
		data, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			c.Error(err)
		}
		for word := range strings.FieldsSeq(string(data)) {
			counts[word]++
		}
	}
	if counts["END"] != 1 {
		c.Error("the edited file lost its end")
	}
	delete(counts, "END")
	for _, a := range c.actions {
		n := counts[a.word]
		delete(counts, a.word)
		if a.kind == "write" || a.kind == "put" {
			data, err := os.ReadFile(a.file(c))
			if err == nil && string(data) == a.want() {
				n = 1
			} else if err == nil {
				c.Errorf("%s: the file is torn", a.word)
			}
			_ = os.Remove(a.file(c))
		}
		if n > 1 || a.told == toldDone && n != 1 && !a.cancels || a.told == toldRefused && n != 0 {
			c.Errorf("%s (%s by %s) ran %d times, and its client was told: %s", a.word, a.kind, a.via, n, a.told)
		}
	}
	for word := range counts {
		c.Errorf("%q ran, which was never sent", word)
	}
}

// checkJournal asks for every action again, and compares the numbers of a session's commands with the order in
// which they ran.
func (c *chaos) checkJournal() {
	records := map[string]api.RecordedAction{}
	defer func() { c.checkOrder(records) }()
	for _, a := range c.actions {
		if a.id == "" {
			continue
		}
		var record api.RecordedAction
		status := c.ask("/v1/actions/"+url.PathEscape(a.id), &record)
		records[a.word] = record
		if a.cancels && a.told == toldRefused && record.State == api.StateCancelled {
			continue
		}
		if status != http.StatusOK || record.State != string(a.told) {
			c.Errorf("%s (%s by %s) was told to be %s, and is %d %q", a.word, a.kind, a.via, a.told, status, record.State)
		}
	}
}

// checkOrder compares the numbers of the commands of each session with the order in which they ran.
func (c *chaos) checkOrder(records map[string]api.RecordedAction) {
	data, err := os.ReadFile(filepath.Join(c.dir, "ran"))
	if err != nil {
		c.Error(err)
	}
	last := map[string]api.RecordedAction{}
	for word := range strings.FieldsSeq(string(data)) {
		record, ok := records[word]
		if !ok || record.Kind != "run" {
			continue
		}
		if before := last[record.Session]; before.N > record.N {
			c.Errorf("session %s: %s, number %d, ran behind %s, number %d", record.Session, word, record.N, before.ID, before.N)
		}
		last[record.Session] = record
		c.ordered++
	}
	c.Logf("%d commands of %d sessions ran in the order of their numbers", c.ordered, len(last))
}

// checkFollowing reads the events of some actions again, from random ones on.
func (c *chaos) checkFollowing() {
	for _, a := range c.actions {
		if a.id == "" || a.told != toldDone || a.cancels || a.kind != "run" && a.kind != "exec" || a.random.IntN(10) > 0 && a.lines < 10_000 {
			continue
		}
		var all, part, raw []byte
		path := "/v1/actions/" + url.PathEscape(a.id)
		c.ask(path+"/events?after=0", &all)
		lines := bytes.SplitAfter(all, []byte("\n"))
		after := a.random.IntN(max(len(lines)-2, 1))
		c.ask(path+"/events?after="+strconv.Itoa(after), &part)
		if want := bytes.Join(lines[after:], nil); !bytes.Equal(part, want) {
			c.Errorf("%s: the events behind %d differ: got %.300s, want %.300s", a.word, after, part, want)
		}
		want := a.want()
		query := "/output?stream=stdout&offset="
		if a.kind == "run" {
			query, want = "/output?offset=", strings.ReplaceAll(want, "\n", "\r\n")
		}
		for offset := a.random.IntN(len(want) + 1); offset < len(want); offset += len(raw) {
			if c.ask(path+query+strconv.Itoa(offset), &raw); len(raw) == 0 || !strings.HasPrefix(want[offset:], string(raw)) {
				c.Errorf("%s: from %d on: %s", a.word, offset, excerpt(string(raw), want[offset:]))
				break
			}
		}
	}
}

// checkNothingLeft ends the sessions and then the server.
func (c *chaos) checkNothingLeft() {
	var list api.SessionList
	c.ask("/v1/sessions", &list)
	for _, s := range list.Sessions {
		r, _ := http.NewRequest(http.MethodDelete, "http://sandbox/v1/sessions/"+s.Name, nil)
		if resp, err := c.plain.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	c.plain.CloseIdleConnections()
	got := map[string]int{}
	c.eventually("descriptors are left", func() string {
		got = descriptors(c.T, c.server.Process.Pid)
		return surplus(got, numbers.ReplaceAllString(c.state, "N")+"/")
	})
	_ = c.server.Process.Signal(syscall.SIGTERM)
	if err := c.server.Wait(); err != nil {
		c.Errorf("the server ended with %v", err)
	}
	c.eventually("processes are left", c.processes)
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		c.Error(err)
	}
	for _, e := range entries {
		if e.Name() != "ran" && e.Name() != "edited" {
			c.Errorf("the file %s is left", e.Name())
		}
	}
	c.checkTemps()
	c.checkState()
}

// checkTemps looks for temporary files. A server that is killed after it made a kernel's
// directory and before it started the kernel leaves that directory, without sockets.
func (c *chaos) checkTemps() {
	left, err := filepath.Glob(filepath.Join(c.temps(), "*"))
	if err != nil {
		c.Error(err)
	}
	for _, name := range left {
		entries, err := os.ReadDir(name)
		if err != nil || len(entries) > 1 || len(entries) == 1 && entries[0].Name() != "connection.json" {
			c.Errorf("%s is left, with %v, %v", name, entries, err)
		}
	}
}

// checkState looks for temporary files in the state directory, and opens the journal.
func (c *chaos) checkState() {
	ledger, left, err := files.OpenLedger(c.state, func(f func() error) error { return f() })
	if err != nil || len(left) > 0 {
		c.Errorf("temporary files: %v, %v", left, err)
	}
	if err := ledger.Close(); err != nil {
		c.Error(err)
	}
	j, err := journal.Open(journal.Config{Dir: filepath.Join(c.state, "journal"), MaxActions: 100_000})
	if err != nil {
		c.Fatal(err)
	}
	defer j.Close()
	stats := j.Stats()
	if problem := j.Problem(); problem != "" || stats.States[journal.Running]+stats.States[journal.Reserved] > 0 {
		c.Errorf("the journal: %q, %v", problem, stats)
	}
	var size int64
	entries, _ := os.ReadDir(filepath.Join(c.state, "journal"))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !slices.Contains([]string{"lock", "forgotten", "marks"}, e.Name()) {
			size += info.Size()
		}
	}
	if size != stats.Bytes {
		c.Errorf("the files of the journal have %d bytes, of which it knows %d", size, stats.Bytes)
	}
}

var numbers = regexp.MustCompile(`[0-9a-f]{8,}|\d+`)

// descriptors counts the open files of a process by their kinds.
func descriptors(t *testing.T, pid int) map[string]int {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			kinds[numbers.ReplaceAllString(target, "N")]++
		}
	}
	return kinds
}

// surplus names what is open beyond what an idle server has. A file or a pipe of an
// action, a shell or a kernel is not among it.
func surplus(kinds map[string]int, state string) string {
	allowed := map[string]int{
		"/dev/null": 2, "log": 1, "N": 2,
		"mountinfo": 1, "loadavg": 1, "cpu.max": 1, "cpu.cfs_period_us": 1, "cpu.cfs_quota_us": 1,
		"anon_inode:[eventfd]": 1, "anon_inode:[eventpoll]": 1, "anon_inode:inotify": 2, // of the workspace, and of the directories of programs
		"socket:[N]": 1, // it listens
	}
	var left []string
	for kind, n := range kinds {
		name := kind
		if strings.HasPrefix(kind, "/") && kind != "/dev/null" {
			name = filepath.Base(kind)
		}
		if strings.HasPrefix(kind, state) && !strings.HasPrefix(name, "out-") {
			allowed[name] = max(allowed[name], 1) // a file or a directory of the server's own
		}
		if n > allowed[name] {
			left = append(left, fmt.Sprintf("%d %s", n, kind))
		}
	}
	slices.Sort(left)
	return strings.Join(left, ", ")
}

// processes lists what lives with the mark in its environment.
func (c *chaos) processes() string {
	var left []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		environment, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), c.mark) {
			command, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			left = append(left, fmt.Sprintf("%s %q", e.Name(), command))
		}
	}
	return strings.Join(left, ", ")
}

// report prints what the run was.
func (c *chaos) report(took time.Duration) {
	counts := map[string]int{}
	for _, a := range c.actions {
		counts[a.kind+" "+string(a.told)]++
		counts["told "+string(a.told)]++
	}
	c.Logf("%d actions, %d kills, %d connections in %v: %v", len(c.actions), c.kills, c.proxy.made, took.Round(time.Millisecond), counts)
}
