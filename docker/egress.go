package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/sandbox"
)

// The egress proxy is one container for each state directory. It has the policies of all sandboxes
// and a network; a sandbox with a policy has no network, and one socket of the proxy.

const (
	insideEgress   = "/run/actiond-egress"         // in a sandbox: the directory with its socket
	egressAddress  = "unix:" + insideEgress + "/s" // that socket
	insideTrust    = "/run/actiond-tls"            // the certificates of the sandbox's authority
	trustSize      = 10 << 20                      // bytes: the largest bundle, twice while it is replaced
	proxyDir       = "/egress"                     // in the proxy: the directory egress of the state
	insideResolver = "127.0.0.1"                   // in a sandbox: the name server

	egressFiles  = 16384
	egressPids   = 512
	egressMemory = 128 << 20
	egressCPUs   = 2

	// egressStart is how long the proxy may take to start on a loaded machine.
	egressStart = 30 * time.Second
	// egressTime is how long it may take to answer.
	egressTime = 10 * time.Second
	// egressRest is how long a proxy without policies is kept.
	egressRest = 10 * time.Minute
	// maxEgressAnswer is 1,000 denials, in bytes.
	maxEgressAnswer = 1 << 20
)

var (
	// errDown reports that no egress proxy answers.
	errDown = fmt.Errorf("%w: it does not answer", sandbox.ErrEgress)
	// errUnapplied reports that the proxy does not know the sandbox.
	errUnapplied = fmt.Errorf("%w: it does not know the sandbox", sandbox.ErrEgress)
)

// cannotKeep begins the refusals of keepsPolicies.
const cannotKeep = "network policies cannot be kept here: "

// keepsPolicies refuses a network policy that this engine cannot keep.
func (h *Host) keepsPolicies(learned *facts, runtime string) error {
	switch {
	case learned.desktop:
		return sandbox.Invalid(cannotKeep + "Docker Desktop shares no Unix socket between this machine and its containers; use an engine on this Linux host, or --network none")
	case !learned.socket:
		return sandbox.Invalid(cannotKeep + "a Unix socket of the engine's root must lead into the sandbox, and only root can share one; run this program as root (sudo), or use --network none")
	case learned.remapped && !h.triesRemapped:
		return sandbox.Invalid(cannotKeep + "they were not tried with an engine that is rootless or maps users; use an engine of root without userns-remap, or --network none")
	case !plainRuntime(runtime), runtime == "" && !plainRuntime(learned.runtime):
		return sandbox.Invalid(cannotKeep+"sandboxes of the runtime %s cannot connect to a Unix socket of this host; take runc, or --network none", strings.TrimSpace(runtime+" "+learned.runtime))
	}
	return nil
}

// checkPolicy is keepsPolicies for a specification. While the engine does not answer, the creation
// decides.
func (h *Host) checkPolicy(ctx context.Context, spec *sandbox.Spec) error {
	if spec.Policy == nil {
		return nil
	}
	learned, err := h.learn(ctx)
	if errors.Is(err, sandbox.ErrUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := h.keepsPolicies(learned, spec.Runtime); err != nil || len(spec.Policy.Secrets) == 0 {
		return err
	}
	_, err = h.rootsForSecrets()
	return err
}

// connectPolicy writes the policy of a sandbox that is being created, and makes the proxy apply it:
// in parallel with the sandbox's container where the proxy must be started. wait, which must be
// called, returns once it is applied.
func (h *Host) connectPolicy(ctx context.Context, id string, spec *sandbox.Spec) (wait func() error, err error) {
	if spec.Policy == nil {
		return func() error { return nil }, nil
	}
	if err := h.replaceEgress(ctx); err != nil {
		return nil, err
	}
	// A socket that a proxy kept of an earlier sandbox would not be in the new directory.
	err = h.askEgress(ctx, http.MethodDelete, "/"+id, nil)
	down := errors.Is(err, errDown)
	if err != nil && !down && !errors.Is(err, errUnapplied) {
		return nil, err
	}
	ca, err := egress.NewCA(id) // also for secrets that come later
	if err != nil {
		return nil, err
	}
	conf := egress.Conf{Generation: 1, Policy: *spec.Policy, Private: spec.Private, CA: ca}
	if before, err := h.state.loadConf(id); err == nil { // a proxy that starts just now may have read it
		conf.Generation = before.Generation + 1
	}
	var roots []byte
	if len(conf.Policy.Secrets) > 0 {
		if roots, err = h.rootsForSecrets(); err != nil {
			return nil, err
		}
	}
	if err := h.state.saveConf(id, conf, roots); err != nil {
		return nil, err
	}
	if !down {
		return func() error { return nil }, h.applyPolicy(ctx, id)
	}
	applied := make(chan error, 1)
	go func() { applied <- h.applyPolicy(ctx, id) }()
	return func() error { return <-applied }, nil
}

// applyPolicy makes the proxy apply the policy of a sandbox, and starts it where it does not answer.
// Connections that the policy refuses have ended then.
func (h *Host) applyPolicy(ctx context.Context, id string) error {
	if err := h.saveHost(ctx); err != nil {
		return err
	}
	err := h.askEgress(ctx, http.MethodPost, "/apply/"+id, nil)
	if errors.Is(err, errDown) {
		if err = h.raiseEgress(ctx); err == nil {
			err = h.askEgress(ctx, http.MethodPost, "/apply/"+id, nil)
		}
	}
	if err != nil {
		return fmt.Errorf("applying the network policy of sandbox %s: %w", id, err)
	}
	return nil
}

// disconnect removes the policy and the socket of a sandbox, whose container is gone, even if ctx is
// over. A proxy that does not answer has no file to start from.
func (h *Host) disconnect(ctx context.Context, id string) error {
	if has, err := h.state.hasConf(id); !has || err != nil {
		return err
	}
	err := h.askEgress(context.WithoutCancel(ctx), http.MethodDelete, "/"+id, nil)
	if err != nil && !errors.Is(err, errDown) && !errors.Is(err, errUnapplied) {
		return err
	}
	return h.state.removeConf(id)
}

// policyOf returns the policy of a sandbox. It fails with ErrNotFound or ErrConflict where there is
// none.
func (h *Host) policyOf(ctx context.Context, s *instance) (egress.Conf, error) {
	conf, err := h.state.loadConf(s.origin)
	if !errors.Is(err, fs.ErrNotExist) {
		return conf, err
	}
	if err := h.refresh(ctx, s); err != nil {
		return conf, err
	}
	return conf, sandbox.NoPolicy(s.Sandbox)
}

// Network is [sandbox.Networker]'s.
func (h *Host) Network(ctx context.Context, box *sandbox.Sandbox) (*sandbox.Network, error) {
	s, err := h.own(box)
	if err != nil {
		return nil, err
	}
	conf, err := h.policyOf(ctx, s)
	if err != nil {
		return nil, err
	}
	n := sandbox.NetworkOf(&conf)
	var status egress.Status
	err = h.askEgress(ctx, http.MethodGet, "/"+s.origin, &status)
	if err != nil || status.Generation != conf.Generation {
		if err = h.applyPolicy(ctx, s.origin); err == nil {
			err = h.askEgress(ctx, http.MethodGet, "/"+s.origin, &status)
		}
	}
	n.Names = h.names(ctx, s) // not before the policy applies: an agent may keep its server busy
	return n.With(ctx, status, err)
}

// names says whether programs in a sandbox that know no proxy can connect to names; "" where it has
// no network policy.
func (h *Host) names(ctx context.Context, s *instance) string {
	n, err := h.state.load(s.origin)
	switch {
	case err != nil:
		return "unknown"
	case !n.Egress:
		return ""
	case !n.Names:
		return "off"
	case s.State == sandbox.Stopped, s.State == sandbox.Paused:
		return "on"
	}
	return sandbox.AskNames(ctx, s.status)
}

// SetNetwork is [sandbox.Networker]'s.
func (h *Host) SetNetwork(ctx context.Context, box *sandbox.Sandbox, change func(n *sandbox.Network) error) (*sandbox.Network, error) {
	s, unlock, err := h.lock(ctx, box)
	if err != nil {
		return nil, err
	}
	defer unlock()
	conf, err := h.policyOf(ctx, s)
	if err != nil {
		return nil, err
	}
	n := sandbox.NetworkOf(&conf)
	n.Policy.Allow, n.Policy.Deny = slices.Clone(conf.Policy.Allow), slices.Clone(conf.Policy.Deny)
	if err := change(n); err != nil {
		return nil, err
	}
	if err := errors.Join(n.Policy.KeepValues(&conf.Policy), n.Policy.Check()); err != nil {
		return nil, sandbox.Invalid("network policy: %v", err)
	}
	if !n.Policy.Equal(&conf.Policy) || !slices.Equal(n.Private, conf.Private) {
		if err := h.nextPolicy(s.origin, n.Policy, n.Private); err != nil {
			return nil, err
		}
	}
	return h.Network(ctx, box) // which applies it
}

// nextPolicy stores the next generation of a policy. The lock of the sandbox is held.
func (h *Host) nextPolicy(id string, p egress.Policy, private []netip.Prefix) error {
	conf, err := h.state.loadConf(id)
	switch {
	case err != nil:
		return err
	case len(p.Secrets) > 0 && conf.CA == egress.CA{}:
		return sandbox.Invalid("sandbox %s was created by a version without secrets: create it anew to give it one", id)
	}
	var roots []byte
	if p.Brings(&conf.Policy) { // secrets are verified by the roots of the command that gave them
		if roots, err = h.rootsForSecrets(); err != nil {
			return err
		}
	}
	conf.Generation, conf.Policy, conf.Private = conf.Generation+1, p, private
	return h.state.saveConf(id, conf, roots)
}

// Denied is [sandbox.Networker]'s.
func (h *Host) Denied(ctx context.Context, box *sandbox.Sandbox, after int64, wait time.Duration) ([]egress.Denial, error) {
	s, err := h.own(box)
	if err != nil {
		return nil, err
	}
	if _, err := h.policyOf(ctx, s); err != nil {
		return nil, err
	}
	var answer struct {
		Denied []egress.Denial `json:"denied"`
	}
	path := fmt.Sprintf("/%s/denied?after=%d&wait=%d", s.origin, after, wait/time.Second)
	err = h.askEgressFor(ctx, egressTime+wait, http.MethodGet, path, &answer)
	return answer.Denied, err
}

// askEgress sends a request to the egress proxy and decodes the answer into into, or stores it
// there as it is if that is a *[]byte; nil: it is dropped. It fails with errDown or errUnapplied.
func (h *Host) askEgress(ctx context.Context, method, path string, into any) error {
	return h.askEgressFor(ctx, egressTime, method, path, into)
}

// askEgressFor is askEgress with another limit of time.
func (h *Host) askEgressFor(ctx context.Context, limit time.Duration, method, path string, into any) error {
	learned, err := h.learn(ctx)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := http.NewRequestWithContext(limited, method, "http://egress"+path, http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialSocket(ctx, filepath.Join(h.state.path, "egress"), "control", learned.serverUID)
	}}
	answer, err := transport.RoundTrip(r)
	if err == nil {
		defer func() { _ = answer.Body.Close() }()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(answer.Body, maxEgressAnswer)); err == nil {
			switch {
			case answer.StatusCode == http.StatusNotFound:
				return fmt.Errorf("%w: %s", errUnapplied, bytes.TrimSpace(body))
			case answer.StatusCode != http.StatusOK:
				return fmt.Errorf("the egress proxy answered %s: %s", answer.Status, bytes.TrimSpace(body))
			}
			switch into := into.(type) {
			case nil:
			case *[]byte:
				*into = body
			default:
				return json.Unmarshal(body, into)
			}
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", errDown, err)
}

// egressName is the name of the proxy's container. It is not that of a sandbox.
func (h *Host) egressName() string { return h.config.Prefix + "egress-" + h.controller }

// raiseEgress starts the egress proxy where it does not answer, and returns when it does.
func (h *Host) raiseEgress(ctx context.Context) error {
	unlock, err := h.state.lock(ctx, "egress")
	if err != nil {
		return err
	}
	defer unlock()
	answers := func() error { return h.askEgress(ctx, http.MethodPost, "/host", nil) }
	if err := answers(); !errors.Is(err, errDown) { // another creation started it
		return err
	}
	name := h.egressName()
	info, err := h.inspect(ctx, "looking for the egress proxy", name)
	id := ""
	switch {
	case isNotFound(err):
	case err != nil:
		return err
	case info.Config.Labels[labelManaged] != "egress" || info.Config.Labels[labelController] != h.controller:
		return fmt.Errorf("%w: container %s has the name of the egress proxy; remove or rename it", sandbox.ErrConflict, name)
	case !slices.ContainsFunc(info.HostConfig.Mounts, func(m mount.Mount) bool { return m.Source == filepath.Join(h.state.path, "egress") }):
		if err := h.discard(ctx, info.ID); err != nil { // the state directory was moved
			return err
		}
	default:
		id = info.ID
	}
	if id == "" {
		if id, err = h.makeEgress(ctx, name); err != nil {
			return err
		}
	}
	if err := h.engine.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return engineError(ctx, "starting the egress proxy", err)
	}
	waitCtx, cancel := context.WithTimeoutCause(ctx, egressStart, fmt.Errorf("the egress proxy does not answer after %v", egressStart))
	defer cancel()
	err = sandbox.UntilListening(waitCtx, func() error { return h.askEgress(waitCtx, http.MethodPost, "/host", nil) }, errDown)
	if err != nil {
		return fmt.Errorf("waiting for the egress proxy: %w; container %s logs %q", err, name, h.lastWords(context.WithoutCancel(ctx), id))
	}
	return nil
}

// makeEgress makes the container of the proxy: this program's server in an image without a file, as
// uid 0 without any capability, which can read its mounts alone.
func (h *Host) makeEgress(ctx context.Context, name string) (id string, err error) {
	learned, err := h.learn(ctx)
	if err != nil {
		return "", err
	}
	ref, arch, err := h.emptyImage(ctx)
	if err != nil {
		return "", err
	}
	binary, err := h.serverFor(arch)
	if err != nil {
		return "", err
	}
	volume, err := h.volumeWith(ctx, binary, ref)
	if err != nil {
		return "", fmt.Errorf("keeping the program of the egress proxy in a volume: %w", err)
	}
	config := &container.Config{
		Image: ref, User: "0:0", WorkingDir: "/", Entrypoint: []string{insideServer}, Cmd: []string{"egress", proxyDir}, StopSignal: "SIGTERM",
		Env: []string{"GOMAXPROCS=4", "GOMEMLIMIT=96MiB"},
		Labels: map[string]string{
			labelManaged: "egress", labelController: h.controller, labelBinary: binary.sum, labelCreated: time.Now().UTC().Format(time.RFC3339),
			labelVersion: h.config.Version,
		},
	}
	cpus := float64(egressCPUs)
	if learned.cpus > 0 {
		cpus = min(cpus, float64(learned.cpus))
	}
	dir := filepath.Join(h.state.path, "egress")
	pids := int64(egressPids)
	host := &container.HostConfig{
		NetworkMode: "bridge", ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: securityOpts(nil), IpcMode: container.IPCModePrivate,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyUnlessStopped},
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "2"}},
		Resources: container.Resources{
			Memory: egressMemory, MemorySwap: egressMemory, NanoCPUs: sandbox.NanoCPUs(cpus), PidsLimit: &pids,
			Ulimits: []*container.Ulimit{{Name: "nofile", Soft: egressFiles, Hard: egressFiles}},
		},
		Mounts: []mount.Mount{
			{Type: mount.TypeVolume, Source: volume, Target: insideBin, ReadOnly: true, VolumeOptions: &mount.VolumeOptions{NoCopy: true}},
			bind(dir, proxyDir, false), bind(filepath.Join(dir, "conf"), proxyDir+"/conf", true),
		},
	}
	made, err := h.createContainer(ctx, config, host, name)
	return made.ID, engineError(ctx, "making the egress proxy", err)
}

// emptyImage returns the name and the architecture of an image without a file, made where it does
// not exist.
func (h *Host) emptyImage(ctx context.Context) (ref, arch string, err error) {
	ref = h.config.Prefix + "empty:1"
	info, err := safely(ctx, "looking for image "+ref, func() (image.InspectResponse, error) { return h.engine.ImageInspect(ctx, ref) })
	if isNotFound(err) {
		archive := bytes.NewReader(make([]byte, 1024)) // two empty blocks: the end of a tar archive
		report, err := h.engine.ImageImport(ctx, image.ImportSource{Source: archive, SourceName: "-"}, ref, image.ImportOptions{})
		if err != nil {
			return "", "", engineError(ctx, "making the image of the egress proxy", err)
		}
		_, err = io.Copy(io.Discard, report)
		if err = errors.Join(err, report.Close()); err != nil {
			return "", "", engineError(ctx, "making the image of the egress proxy", err)
		}
		info, err = h.engine.ImageInspect(ctx, ref)
		return ref, info.Architecture, engineError(ctx, "looking for image "+ref, err)
	}
	return ref, info.Architecture, err
}

// saveHost writes the addresses that no sandbox reaches: this host's, and those at which engine
// networks reach it.
func (h *Host) saveHost(ctx context.Context) error {
	networks, err := safely(ctx, "listing the engine's networks", func() ([]network.Summary, error) {
		return h.engine.NetworkList(ctx, network.ListOptions{})
	})
	if err != nil {
		return err
	}
	local, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("listing the addresses of this host: %w", err)
	}
	var own []netip.Addr
	for _, a := range local {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().WithZone("").Unmap())
		}
	}
	for _, n := range networks {
		for _, c := range n.IPAM.Config {
			gateway, err := netip.ParseAddr(c.Gateway)
			if err != nil { // the engine takes the first address then
				subnet, err := netip.ParsePrefix(c.Subnet)
				if err != nil {
					continue
				}
				gateway = subnet.Masked().Addr().Next()
			}
			own = append(own, gateway.Unmap())
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return h.state.saveHost(slices.Compact(own))
}

// tendEgress removes policies without a sandbox, and a proxy that has had no policy for a while. It
// starts the proxy where it does not answer and there are policies, and has it apply those that a
// controller stored and did not live to apply.
func (h *Host) tendEgress(ctx context.Context, dryRun bool) (removed []sandbox.Removal, err error) {
	ids, err := h.state.confs()
	if err != nil {
		return nil, err
	}
	var errs []error
	if !dryRun {
		errs = append(errs, h.state.removeLeft("", egressRest))
	}
	var left []string
	for _, id := range ids {
		orphan, err := h.pruneConf(ctx, id, dryRun)
		errs = append(errs, err)
		if orphan {
			removed = append(removed, sandbox.Removal{ID: id, Reason: "it has a network policy and no container"})
		} else {
			left = append(left, id)
		}
	}
	switch since := h.state.confsChanged(); {
	case len(left) > 0 && !dryRun:
		err := h.saveHost(ctx)
		if err == nil {
			if err = h.askEgress(ctx, http.MethodPost, "/host", nil); errors.Is(err, errDown) {
				err = h.raiseEgress(ctx)
			}
		}
		errs = append(errs, err)
		for _, id := range left {
			if !errors.Is(err, sandbox.ErrEgress) { // each would wait for it
				errs = append(errs, h.catchUp(ctx, id))
			}
		}
	case len(left) == 0 && !since.IsZero() && time.Since(since) > egressRest:
		name, err := h.removeEgress(ctx, dryRun)
		errs = append(errs, err)
		if name != "" {
			removed = append(removed, sandbox.Removal{ID: name, Reason: fmt.Sprintf("no sandbox has had a network policy for %v", egressRest)})
		}
	}
	return removed, errors.Join(errs...)
}

// catchUp applies the stored policy of a sandbox where the proxy has another one, unless a change is
// under way.
func (h *Host) catchUp(ctx context.Context, id string) error {
	unlock, err := h.state.tryLock(id)
	if errors.Is(err, filelock.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	conf, err := h.state.loadConf(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was removed just now
	}
	if err != nil {
		return err
	}
	var status egress.Status
	err = h.askEgress(ctx, http.MethodGet, "/"+id, &status)
	if err == nil && status.Generation != conf.Generation || errors.Is(err, errUnapplied) {
		err = h.applyPolicy(ctx, id)
	}
	return err
}

// removeEgress removes the container of the proxy, and returns its name, "" where there is none.
func (h *Host) removeEgress(ctx context.Context, dryRun bool) (name string, err error) {
	unlock, err := h.state.lock(ctx, "egress")
	if err != nil {
		return "", err
	}
	defer unlock()
	found, err := h.containers(ctx, "egress")
	for _, c := range found {
		name = strings.TrimPrefix(nameOf(c), "/")
		if !dryRun {
			err = errors.Join(err, h.discard(ctx, c.ID))
		}
	}
	return name, err
}
