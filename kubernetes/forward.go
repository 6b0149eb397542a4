package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// forwarder connects to Pods through the API server and the kubelet.
type forwarder struct {
	access    *rest.Config
	api       client.Interface
	namespace string
}

// errForward reports that the node could not connect to the Pod.
var errForward = errors.New("the cluster cannot forward the port")

func (f *forwarder) dial(ctx context.Context, s *instance) (net.Conn, error) {
	return f.dialPort(ctx, s.pod, port)
}

func (f *forwarder) dialEgress(ctx context.Context, pod *corev1.Pod, port int) (net.Conn, error) {
	return f.dialPort(ctx, pod.Name, port)
}

// dialPort opens a separate connection for each caller, so that they break independently.
func (f *forwarder) dialPort(ctx context.Context, pod string, port int) (net.Conn, error) {
	dialer, err := f.dialer(pod)
	if err != nil {
		return nil, err
	}
	type opened struct {
		conn httpstream.Connection
		err  error
	}
	result := make(chan opened, 1)
	go func() { // ends with the dialer, which takes no context and has its own time limits
		conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		result <- opened{conn, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if late := <-result; late.err == nil {
				_ = late.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	case r := <-result:
		if r.err != nil {
			return nil, apiError(ctx, "forwarding a port of the Pod "+pod, r.err)
		}
		return openStreams(r.conn, port)
	}
}

func (f *forwarder) dialer(pod string) (httpstream.Dialer, error) { //nolint:ireturn // the library has no type for it
	url := f.api.CoreV1().RESTClient().Post().Resource("pods").Namespace(f.namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(f.access)
	if err != nil {
		return nil, fmt.Errorf("preparing port forwarding: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, f.access)
	if err != nil {
		return nil, fmt.Errorf("preparing port forwarding: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(tunnel, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// openStreams opens the two streams of a forwarded connection.
func openStreams(conn httpstream.Connection, port int) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := conn.CreateStream(headers)
	if err == nil {
		_ = failures.Close() // our side of it
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		var data httpstream.Stream
		if data, err = conn.CreateStream(headers); err == nil {
			return newForwarded(conn, failures, data), nil
		}
	}
	_ = conn.Close()
	return nil, fmt.Errorf("%w: %w", errForward, err)
}

// forwarded is a forwarded connection. Its pipe supports deadlines, unlike streams.
type forwarded struct {
	net.Conn // our end of the pipe

	mu  sync.Mutex
	err error // of the other side
}

func newForwarded(conn httpstream.Connection, failures io.Reader, data io.ReadWriteCloser) *forwarded {
	ours, theirs := net.Pipe()
	f := &forwarded{Conn: ours}
	var copies sync.WaitGroup
	// All of these end when the pipe or the connection is closed.
	copies.Go(func() {
		_, _ = io.Copy(data, theirs)
		_ = conn.Close()
	})
	copies.Go(func() {
		if text, _ := io.ReadAll(io.LimitReader(failures, 4<<10)); len(text) > 0 {
			f.mu.Lock()
			f.err = &net.OpError{Op: "forward", Net: "tcp", Err: fmt.Errorf("%w: %s", errForward, strings.TrimSpace(string(text)))} // so that clients recognize a connection that failed
			f.mu.Unlock()
			_ = theirs.Close()
		}
	})
	go func() {
		_, _ = io.Copy(theirs, data)
		_ = theirs.Close()
		_ = conn.Close()
		copies.Wait()
	}()
	return f
}

// failure returns the cause of a failed call on the pipe.
func (f *forwarded) failure(err error) error {
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	if errors.Is(err, io.ErrClosedPipe) {
		return io.EOF
	}
	return err
}

// Read is [net.Conn]'s.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	return n, f.failure(err)
}

// Write is [net.Conn]'s.
func (f *forwarded) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	return n, f.failure(err)
}
