package egress_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// ways are a connection to a host by itself, and through the proxy.
func ways(b *testing.B) map[string]func() net.Conn {
	b.Helper()
	f := start(b, `{"mode":"public"}`)
	f.Unlimit(id)
	return map[string]func() net.Conn{
		"direct": func() net.Conn {
			c, err := net.Dial("tcp", f.hosts[echoAddr])
			if err != nil {
				b.Fatal(err)
			}
			return c
		},
		"proxy": func() net.Conn {
			c, answer, body := f.connect(b, "echo.example:7")
			if answer.StatusCode != http.StatusOK {
				b.Fatal(answer.Status, body)
			}
			return c
		},
	}
}

// BenchmarkConnect connects and gets one byte back.
func BenchmarkConnect(b *testing.B) {
	for name, dial := range ways(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c := dial()
				testhelp.Exchange(b, c, "x")
				c.Close()
			}
		})
	}
}

// BenchmarkThroughput sends bytes to a host, which sends them back.
func BenchmarkThroughput(b *testing.B) {
	const portion = 1 << 20
	for name, dial := range ways(b) {
		b.Run(name, func(b *testing.B) {
			c := dial()
			defer c.Close()
			b.SetBytes(portion)
			sent := make([]byte, portion)
			for b.Loop() {
				go c.Write(sent)
				if _, err := io.CopyN(io.Discard, c, portion); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// clients reach a host by HTTPS, through a tunnel and intercepted.
func clients(b *testing.B, h http.HandlerFunc, each func(b *testing.B, client *http.Client)) {
	b.Helper()
	for _, h2 := range []bool{false, true} {
		for name, policy := range map[string]string{"tunnel": `{"mode":"public"}`, "intercepted": secret("")} {
			b.Run(fmt.Sprintf("%s/h2=%v", name, h2), func(b *testing.B) {
				f := start(b, policy)
				f.Unlimit(id)
				f.site(b, "api.example", "8.8.8.8:443", h)
				client := f.client(b, h2)
				if name == "tunnel" {
					client.Transport.(*http.Transport).TLSClientConfig.RootCAs = roots(b)
				}
				each(b, client)
			})
		}
	}
}

// BenchmarkRequestConnect opens a connection, with TLS on each side of the proxy, for one request.
func BenchmarkRequestConnect(b *testing.B) {
	clients(b, func(http.ResponseWriter, *http.Request) {}, func(b *testing.B, client *http.Client) {
		b.Helper()
		for b.Loop() {
			get(b, client, request(b, "GET", "https://api.example/", nil))
			client.CloseIdleConnections()
		}
	})
}

// BenchmarkRequest sends requests over one connection.
func BenchmarkRequest(b *testing.B) {
	clients(b, func(http.ResponseWriter, *http.Request) {}, func(b *testing.B, client *http.Client) {
		b.Helper()
		for b.Loop() {
			get(b, client, request(b, "GET", "https://api.example/", nil))
		}
	})
}

// BenchmarkDownload receives a body, which is scrubbed where it is intercepted.
func BenchmarkDownload(b *testing.B) {
	body := bytes.Repeat([]byte(`{"id": 12345, "url": "https://api.example.com/v1/things/12345"},`), 1<<18)
	clients(b, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }, func(b *testing.B, client *http.Client) {
		b.Helper()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			res, err := client.Do(request(b, "GET", "https://api.example/", nil))
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if err != nil || n != int64(len(body)) {
				b.Fatal(n, err)
			}
		}
	})
}
