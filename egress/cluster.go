package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/internal/channel"
)

// Secrets of Kubernetes with policies.
const (
	// SecretPrefix begins the name of the Secret of a sandbox; the id follows.
	SecretPrefix = "sandbox-"
	// SecretField is its field with the sandbox's [Conf].
	SecretField = "conf"
	// SecretLabel selects them.
	SecretLabel = "actiond.dev/managed=policy" //nolint:gosec // no credential
)

const (
	pageItems = 50
	maxPage   = 64 << 20         // bytes of a page
	maxSecret = 2 << 20          // bytes of an event with a Secret, which has at most 1 MiB
	watchTime = 4 * time.Minute  // of a watch; then all are listed again
	lateTime  = 30 * time.Second // that its end, or an answer, may be late
	minRetry  = time.Second      // the wait after an error, which doubles
	maxRetry  = 15 * time.Second
)

// Cluster is the namespace of a Pod, whose Secrets are the policies of a [Server].
type Cluster struct {
	// URL is that of the API server.
	URL string
	// Account is the directory with the token and the namespace of the Pod's account, and the
	// certificate of the API server.
	Account string
	// Log gets errors, after which the policies stay as they are until the API server answers.
	Log *slog.Logger
	// Synced is called once all policies were applied first.
	Synced func()
}

// Follow applies the policies of a cluster to a server, and their changes, until ctx ends. A policy
// that cannot be applied leaves its sandbox without a network.
func (s *Server) Follow(ctx context.Context, c Cluster) {
	f := &follower{Cluster: c, server: s, known: map[string]string{}}
	for wait := minRetry; ctx.Err() == nil; {
		err := f.follow(ctx)
		if err == nil {
			wait = minRetry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.Log.WarnContext(ctx, "cannot follow the policies", slog.Any("error", err))
		_ = channel.Sleep(ctx, wait)
		wait = min(2*wait, maxRetry)
	}
}

type follower struct {
	Cluster

	server *Server
	client *http.Client
	path   string            // of the Secrets
	token  string            // of the account
	known  map[string]string // the UID of the Secret of each sandbox
}

type secretObject struct {
	Metadata struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	} `json:"metadata"`
	Data map[string][]byte `json:"data"`
}

type secretPage struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []secretObject `json:"items"`
}

// follow lists all policies and watches them for a while.
func (f *follower) follow(ctx context.Context) error {
	if err := f.open(); err != nil {
		return err
	}
	defer f.client.CloseIdleConnections()
	version, err := f.list(ctx)
	if err != nil {
		return err
	}
	if f.Synced != nil {
		f.Synced()
		f.Synced = nil
	}
	return f.watch(ctx, version)
}

// open reads the files of the account, which the cluster changes every so often.
func (f *follower) open() error {
	files := map[string]string{}
	for _, name := range []string{"ca.crt", "namespace", "token"} {
		data, err := readBounded(filepath.Join(f.Account, name), MaxPolicy)
		if err != nil {
			return err
		}
		files[name] = strings.TrimSpace(string(data))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(files["ca.crt"])) {
		return fmt.Errorf("%s/ca.crt has no certificate", f.Account)
	}
	f.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ResponseHeaderTimeout: lateTime,
	}}
	f.path, f.token = "/api/v1/namespaces/"+url.PathEscape(files["namespace"])+"/secrets", files["token"]
	return nil
}

// get returns the body of an answer, which the caller closes.
func (f *follower) get(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	query.Set("labelSelector", SecretLabel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.URL+f.path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	r.Header.Set("Accept", "application/json")
	res, err := f.client.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // as far as it goes
		_ = res.Body.Close()
		return nil, fmt.Errorf("the API server answered %s: %s", res.Status, text)
	}
	return res.Body, nil
}

// list applies all policies, and forgets the sandboxes that have none any more.
func (f *follower) list(ctx context.Context) (version string, err error) {
	left := map[string]bool{}
	query := url.Values{"limit": {strconv.Itoa(pageItems)}}
	for {
		page, err := f.page(ctx, query)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			if id := f.put(ctx, &page.Items[i]); id != "" {
				left[id] = true
			}
		}
		if page.Metadata.Continue == "" {
			version = page.Metadata.ResourceVersion
			break
		}
		query.Set("continue", page.Metadata.Continue)
	}
	for id := range f.known {
		if !left[id] {
			f.forget(id)
		}
	}
	return version, nil
}

func (f *follower) page(ctx context.Context, query url.Values) (page secretPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, lateTime)
	defer cancel()
	body, err := f.get(ctx, query)
	if err != nil {
		return page, err
	}
	defer func() { _ = body.Close() }()
	return page, decodeSecrets(io.LimitReader(body, maxPage), &page)
}

// decodeSecrets has no value of the document in its errors.
func decodeSecrets(from io.Reader, into any) error {
	err := json.UnmarshalRead(from, into)
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		semantic.JSONValue = nil
	}
	return err
}

// watch applies changes after a version until the API server ends it.
func (f *follower) watch(ctx context.Context, version string) error {
	ctx, cancel := context.WithTimeout(ctx, watchTime+lateTime)
	defer cancel()
	body, err := f.get(ctx, url.Values{"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(int(watchTime / time.Second))}})
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxSecret)
	for lines.Scan() {
		var event struct {
			Type   string       `json:"type"`
			Object secretObject `json:"object"`
		}
		if err := decodeSecrets(strings.NewReader(lines.Text()), &event); err != nil {
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			f.put(ctx, &event.Object)
		case "DELETED":
			if id, ok := idOf(&event.Object); ok && f.known[id] == event.Object.Metadata.UID {
				f.forget(id)
			}
		case "ERROR": // the version is too old, for example
			return errors.New("the API server ended the watch")
		}
	}
	return lines.Err()
}

func idOf(o *secretObject) (id string, ok bool) {
	id, ok = strings.CutPrefix(o.Metadata.Name, SecretPrefix)
	return id, ok && isID(id)
}

// put applies the policy of a Secret, and returns the id of its sandbox.
func (f *follower) put(ctx context.Context, o *secretObject) (id string) {
	id, ok := idOf(o)
	if !ok {
		return ""
	}
	if before, ok := f.known[id]; ok && before != o.Metadata.UID { // generations begin again
		f.forget(id)
	}
	f.known[id] = o.Metadata.UID
	conf, err := ParseConf(o.Data[SecretField])
	if err == nil {
		err = f.server.Apply(id, conf)
	}
	if err != nil && !errors.Is(err, ErrStale) {
		f.Log.ErrorContext(ctx, "cannot apply a policy", slog.String("sandbox", id), slog.Any("error", err))
		_ = f.server.Delete(id) // what it was before is not to hold
	}
	return id
}

func (f *follower) forget(id string) {
	delete(f.known, id)
	_ = f.server.Delete(id) // it was not applied
}

// InPod returns the cluster of this process, and the address of its API server.
func InPod(log *slog.Logger, synced func()) (c Cluster, host string, err error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return c, "", errors.New("this is no Pod: KUBERNETES_SERVICE_HOST is not set")
	}
	return Cluster{URL: "https://" + net.JoinHostPort(host, port), Account: "/var/run/secrets/kubernetes.io/serviceaccount", Log: log, Synced: synced}, host, nil
}
