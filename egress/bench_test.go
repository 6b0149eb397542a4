package egress_test

import (
	"io"
	"net"
	"net/http"
	"testing"
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
				exchange(b, c, "x")
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
