package executor_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// The agent's processes own the directory in which the server looks for a
// kernel's sockets, and put there links to another's, such as the
// server's own or the engine's. Where the agent is another user the server's
// rights must not help it: nothing is said there. Where it is the same user it
// could go there itself; it must learn nothing by sending the server.
func TestIPythonPlantedSocket(t *testing.T) {
	for name, plant := range map[string]string{
		"a link in a socket's place":      "os.symlink(victim + '/k-1', c['ip'] + '-1')",
		"a link in the directory's place": "os.rename(d, victim + '/old'); os.symlink(victim, d)",
		"a hard link in a socket's place": "os.link(victim + '/k-1', c['ip'] + '-1')",
	} {
		t.Run("another user's own, "+name, func(t *testing.T) { plantSocket(t, other(t), 0o600, plant) })
		t.Run("another user's for all, "+name, func(t *testing.T) { plantSocket(t, other(t), 0o666, plant) })
		t.Run("the same user's, "+name, func(t *testing.T) { plantSocket(t, nil, 0o600, plant) })
	}
}

func plantSocket(t *testing.T, u *identity.User, mode os.FileMode, plant string) {
	t.Helper()
	if _, err := os.Stat(debianPython); err != nil {
		t.Skip("there is no " + debianPython)
	}
	dir, victimDir := testhelp.PublicDir(t), testhelp.PublicDir(t)
	victim := listenAs(t, victimDir, mode)
	script := "#!" + debianPython + "\nimport json, os, sys\nvictim = '" + victimDir + "'\n" +
		"c = json.load(open(sys.argv[3])); d = os.path.dirname(sys.argv[3])\n" +
		"open('" + dir + "/key', 'w').write(c['key'])\n" +
		"try: " + plant + "\nexcept OSError: pass\n" + // the system may refuse the link
		"os.write(3, b'ready /planted\\n')\nimport time; time.sleep(300)\n"
	testhelp.WriteProgram(t, filepath.Join(dir, "python3"), script)
	t.Setenv("PATH", dir)
	e, _ := start(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t), Shell: "/bin/sh"})
	_ = cell(t, e, "", api.IPythonAction{Code: "1"}) // in another Python, if there is one
	if err := e.Close(); err != nil {
		t.Error(err)
	}

	key, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil || len(key) < 32 {
		t.Fatalf("the attack did not begin: %q, %v", key, err)
	}
	said := victim()
	if bytes.Contains(said, key) || len(said) > 0 && u != nil || len(said) > 64 {
		t.Errorf("the server said %q there", said)
	}
}

// listenAs listens on the sockets of a kernel as this process, and answers as
// HTTP does. What it returns ends that, and returns all that was said.
func listenAs(t *testing.T, dir string, mode os.FileMode) func() []byte {
	t.Helper()
	var said bytes.Buffer
	var mu sync.Mutex
	var serving sync.WaitGroup
	var listeners []net.Listener
	for i := range 5 {
		path := fmt.Sprintf("%s/k-%d", dir, i+1)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		serving.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"))
				got, _ := io.ReadAll(conn) // the server hangs up
				_ = conn.Close()
				mu.Lock()
				_, _ = said.Write(got)
				mu.Unlock()
			}
		})
	}
	return func() []byte {
		for _, l := range listeners {
			_ = l.Close()
		}
		serving.Wait()
		return said.Bytes()
	}
}
