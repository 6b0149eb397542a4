// Command target is the host that tests let sandboxes reach: the files of a directory over HTTP at port
// 80 and over HTTPS at 443, an SSH server that says its version at 22, and an echo at 7. As
// secret.example it wants the secret as a bearer token, and HTTPS.
//
// Usage: target FILES CERTIFICATE KEY SECRET
package main

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: target FILES CERTIFICATE KEY SECRET")
	}
	all := http.FileServer(http.Dir(os.Args[1]))
	files := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "secret.example" && (r.TLS == nil || r.Header.Get("Authorization") != "Bearer "+os.Args[4]) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		all.ServeHTTP(w, r)
	})
	go listen(":7", func(c net.Conn) { _, _ = io.Copy(c, c) })
	go listen(":22", func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-target\r\n")
		_, _ = io.CopyN(io.Discard, c, 4) // "SSH-"
	})
	go func() { log.Fatal(http.ListenAndServe(":80", files)) }()             //nolint:gosec // the client is a test
	log.Fatal(http.ListenAndServeTLS(":443", os.Args[2], os.Args[3], files)) //nolint:gosec // the client is a test
}

func listen(address string, serve func(net.Conn)) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer func() { _ = c.Close() }()
			serve(c)
		}()
	}
}
