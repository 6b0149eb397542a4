package front_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/actiond/actiond/egress/front"
	"github.com/actiond/actiond/internal/testhelp"
)

// ways are connections to one host: by itself, through the local proxy and the egress proxy by a Unix
// socket, by TCP and a token, and by a name and the egress proxy.
func ways(b *testing.B) map[string]func() net.Conn {
	b.Helper()
	f := start(b, allowEcho, nil)
	f.echo(b, 443)
	f.mu.Lock()
	host, _, _ := strings.Cut(f.hosts["echo.example"], "=")
	f.mu.Unlock()
	at := f.at(b, "echo.example.", 443)
	to := func(address string) net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	through := func(proxy string) net.Conn {
		c := to(proxy)
		if a := send(b, c, connectTo("echo.example:443")); a.status != http.StatusOK {
			b.Fatalf("got %+v", a)
		}
		return c
	}
	byToken := start(b, allowEcho, nil)
	byToken.echo(b, 443)
	address, token, _ := byToken.overTCP(b, allowEcho)
	remote, err := front.Start(front.Config{Remote: address, Token: token, Address: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(remote.Close)
	return map[string]func() net.Conn{
		"direct": func() net.Conn { return to(host) },
		"name":   func() net.Conn { return to(at) },
		"proxy":  func() net.Conn { return through(f.Address().String()) },
		"token":  func() net.Conn { return through(remote.Address().String()) },
	}
}

// BenchmarkConnect connects and gets one byte back, each way in turn. It is to run with -benchtime
// 100x: the egress proxy lets a sandbox open 256 connections, and then 50 a second.
func BenchmarkConnect(b *testing.B) {
	all, took := ways(b), map[string][]time.Duration{}
	for b.Loop() {
		for way, dial := range all {
			begun := time.Now()
			c := dial()
			testhelp.Exchange(b, c, "x")
			took[way] = append(took[way], time.Since(begun))
			c.Close()
		}
	}
	b.ReportMetric(0, "ns/op") // of all ways
	for way, each := range took {
		slices.Sort(each)
		b.ReportMetric(float64(each[len(each)/2].Microseconds()), way+"-p50-µs")
	}
}

// BenchmarkThroughput sends bytes to a host, which sends them back.
func BenchmarkThroughput(b *testing.B) {
	const portion = 1 << 20
	for way, dial := range ways(b) {
		b.Run(way, func(b *testing.B) {
			c := dial()
			defer c.Close()
			b.SetBytes(portion)
			sent := make([]byte, portion)
			for b.Loop() {
				go func() { _, _ = c.Write(sent) }()
				if _, err := io.CopyN(io.Discard, c, portion); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkResolve looks a name up, with a policy of one rule and of a thousand.
func BenchmarkResolve(b *testing.B) {
	for _, rules := range []int{1, 1000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			var texts []string
			for i := range rules {
				texts = append(texts, fmt.Sprintf(`"n%d.example:%d"`, i, 1000+i))
			}
			f := start(b, `{"mode":"allowlist","allow":[`+strings.Join(texts, ",")+`]}`, nil)
			for b.Loop() {
				f.resolve(b, "n0.example.", dnsmessage.TypeA)
			}
		})
	}
}

// BenchmarkNamesMemory looks up as many names as there may be, with their listeners, and reports the
// memory that each takes of the server.
func BenchmarkNamesMemory(b *testing.B) {
	const many = 128
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	f := start(b, allowEcho, nil)
	f.at(b, "echo.example.", 443)
	before := inUse()
	for i := range many - 1 {
		f.at(b, fmt.Sprintf("n%d.example.", i), 443)
	}
	after := inUse()
	for b.Loop() { // there is nothing to repeat
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(after-before)/(many-1)/1024, "KiB/name")
}
