package docker

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/actiond/actiond/sandbox"
)

// server is a static server binary on this host.
type server struct {
	path, sum string
	size      int64
}

// outdated reports whether new sandboxes get another server than the one with a sum.
func (h *Host) outdated(sum string) bool {
	for arch := range h.config.Servers {
		if s, err := h.serverFor(arch); err != nil || s.sum == sum {
			return false
		}
	}
	return len(h.config.Servers) > 0
}

// serverFor is the binary for an architecture, as the image names it. Each is
// read once.
func (h *Host) serverFor(arch string) (server, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.hashes[arch]; ok {
		return s, nil
	}
	path, ok := h.config.Servers[arch]
	if !ok {
		have := strings.Join(slices.Sorted(maps.Keys(h.config.Servers)), ", ")
		return server{}, sandbox.Invalid("the image is for %s, and there is a server for %s only", cmp.Or(arch, "no architecture"), cmp.Or(have, "nothing"))
	}
	f, err := os.Open(path)
	if err != nil {
		return server{}, fmt.Errorf("reading the server for %s: %w", arch, err)
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return server{}, fmt.Errorf("reading the server for %s: %w", arch, err)
	}
	s := server{path, hex.EncodeToString(sum.Sum(nil)), size}
	h.hashes[arch] = s
	return s, nil
}

// volumeWith is the name of a volume that holds the server, filled by the first
// who needs it. A second, empty volume says that the first was filled and
// checked: a volume's labels cannot be changed later. A container with a fixed
// name is the lock among those who would fill it, because it holds for
// everybody who uses the engine.
func (h *Host) volumeWith(ctx context.Context, s server, image string) (string, error) {
	name := h.config.Prefix + "server-" + s.sum[:32]
	for {
		filled, err := h.filled(ctx, name)
		if err != nil || filled {
			return name, err
		}
		err = h.fill(ctx, name, s, image)
		if !errors.Is(err, errFilling) {
			return name, err
		}
		if err := h.awaitFiller(ctx, name+"-fill"); err != nil {
			return "", err
		}
	}
}

// labelVolume of the marking volume holds the creation time of the volume that it marks.
const labelVolume = sandbox.LabelPrefix + "volume"

func (h *Host) filled(ctx context.Context, name string) (bool, error) {
	look := func(name string) (volume.Volume, error) {
		v, err := safely(ctx, "looking for volume "+name, func() (volume.Volume, error) { return h.engine.VolumeInspect(ctx, name) })
		if isNotFound(err) {
			return volume.Volume{}, nil
		}
		return v, err
	}
	marker, err := look(name + "-ok")
	if err != nil || marker.Name == "" {
		return false, err
	}
	v, err := look(name)
	if err != nil {
		return false, err
	}
	return v.Name != "" && marker.Labels[labelVolume] == v.CreatedAt, nil
}

// errFilling reports that another process fills the volume.
var errFilling = errors.New("another process fills the volume")

// fill puts the server into the volume by way of a container that is never
// started, and reads it back to check it. It fails with errFilling while another
// process does so.
func (h *Host) fill(ctx context.Context, name string, s server, image string) (err error) {
	config := &container.Config{
		Image: image, Entrypoint: []string{insideServer},
		Labels: map[string]string{labelManaged: "filler", labelController: h.controller, labelCreated: time.Now().UTC().Format(time.RFC3339)},
	}
	host := &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{
		Type: mount.TypeVolume, Source: name, Target: insideBin,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelManaged: "server"}},
	}}}
	made, err := h.createContainer(ctx, config, host, name+"-fill")
	if isConflict(err) {
		return errFilling
	}
	if err != nil {
		return engineError(ctx, "making the container that fills volume "+name, err)
	}
	defer func() { err = errors.Join(err, h.discard(ctx, made.ID)) }()
	if filled, err := h.filled(ctx, name); err != nil || filled {
		return err // another filler finished just before we got the lock
	}
	if err := h.copyServer(ctx, made.ID, s); err != nil {
		return err
	}
	if err := h.checkServer(ctx, made.ID, s); err != nil {
		return err
	}
	v, err := h.engine.VolumeInspect(ctx, name)
	if err != nil {
		return engineError(ctx, "looking at volume "+name, err)
	}
	return h.mark(ctx, name, v.CreatedAt)
}

func (h *Host) mark(ctx context.Context, name, createdAt string) error {
	// A marker of an earlier volume of the name is in the way.
	if err := h.engine.VolumeRemove(ctx, name+"-ok", true); err != nil && !isNotFound(err) {
		return engineError(ctx, "removing the old marker of volume "+name, err)
	}
	_, err := h.engine.VolumeCreate(ctx, volume.CreateOptions{
		Name: name + "-ok", Labels: map[string]string{labelManaged: "server", labelVolume: createdAt},
	})
	return engineError(ctx, "marking volume "+name+" as filled", err)
}

// copyServer puts the binary into a container. It is not read into memory, of
// which a gateway that fills a volume would keep several times its size.
func (h *Host) copyServer(ctx context.Context, id string, s server) error {
	f, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("reading the server: %w", err)
	}
	defer func() { _ = f.Close() }()
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	name := strings.TrimPrefix(insideServer, "/")
	dir := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(insideBin, "/") + "/", Mode: 0o755}
	file := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o555, Size: s.size}
	if err := errors.Join(w.WriteHeader(dir), w.WriteHeader(file)); err != nil {
		return fmt.Errorf("packing the server: %w", err)
	}
	const block = 512 // a file ends at one, and an archive with two empty ones
	end := make([]byte, (block-s.size%block)%block+2*block)
	archive := io.MultiReader(&head, io.LimitReader(f, s.size), bytes.NewReader(end))
	err = h.engine.CopyToContainer(ctx, id, "/", archive, container.CopyToContainerOptions{})
	return engineError(ctx, "copying the server into container "+short(id), err)
}

// checkServer reads the binary back.
func (h *Host) checkServer(ctx context.Context, id string, s server) error {
	back, _, err := h.engine.CopyFromContainer(ctx, id, insideServer)
	if err != nil {
		return engineError(ctx, "reading the server back", err)
	}
	defer func() { _ = back.Close() }()
	archive := tar.NewReader(back)
	if _, err := archive.Next(); err != nil {
		return engineError(ctx, "reading the server back", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(archive, s.size+1)); err != nil {
		return engineError(ctx, "reading the server back", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.sum {
		return fmt.Errorf("the server arrived damaged: its SHA-256 is %s instead of %s", got, s.sum)
	}
	return nil
}

// fillTime is how long filling may take; a filler that is older was left behind
// by a controller that died.
const fillTime = time.Minute

// awaitFiller returns when the container that fills the volume is gone,
// and removes it if it was left behind.
func (h *Host) awaitFiller(ctx context.Context, name string) error {
	info, err := h.engine.ContainerInspect(ctx, name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return engineError(ctx, "looking at "+name, err)
	}
	created, err := time.Parse(time.RFC3339Nano, info.Created)
	if err != nil {
		return fmt.Errorf("reading when %s was made: %w", name, err)
	}
	now, err := h.engineTime(ctx)
	if err != nil {
		return err
	}
	left := created.Add(fillTime).Sub(now)
	if left <= 0 {
		return h.discard(ctx, info.ID)
	}
	waitCtx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	gone, failed := h.engine.ContainerWait(waitCtx, info.ID, container.WaitConditionRemoved)
	select {
	case <-gone:
		return nil
	case err := <-failed:
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for %s to put the server into its volume: %w", name, context.Cause(ctx))
		case isNotFound(err), waitCtx.Err() != nil:
			return nil // the next look says
		}
		return engineError(ctx, "waiting for "+name, err)
	}
}

// discard removes a container with its own volumes, even if ctx is over. It succeeds
// if the container is already gone.
func (h *Host) discard(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, err := safely(ctx, "removing container "+short(id), func() (struct{}, error) {
		err := h.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case isNotFound(err):
			return struct{}{}, nil
		case isConflict(err): // another caller is removing it: wait
			return struct{}{}, h.awaitRemoval(ctx, id)
		}
		return struct{}{}, err
	})
	return err
}

func (h *Host) awaitRemoval(ctx context.Context, id string) error {
	gone, failed := h.engine.ContainerWait(ctx, id, container.WaitConditionRemoved)
	select {
	case <-gone:
		return nil
	case err := <-failed:
		if isNotFound(err) {
			return nil
		}
		return err
	}
}

func short(id string) string { return id[:min(12, len(id))] }
